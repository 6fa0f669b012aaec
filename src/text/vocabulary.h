// The tokens of a GGUF file: texts, pieces, scores, types and the special ids, with the lookups that the tokenizers
// need.
//
//   RIDGE_ASSIGN_OR_RETURN(auto vocabulary, Vocabulary::FromMetadata(metadata, {.spelling = Spelling::kByteLevel}));
//   std::optional<TokenId> id = vocabulary->Find("Ġthe");
//
// Guarantees: owns its strings; immutable, thread-safe. A text that occurs twice belongs to its first id. Memory is
// linear in the file's arrays.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/gguf.h"
#include "text/tokenizer.h"

namespace ridge::text {

// How a token's text in the file stands for bytes.
enum class Spelling {
  kByteLevel,  // GPT-2's printable stand-ins, one per byte
  kMetaspace,  // U+2581 for a space, <0xNN> for a byte
};

// tokenizer.ggml.token_type, as bits: a token that is end-of-generation by its text is also control, whatever the file
// says.
enum TokenAttribute : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 4,
  kUserDefined = 8,
  kUnused = 16,
  kByte = 32,
  kStripLeft = 64,    // white space before the token in a text belongs to it
  kStripRight = 128,  // ... after it
};

class Vocabulary {
 public:
  // What the tokenizer's model and pre-tokenizer imply where the file says nothing.
  struct Defaults {
    Spelling spelling = Spelling::kByteLevel;
    std::optional<TokenId> bos, eos, unk, sep, pad, mask;  // taken only when inside the vocabulary
    bool add_bos = false;
    bool add_eos = false;
    bool force_add_bos = false;         // whatever the file says
    bool sep_is_suffix = false;         // SEP closes the text instead of EOS, and both ends are always added (BERT)
    bool may_add_space_prefix = false;  // the file says whether, yes when it says nothing; others never do
  };

  static Result<std::unique_ptr<Vocabulary>> FromMetadata(const gguf::Metadata& metadata, const Defaults& defaults);

  size_t size() const { return attributes_.size(); }
  bool Has(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < size(); }
  std::string_view Text(TokenId id) const { return Slice(text_, text_end_, id); }
  bool TextIs(TokenId id, std::string_view left, std::string_view right) const {
    const std::string_view text = Text(id);
    return text.size() == left.size() + right.size() && text.starts_with(left) && text.ends_with(right);
  }
  std::string_view Piece(TokenId id) const { return Slice(piece_, piece_end_, id); }
  uint8_t attributes(TokenId id) const { return attributes_[id]; }
  float score(TokenId id) const { return scores_.empty() ? 0.0f : scores_[id]; }
  bool IsEog(TokenId id) const { return eog_.contains(id); }
  size_t max_text_bytes() const { return max_text_bytes_; }
  size_t max_piece_bytes() const { return max_piece_bytes_; }  // or of the text, of tokens that a text may spell
  bool strips() const { return strips_; }                      // a special token takes white space beside it
  bool unique_texts() const { return unique_texts_; }

  std::optional<TokenId> Find(std::string_view text) const { return Find(text, {}); }
  // The token whose text is the two parts joined.
  std::optional<TokenId> Find(std::string_view left, std::string_view right) const;
  // The token <0xNN>, or else the token that is just this byte; never a control token.
  std::optional<TokenId> FindByte(uint8_t byte) const;

  // The special token that starts at text[offset], the longest of several. `control`: also control and unknown tokens,
  // not only user-defined ones.
  std::optional<TokenId> MatchSpecial(std::string_view text, size_t offset, bool control) const;

  std::optional<TokenId> bos, eos, eot, eom, unk, sep, pad, mask;
  std::optional<TokenId> prefix, suffix;  // what Encode adds at the ends
  bool add_space_prefix = false;
  bool remove_extra_whitespaces = false;

 private:
  // Special tokens sorted by text, with the range of each first byte.
  struct SpecialIndex {
    std::vector<TokenId> ids;
    std::array<uint32_t, 257> first{};
  };

  static std::string_view Slice(const std::string& arena, const std::vector<uint32_t>& ends, TokenId id) {
    const uint32_t begin = id == 0 ? 0 : ends[id - 1];
    return {arena.data() + begin, ends[id] - begin};
  }

  Status ReadTokens(const gguf::Metadata& metadata);
  Status ReadSpecialIds(const gguf::Metadata& metadata, const Defaults& defaults);
  // The token of this name, if it is a marker; it becomes a control token.
  std::optional<TokenId> FindMarker(std::string_view name);
  void MarkEndTokens();
  Status MarkStripping(const gguf::Metadata& metadata);
  void BuildPieces(Spelling spelling);
  void BuildHash();
  SpecialIndex BuildSpecialIndex(uint8_t attributes) const;

  std::string text_;                // all token texts, one after another
  std::vector<uint32_t> text_end_;  // [size]
  std::string piece_;
  std::vector<uint32_t> piece_end_;
  std::vector<float> scores_;        // [size] or empty
  std::vector<uint8_t> attributes_;  // [size], bits of TokenAttribute
  std::set<TokenId> eog_;
  size_t max_text_bytes_ = 0, max_piece_bytes_ = 0;
  bool strips_ = false;
  bool unique_texts_ = true;

  struct Slot {
    uint32_t hash = 0;
    TokenId id = -1;
  };
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  SpecialIndex user_defined_;
  SpecialIndex special_;
};

}  // namespace ridge::text
