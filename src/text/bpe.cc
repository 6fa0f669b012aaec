#include "text/bpe.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <queue>
#include <string>

#include "text/merge_table.h"
#include "text/utf8.h"
#include "text/word_splitter.h"

namespace ridge::text {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // U+2581
constexpr char kMerges[] = "tokenizer.ggml.merges";

// Up to this many symbols, scanning for the best pair beats a heap.
constexpr size_t kScanLimit = 48;

// A stretch of the word that has become one symbol.
struct Part {
  Symbol symbol = kNoSymbol;
  uint32_t begin = 0;  // byte offsets in the text
  uint32_t end = 0;
};

class Bpe final : public Tokenizer {
 public:
  Bpe(const PreTokenizer& pre, bool lowercase, WordSplitter splitter, MergeTable merges,
      std::unique_ptr<const Vocabulary> vocabulary)
      : Tokenizer(std::move(vocabulary)),
        pre_(pre),
        lowercase_(lowercase),
        splitter_(std::move(splitter)),
        merges_(std::move(merges)) {
    for (size_t byte = 0; byte < 256; ++byte) {
      AppendUtf8(ByteToPrintable(static_cast<uint8_t>(byte)), printable_[byte]);
      byte_symbol_[byte] = merges_.FindSymbol(this->vocabulary(), printable_[byte]);
    }
  }

 private:
  struct Scratch {
    std::vector<Part> parts;
    std::vector<const Merge*> merges;
    std::string spelled;
  };

  size_t MostTokenBytes() const override {
    if (lowercase_ || pre_.drop_gaps) return 0;  // the text gets shorter before it is cut
    return pre_.byte_level ? vocabulary().max_piece_bytes() : vocabulary().max_text_bytes();
  }

  Status EncodeText(std::string_view utf8, bool, size_t most_ids, std::vector<TokenId>& ids) const override {
    std::string rewritten;
    if (pre_.metaspace || lowercase_) {
      rewritten = Rewrite(utf8);
      utf8 = rewritten;
    }
    std::vector<Word> words;
    RIDGE_RETURN_IF_ERROR(splitter_.Run(utf8, words));
    Scratch scratch;
    const auto start = static_cast<std::ptrdiff_t>(ids.size());
    for (const Word& word : words) {
      if (pre_.drop_gaps && word.gap) continue;
      EncodeWord(utf8, word, scratch, ids);
      if (ids.size() > most_ids) break;
    }
    const auto lost = std::find_if(ids.begin() + start, ids.end(), [](TokenId id) { return id < 0; });
    if (lost == ids.end()) return {};
    return Fail(Code::kInvalidArgument, "the vocabulary has no token for a byte of the text, and none for the unknown")
        .Found("byte " + std::to_string(-1 - *lost))
        .Remedy("the file's vocabulary is incomplete: use another file, or leave the character out");
  }

