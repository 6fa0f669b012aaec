// DRY ("don't repeat yourself"): lowers the logit of every token that would lengthen a repetition of earlier text.
//
//   Dry dry(params, vocab_size);
//   dry.Apply(params, history, logits);
//
// Source: p-e-w's proposal (text-generation-webui pull request 5677), in llama.cpp's reading: a token that continues a
// repeat of length n >= allowed_length costs multiplier * base^(n - allowed_length); repeats never cross a sequence
// breaker, and a token that is itself a breaker costs nothing.
// Guarantees: linear in the window; ids outside the vocabulary are harmless; no allocation once scratch has grown.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/token_id.h"
#include "sampling/params.h"

namespace ridge::sampling {

class Dry {
 public:
  Dry() = default;
  Dry(const SamplingParams& params, int32_t vocab_size);

  void Apply(const SamplingParams& params, std::span<const TokenId> history, std::span<float> logits);

 private:
  // Tokens at the end of the window that come after the last breaker: no repeat is counted longer than this.
  size_t TokensAfterBreaker(std::span<const TokenId> window) const;
  bool IsBreaker(TokenId id) const { return static_cast<size_t>(id) < single_.size() && single_[id]; }

  std::vector<bool> single_;                           // [vocab_size]: one-token breakers; empty when there are none
  std::vector<std::vector<TokenId>> longer_;           // breakers of two tokens and more
  std::vector<uint32_t> match_;                        // [window]: scratch of the Z algorithm
  std::vector<std::pair<TokenId, uint32_t>> repeats_;  // scratch: token that would lengthen a repeat, its length
};

// The breakers as token sequences, for SamplingParams::dry_sequence_breakers: every token whose text contains one of
// `texts`, and every token that ends in the beginning of one, followed by the encoding of its remainder.
//   piece:  the text of a token ("" for control tokens)
//   encode: the token ids of a text, without special tokens
std::vector<std::vector<TokenId>> DryBreakers(std::span<const std::string> texts, int32_t vocab_size,
                                              const std::function<std::string_view(TokenId)>& piece,
                                              const std::function<std::vector<TokenId>(std::string_view)>& encode);

// llama.cpp's default breakers: newline, colon, quotation mark, asterisk.
std::span<const std::string> DefaultDryBreakers();

}  // namespace ridge::sampling
