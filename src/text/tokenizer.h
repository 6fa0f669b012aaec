// Text to token ids and back, for the vocabularies that GGUF files carry: BPE with its pre-tokenizers, SentencePiece,
// WordPiece.
//
//   RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<text::Tokenizer> tokenizer, text::Tokenizer::FromMetadata(file.metadata()));
//   RIDGE_ASSIGN_OR_RETURN(std::vector<text::TokenId> ids, tokenizer->Encode("Hello", {.add_special = true}));
//
// Guarantees: any bytes encode (each maximal sequence that is not UTF-8 is read as one U+FFFD); with parse_special =
// false no control token comes out of the text, whatever it spells; time is O(n log n) in the length of the text.
// Immutable after construction, thread-safe, and independent of the metadata it was made from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"

namespace ridge::gguf {
class Metadata;
}

namespace ridge::text {

using ridge::TokenId;
class Vocabulary;

struct EncodeOptions {
  bool add_special = true;  // the tokens that the model wants at both ends (BOS, EOS, CLS, SEP)
  bool parse_special =
      false;  // text that spells a control token becomes that token: for rendered templates, never for user text
  // Ascending byte offsets of a valid UTF-8 text at which, in spite of parse_special, no control token begins: where a
  // user's words inside a rendered template spell one (see FindControl).
  std::span<const size_t> plain_at = {};
  // What the caller has room for. Of a text of more than kCountedBytes only so many tokens are looked for: with more it
  // is refused as soon as that is certain, by its length alone where a token covers only so many bytes, else on the way.
  // A shorter text is counted to its end.
  size_t most_tokens = SIZE_MAX;
};

inline constexpr size_t kCountedBytes = 256 << 10;

class Tokenizer {
 public:
  // Errors: kNotFound (a key is missing), kInvalidData (a key of a wrong type, length or value), kUnsupported (a
  // tokenizer.ggml.model or tokenizer.ggml.pre that this build does not know); each names the key.
  static Result<std::unique_ptr<Tokenizer>> FromMetadata(const gguf::Metadata& metadata);

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer();

  // Errors: kOutOfRange for a text of 1 GiB or more, and for one that has more than most_tokens ("at least 5000 tokens"),
  // kResourceExhausted when a pre-tokenizer's regex runs out of its
  // limits.
  Result<std::vector<TokenId>> Encode(std::string_view utf8, EncodeOptions options) const;

  // Byte offsets at which the text spells a control token, overlapping ones too, ascending.
  std::vector<size_t> FindControl(std::string_view utf8) const;

  // The text of a whole sequence; `special` also prints control tokens. May hold or end in broken UTF-8 where the
  // tokens do. Where the encoding put a space before the text (SentencePiece), it is taken off again. An id outside the
  // vocabulary prints nothing.
  std::string Decode(std::span<const TokenId> ids, bool special) const;

  // Raw bytes of one token inside a text, perhaps part of a code point; of a control token its name. Empty for an id
  // outside the vocabulary.
  std::string_view Piece(TokenId id) const;

  // Tokens that a text of so many bytes has at least.
  size_t LeastTokens(size_t bytes) const;

  size_t vocab_size() const;
  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  std::optional<TokenId> eot() const;  // end of turn
  std::optional<TokenId> eom() const;  // end of message
  std::optional<TokenId> unk() const;
  std::optional<TokenId> sep() const;
  std::optional<TokenId> pad() const;
  std::optional<TokenId> mask() const;
  bool add_bos() const;  // Encode with add_special puts BOS (CLS) first
  bool add_eos() const;  // ... and EOS (SEP) last
  // Ends generation: eos, eot, eom and the well-known end tokens ("<|im_end|>", "<end_of_turn>", ...).
  bool IsEog(TokenId id) const;
  bool IsControl(TokenId id) const;  // also true for the unknown token: Decode hides both
  // The token with exactly this text as the file spells it ("<|im_end|>", "Ġthe").
  std::optional<TokenId> Find(std::string_view text) const;

 protected:
  explicit Tokenizer(std::unique_ptr<const Vocabulary> vocabulary);
  const Vocabulary& vocabulary() const { return *vocabulary_; }

 private:
  // Appends the ids of a text without special tokens, valid UTF-8. `after_special`: the text starts the input or
  // follows a special token. May stop once there are more than most_ids ids.
  virtual Status EncodeText(std::string_view utf8, bool after_special, size_t most_ids,
                            std::vector<TokenId>& ids) const = 0;
  // Bytes of text that a token stands for at most; 0: there is no such number.
  virtual size_t MostTokenBytes() const = 0;

  std::unique_ptr<const Vocabulary> vocabulary_;
};

}  // namespace ridge::text
