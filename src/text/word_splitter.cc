#include "text/word_splitter.h"

#include <string>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#include "text/utf8.h"

namespace ridge::text {
namespace {

// Work of one match, far above what a word needs: a match of one megabyte backtracks once over its length.
constexpr uint32_t kMatchLimit = 50'000'000;
constexpr uint32_t kHeapLimitKib = 256 * 1024;
constexpr size_t kJitStackStartBytes = 32 * 1024;
constexpr size_t kJitStackMaxBytes = 16 * 1024 * 1024;

// The white space of Unicode (property White_Space). PCRE2's own \s also takes U+180E.
constexpr std::string_view kSpaceRanges =
    R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// Code points that Unicode 15 and 16 added, by category: Debian 12's PCRE2 knows Unicode 14. Source: Unicode Character
// Database 16.0, compared code point by code point with PCRE2 10.42. A newer PCRE2 that has them already is not
// disturbed.
constexpr std::string_view kNewLu = R"(\x{1c89}\x{a7cb}-\x{a7cc}\x{a7da}\x{a7dc}\x{10d50}-\x{10d65})";
constexpr std::string_view kNewLl = R"(\x{1c8a}\x{a7cd}\x{a7db}\x{10d70}-\x{10d85}\x{1df25}-\x{1df2a})";
constexpr std::string_view kNewLm =
    R"(\x{10d4e}\x{10d6f}\x{16d40}-\x{16d42}\x{16d6b}-\x{16d6c}\x{1e030}-\x{1e06d}\x{1e4eb})";
constexpr std::string_view kNewLo =
    R"(\x{105c0}-\x{105f3}\x{10d4a}-\x{10d4d}\x{10d4f}\x{10ec2}-\x{10ec4}\x{1123f}-\x{11240}\x{11380}-\x{11389}\x{1138b}\x{1138e})"
    R"(\x{11390}-\x{113b5}\x{113b7}\x{113d1}\x{113d3}\x{11bc0}-\x{11be0}\x{11f02}\x{11f04}-\x{11f10}\x{11f12}-\x{11f33}\x{1342f})"
    R"(\x{13441}-\x{13446}\x{13460}-\x{143fa}\x{16100}-\x{1611d}\x{16d43}-\x{16d6a}\x{18cff}\x{1b132}\x{1b155}\x{1e4d0}-\x{1e4ea})"
    R"(\x{1e5d0}-\x{1e5ed}\x{1e5f0}\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";
constexpr std::string_view kNewM =
    R"(\x{897}\x{cf3}\x{ece}\x{10d69}-\x{10d6d}\x{10efc}-\x{10eff}\x{11241}\x{113b8}-\x{113c0}\x{113c2}\x{113c5}\x{113c7}-\x{113ca})"
    R"(\x{113cc}-\x{113d0}\x{113d2}\x{113e1}-\x{113e2}\x{11f00}-\x{11f01}\x{11f03}\x{11f34}-\x{11f3a}\x{11f3e}-\x{11f42}\x{11f5a})"
    R"(\x{13440}\x{13447}-\x{13455}\x{1611e}-\x{1612f}\x{1e08f}\x{1e4ec}-\x{1e4ef}\x{1e5ee}-\x{1e5ef})";
constexpr std::string_view kNewNd =
    R"(\x{10d40}-\x{10d49}\x{116d0}-\x{116e3}\x{11bf0}-\x{11bf9}\x{11f50}-\x{11f59}\x{16130}-\x{16139}\x{16d70}-\x{16d79})"
    R"(\x{1ccf0}-\x{1ccf9}\x{1e4f0}-\x{1e4f9}\x{1e5f1}-\x{1e5fa})";
constexpr std::string_view kNewNo = R"(\x{1d2c0}-\x{1d2d3})";
constexpr std::string_view kNewP =
    R"(\x{1b4e}-\x{1b4f}\x{1b7f}\x{10d6e}\x{113d4}-\x{113d5}\x{113d7}-\x{113d8}\x{11b00}-\x{11b09}\x{11be1}\x{11f43}-\x{11f4f})"
    R"(\x{16d6d}-\x{16d6f}\x{1e5ff})";
constexpr std::string_view kNewS =
    R"(\x{2427}-\x{2429}\x{2ffc}-\x{2fff}\x{31e4}-\x{31e5}\x{31ef}\x{10d8e}-\x{10d8f}\x{1cc00}-\x{1ccef}\x{1cd00}-\x{1ceb3}\x{1f6dc})"
    R"(\x{1f774}-\x{1f776}\x{1f77b}-\x{1f77f}\x{1f7d9}\x{1f8b2}-\x{1f8bb}\x{1f8c0}-\x{1f8c1}\x{1fa75}-\x{1fa77}\x{1fa87}-\x{1fa89})"
    R"(\x{1fa8f}\x{1faad}-\x{1faaf}\x{1fabb}-\x{1fabf}\x{1fac6}\x{1face}-\x{1facf}\x{1fada}-\x{1fadc}\x{1fadf}\x{1fae8}-\x{1fae9})"
    R"(\x{1faf7}-\x{1faf8}\x{1fbcb}-\x{1fbef})";
constexpr std::string_view kNewHan = R"(\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";

struct Property {
  std::string_view name;
  std::string_view pcre2;
  std::initializer_list<std::string_view> added;
};
const Property kProperties[] = {
    {R"(\p{L})", R"(\p{L})", {kNewLu, kNewLl, kNewLm, kNewLo}},
    {R"(\p{Lu})", R"(\p{Lu})", {kNewLu}},
    {R"(\p{Ll})", R"(\p{Ll})", {kNewLl}},
    {R"(\p{Lt})", R"(\p{Lt})", {}},
    {R"(\p{Lm})", R"(\p{Lm})", {kNewLm}},
    {R"(\p{Lo})", R"(\p{Lo})", {kNewLo}},
    {R"(\p{M})", R"(\p{M})", {kNewM}},
    {R"(\p{N})", R"(\p{N})", {kNewNd, kNewNo}},
    {R"(\p{P})", R"(\p{P})", {kNewP}},
    {R"(\p{S})", R"(\p{S})", {kNewS}},
    {R"(\p{Han})", R"(\p{sc:Han})", {kNewHan}},  // PCRE2's plain \p{Han} means script extensions
    {R"(\d)", R"(\p{Nd})", {kNewNd}},
    {R"(\s)", "", {kSpaceRanges}},
};

// Spells out the character classes, so that they mean the same in every PCRE2.
std::string Expand(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size();) {
    if (pattern.substr(i).starts_with(R"(\S)")) {
      out += "[^" + std::string(kSpaceRanges) + "]";
      i += 2;
      continue;
    }
    const Property* property = nullptr;
    for (const Property& candidate : kProperties) {
      if (pattern.substr(i).starts_with(candidate.name)) property = &candidate;
    }
    if (property != nullptr) {
      if (!in_class) out += '[';
      out += property->pcre2;
      for (const std::string_view ranges : property->added) out += ranges;
      if (!in_class) out += ']';
      i += property->name.size();
      continue;
    }
    if (pattern[i] == '\\' && i + 1 < pattern.size()) {
      out += pattern.substr(i, 2);
      i += 2;
      continue;
    }
    if (pattern[i] == '[') in_class = true;
    if (pattern[i] == ']') in_class = false;
    out += pattern[i++];
  }
  return out;
}

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};