  std::string Rewrite(std::string_view utf8) const {
    std::string out;
    out.reserve(utf8.size() + utf8.size() / 2);
    for (size_t i = 0; i < utf8.size();) {
      const CodePoint c = DecodeUtf8(utf8, i);
      if (pre_.metaspace && c.value == ' ') {
        out += kMetaspace;
      } else {
        AppendUtf8(
            lowercase_ ? static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.value))) : c.value,
            out);
      }
      i += c.length_bytes;
    }
    return out;
  }

  void EncodeWord(std::string_view text, const Word& word, Scratch& scratch, std::vector<TokenId>& ids) const {
    const std::string_view bytes = text.substr(word.begin, word.end - word.begin);
    if (pre_.ignore_merges || (pre_.newline_runs && bytes[0] == '\n')) {
      if (const auto id = FindWhole(bytes, scratch)) {
        ids.push_back(*id);
        return;
      }
    }
    std::vector<Part>& parts = scratch.parts;
    parts.clear();
    for (uint32_t i = word.begin; i < word.end;) {
      if (pre_.byte_level) {
        parts.push_back({byte_symbol_[static_cast<unsigned char>(text[i])], i, i + 1});
      } else {
        const auto length = static_cast<uint32_t>(Utf8Length(static_cast<unsigned char>(text[i])));
        parts.push_back({merges_.FindSymbol(vocabulary(), text.substr(i, length)), i, i + length});
      }
      i = parts.back().end;
    }
    if (parts.size() <= kScanLimit) {
      MergeByScan(scratch);
    } else {
      MergeByHeap(parts);
    }
    for (const Part& part : parts) Emit(text, part, ids);
  }

  // The token that is the whole word; never a control token, which only Encode itself may recognize.
  std::optional<TokenId> FindWhole(std::string_view bytes, Scratch& scratch) const {
    if (bytes.size() > vocabulary().max_text_bytes()) return std::nullopt;
    if (pre_.byte_level) {
      scratch.spelled.clear();
      for (const char c : bytes) scratch.spelled += printable_[static_cast<unsigned char>(c)];
      bytes = scratch.spelled;
    }
    const auto id = vocabulary().Find(bytes);
    return id && Emittable(*id) ? id : std::nullopt;
  }

  void MergeByScan(Scratch& scratch) const {
    std::vector<Part>& parts = scratch.parts;
    std::vector<const Merge*>& merges = scratch.merges;  // [parts - 1] of each part with its right neighbour
    merges.clear();
    for (size_t i = 0; i + 1 < parts.size(); ++i) merges.push_back(merges_.Find(parts[i].symbol, parts[i + 1].symbol));
    for (;;) {
      size_t best = merges.size();
      for (size_t i = 0; i < merges.size(); ++i) {
        if (merges[i] != nullptr && (best == merges.size() || merges[i]->rank < merges[best]->rank)) best = i;
      }
      if (best == merges.size()) return;
      parts[best].symbol = merges[best]->result;
      parts[best].end = parts[best + 1].end;
      parts.erase(parts.begin() + static_cast<ptrdiff_t>(best) + 1);
      merges.erase(merges.begin() + static_cast<ptrdiff_t>(best));
      if (best > 0) merges[best - 1] = merges_.Find(parts[best - 1].symbol, parts[best].symbol);
      if (best < merges.size()) merges[best] = merges_.Find(parts[best].symbol, parts[best + 1].symbol);
    }
  }

  void MergeByHeap(std::vector<Part>& parts) const {
    struct Candidate {
      uint32_t rank;
      uint32_t left;  // index of the left part
      Symbol left_symbol;
      Symbol right_symbol;
      Symbol result;
      bool operator>(const Candidate& other) const {
        return rank != other.rank ? rank > other.rank : left > other.left;
      }
    };
    const auto count = static_cast<uint32_t>(parts.size());
    std::vector<uint32_t> next(count);
    std::vector<uint32_t> previous(count);
    std::vector<bool> merged(count);  // into its left neighbour
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap;
    const auto add = [&](uint32_t left, uint32_t right) {
      if (const Merge* merge = merges_.Find(parts[left].symbol, parts[right].symbol)) {
        heap.push({merge->rank, left, parts[left].symbol, parts[right].symbol, merge->result});
      }
    };
    for (uint32_t i = 0; i < count; ++i) {
      next[i] = i + 1;
      previous[i] = i - 1;
      if (i > 0) add(i - 1, i);
    }
    while (!heap.empty()) {
      const Candidate top = heap.top();
      heap.pop();
      const uint32_t left = top.left;
      if (merged[left] || parts[left].symbol != top.left_symbol) continue;  // a neighbour has changed since
      const uint32_t right = next[left];
      if (right >= count || parts[right].symbol != top.right_symbol) continue;
      parts[left].symbol = top.result;
      parts[left].end = parts[right].end;
      merged[right] = true;
      next[left] = next[right];
      if (next[left] < count) previous[next[left]] = left;
      if (left > 0) add(previous[left], left);
      if (next[left] < count) add(left, next[left]);
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i = next[i]) parts[kept++] = parts[i];
    parts.resize(kept);
  }

  bool Emittable(TokenId id) const { return (vocabulary().attributes(id) & (kControl | kUnknown)) == 0; }

  void Emit(std::string_view text, const Part& part, std::vector<TokenId>& ids) const {
    if (vocabulary().Has(part.symbol) && Emittable(part.symbol)) {
      ids.push_back(part.symbol);
      return;
    }
    for (uint32_t i = part.begin; i < part.end; ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      const std::optional<TokenId> id =
          pre_.byte_level ? vocabulary().Find(printable_[byte]) : vocabulary().FindByte(byte);
      if (id && Emittable(*id)) {
        ids.push_back(*id);
      } else {
        ids.push_back(vocabulary().unk.value_or(-1 - static_cast<TokenId>(byte)));  // EncodeText names what was lost
      }
    }
  }

  const PreTokenizer& pre_;  // of the static table
  bool lowercase_;
  WordSplitter splitter_;
  MergeTable merges_;
  std::array<std::string, 256> printable_;
  std::array<Symbol, 256> byte_symbol_{};
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> MakeBpe(const gguf::Metadata& metadata, const PreTokenizer& pre, bool lowercase,
                                           std::unique_ptr<const Vocabulary> vocabulary) {
  RIDGE_ASSIGN_OR_RETURN(WordSplitter splitter, WordSplitter::Compile(pre.splits));
  static const std::vector<std::string> kNone;
  const std::vector<std::string>* lines = &kNone;
  // Kimi K2's files may leave the merges out; such a vocabulary encodes byte by byte, as in llama.cpp.
  if (metadata.Find(kMerges) != nullptr || pre.name != "kimi-k2") {
    RIDGE_ASSIGN_OR_RETURN(lines, metadata.Strings(kMerges));
  }
  RIDGE_ASSIGN_OR_RETURN(MergeTable merges, MergeTable::Build(*lines, *vocabulary));
  return std::make_unique<Bpe>(pre, lowercase, std::move(splitter), std::move(merges), std::move(vocabulary));
}

}  // namespace ridge::text
