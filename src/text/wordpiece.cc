#include "text/wordpiece.h"

#include <utf8proc.h>

#include <array>

#include "text/utf8.h"

namespace ridge::text {
namespace {

constexpr std::string_view kWordStart = "\xE2\x96\x81";  // U+2581 marks the first piece of a word in GGUF files
constexpr size_t kMaxWordCharacters = 100;               // max_input_chars_per_word

utf8proc_category_t Category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool IsSpace(char32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return true;
    default: return c == '\t' || c == '\n' || c == '\r';  // of the control characters only these; the others vanish
  }
}

bool IsRemoved(char32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS: return true;
    default: return c == 0xFFFD;
  }
}

bool IsPunctuation(char32_t c) {
  if ((c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~')) return true;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return true;
    default: return false;
  }
}

// The ranges of Hugging Face's BertNormalizer, which begins extension E at U+2B920.
bool IsChinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

class WordPiece final : public Tokenizer {
 public:
  WordPiece(BertNormalizer normalizer, std::unique_ptr<const Vocabulary> vocabulary)
      : Tokenizer(std::move(vocabulary)), normalizer_(normalizer) {}

 private:
  // White space and what is removed give no token, an unknown word of any length one.
  size_t MostTokenBytes() const override { return 0; }

  Status EncodeText(std::string_view utf8, bool, size_t most_ids, std::vector<TokenId>& ids) const override {
    std::string word;
    const auto flush = [&] {
      if (!word.empty()) EncodeWord(word, ids);
      word.clear();
    };
    for (size_t i = 0; i < utf8.size() && ids.size() <= most_ids;) {
      const CodePoint c = DecodeUtf8(utf8, i);
      i += c.length_bytes;
      if (IsSpace(c.value)) {
        flush();
        continue;
      }
      if (IsRemoved(c.value)) continue;
      std::array<utf8proc_int32_t, 32> decomposed{};  // the longest canonical decomposition has 4 code points
      utf8proc_ssize_t count = 1;
      decomposed[0] = static_cast<utf8proc_int32_t>(c.value);
      if (normalizer_.strip_accents) {
        count =
            utf8proc_decompose_char(decomposed[0], decomposed.data(), decomposed.size(), UTF8PROC_DECOMPOSE, nullptr);
      }
      const bool chinese = IsChinese(c.value);
      for (utf8proc_ssize_t k = 0; k < count; ++k) {
        const auto part = static_cast<char32_t>(decomposed[k]);
        if (normalizer_.strip_accents && Category(part) == UTF8PROC_CATEGORY_MN) continue;
        const auto lower = normalizer_.lowercase ? static_cast<char32_t>(utf8proc_tolower(decomposed[k])) : part;
        const bool alone = chinese || IsPunctuation(lower);
        if (alone) flush();
        AppendUtf8(lower, word);
        if (alone) flush();
      }
    }
    flush();
    return {};
  }

  void EncodeWord(std::string_view word, std::vector<TokenId>& ids) const {
    size_t characters = 0;
    for (const char c : word) characters += (c & 0xC0) != 0x80;
    const size_t before = ids.size();
    // A word-start mark in the text itself is a character that no vocabulary knows.
    bool known = characters <= kMaxWordCharacters && word.find(kWordStart) == word.npos;
    for (size_t begin = 0; known && begin < word.size();) {
      size_t end = word.size();
      std::optional<TokenId> id;
      for (;;) {
        id = vocabulary().Find(begin == 0 ? kWordStart : std::string_view(), word.substr(begin, end - begin));
        if (id && (vocabulary().attributes(*id) & (kControl | kUnknown)) != 0) id = std::nullopt;
        if (id) break;
        do --end;
        while (end > begin && (word[end] & 0xC0) == 0x80);  // back to the start of a code point
        if (end == begin) break;
      }
      if (id) ids.push_back(*id);
      known = id.has_value();
      begin = end;
    }
    if (known) return;
    ids.resize(before);
    if (vocabulary().unk) ids.push_back(*vocabulary().unk);
  }

  BertNormalizer normalizer_;
};

}  // namespace

std::unique_ptr<Tokenizer> MakeWordPiece(BertNormalizer normalizer, std::unique_ptr<const Vocabulary> vocabulary) {
  return std::make_unique<WordPiece>(normalizer, std::move(vocabulary));
}

}  // namespace ridge::text