// What one Run needs of PCRE2; a code is shared between threads, this is not.
struct MatchState {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStartBytes, kJitStackMaxBytes, nullptr);

  MatchState() {
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;
  ~MatchState() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

bool IsDigit(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND; }

bool IsNumber(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

// \w: letters, marks, decimal digits, letter numbers, connectors.
bool IsWord(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
  }
}

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// Collects the pieces of one range: Match() marks a match, the rest are gaps.
class Cutter {
 public:
  Cutter(uint32_t begin, uint32_t end, std::vector<Word>& out) : at_(begin), end_(end), out_(out) {}
  void Match(uint32_t begin, uint32_t end) {
    if (begin > at_) out_.push_back({at_, begin, true});
    if (end > begin) out_.push_back({begin, end, false});
    at_ = end;
  }
  void Finish() {
    if (end_ > at_) out_.push_back({at_, end_, true});
  }

 private:
  uint32_t at_;
  uint32_t end_;
  std::vector<Word>& out_;
};

void CutTrailingSpace(std::string_view text, const Word& range, Cutter& cut) {
  uint32_t begin = range.end;  // of the white space at the end of the range
  for (uint32_t i = range.begin; i < range.end;) {
    const CodePoint c = DecodeUtf8(text, i);
    if (!IsSpace(c.value)) {
      begin = range.end;
    } else if (begin == range.end) {
      begin = i;
    }
    i += c.length_bytes;
  }
  if (begin < range.end) cut.Match(begin, range.end);
}

void CutDigits(SplitKind kind, std::string_view text, const Word& range, Cutter& cut) {
  const auto in_run = kind == SplitKind::kNumbersByThree ? IsNumber : IsDigit;
  std::vector<uint32_t> starts;  // of each code point of the run, and its end
  for (uint32_t i = range.begin; i < range.end;) {
    CodePoint c = DecodeUtf8(text, i);
    if (!in_run(c.value)) {
      i += c.length_bytes;
      continue;
    }
    starts.clear();
    while (i < range.end) {
      c = DecodeUtf8(text, i);
      if (!in_run(c.value)) break;
      starts.push_back(i);
      i += c.length_bytes;
    }
    starts.push_back(i);
    if (kind == SplitKind::kDigitsByThreeWord && i < range.end && IsWord(c.value)) continue;
    const size_t count = starts.size() - 1;
    if (kind == SplitKind::kDigitsByThreeBefore) {
      for (size_t at = count % 3; at < count; at += 3) cut.Match(starts[at], starts[at]);
      continue;
    }
    for (size_t at = 0; at < count;) {
      const size_t next = at == 0 && count % 3 != 0 ? count % 3 : at + 3;
      cut.Match(starts[at], starts[next]);
      at = next;
    }
  }
}

}  // namespace

struct WordSplitter::Pass {
  SplitKind kind = SplitKind::kRegex;
  std::unique_ptr<pcre2_code, CodeDeleter> code;

  Status Cut(std::string_view text, const Word& range, MatchState& state, Cutter& cut) const;
};

WordSplitter::WordSplitter() = default;
WordSplitter::WordSplitter(WordSplitter&&) noexcept = default;
WordSplitter::~WordSplitter() = default;

Result<WordSplitter> WordSplitter::Compile(std::span<const Split> splits) {
  WordSplitter splitter;
  for (const Split& split : splits) {
    Pass pass;
    pass.kind = split.kind;
    if (split.kind == SplitKind::kRegex) {
      const std::string pattern = Expand(split.pattern);
      int error = 0;
      PCRE2_SIZE offset = 0;
      pass.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                    PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &error, &offset, nullptr));
      if (pass.code == nullptr) {
        return Fail(Code::kInternal, "a pre-tokenizer's regex does not compile")
            .Where(std::string(split.pattern))
            .Found("PCRE2 error " + std::to_string(error) + " at " + std::to_string(offset));
      }
      pcre2_jit_compile(pass.code.get(), PCRE2_JIT_COMPLETE);  // without JIT the interpreter gives the same matches
    }
    splitter.passes_.push_back(std::move(pass));
  }
  return splitter;
}

Status WordSplitter::Pass::Cut(std::string_view text, const Word& range, MatchState& state, Cutter& cut) const {
  switch (kind) {
    case SplitKind::kTrailingSpace: CutTrailingSpace(text, range, cut); return {};
    case SplitKind::kNumbersByThree:
    case SplitKind::kDigitsByThreeWord:
    case SplitKind::kDigitsByThreeBefore: CutDigits(kind, text, range, cut); return {};
    case SplitKind::kRegex: break;
  }
  // The range alone is the subject: a look-ahead at its end sees the end, as where each piece is a string of its own.
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data() + range.begin);
  const size_t size = range.end - range.begin;
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(state.data);
  for (size_t at = 0; at < size;) {
    int status = pcre2_match(code.get(), subject, size, at, PCRE2_NO_UTF_CHECK, state.data, state.context);
    if (status == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its backtracking points on the heap
      status = pcre2_match(code.get(), subject, size, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state.data, state.context);
    }
    if (status == PCRE2_ERROR_NOMATCH) break;
    if (status < 0) {
      return Fail(Code::kResourceExhausted, "the text is too intricate for the model's pre-tokenizer")
          .Where("byte " + std::to_string(range.begin + at))
          .Found("PCRE2 error " + std::to_string(status));
    }
    cut.Match(range.begin + static_cast<uint32_t>(found[0]), range.begin + static_cast<uint32_t>(found[1]));
    if (found[1] == size) break;
    at = found[1] > found[0] ? found[1] : found[1] + Utf8Length(subject[found[1]]);
  }
  return {};
}

Status WordSplitter::Run(std::string_view text, std::vector<Word>& words) const {
  words.assign(text.empty() ? 0 : 1, Word{0, static_cast<uint32_t>(text.size()), true});
  MatchState state;
  if (state.data == nullptr || state.context == nullptr)
    return Fail(Code::kResourceExhausted, "no memory to split the text");
  std::vector<Word> next;
  for (const Pass& pass : passes_) {
    next.clear();
    for (const Word& range : words) {
      Cutter cut(range.begin, range.end, next);
      RIDGE_RETURN_IF_ERROR(pass.Cut(text, range, state, cut));
      cut.Finish();
    }
    words.swap(next);
  }
  return {};
}

}  // namespace ridge::text
