// Edits of a whole row of logits that touch single tokens: bias, mask, and the repetition, presence and frequency
// penalties.
//
//   ApplyBias(params.logit_bias, logits);
//   penalties.Apply(params, history, logits);
//
// Guarantees: token ids outside the row are passed over, never written. Cost is that of the bias list, the mask or the
// window of history, not of the vocabulary.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "sampling/params.h"

namespace ridge::sampling {

// logit + change, kept finite: however large, no finite penalty bans a token outright, so that a mask which leaves only
// penalized tokens still has an answer. A change of minus infinity does ban; banned and NaN logits stay as they are.
void AddToLogit(float& logit, double change);

void ApplyBias(std::span<const LogitBias> bias, std::span<float> logits);

// allowed: bit i % 32 of word i / 32 for token i; tokens without the bit get minus infinity.
void ApplyMask(std::span<const uint32_t> allowed, std::span<float> logits);

// The newest `last_n` tokens; -1: all.
std::span<const TokenId> Window(std::span<const TokenId> history, int32_t last_n);

class Penalties {
 public:
  // For each distinct token in the window that occurs c times:
  //   logit <- (logit > 0 ? logit / repeat : logit * repeat) - c * frequency - presence
  void Apply(const SamplingParams& params, std::span<const TokenId> history, std::span<float> logits);

 private:
  std::vector<uint32_t> counts_;  // [vocab_size], all zero between calls; empty until penalties are used
};

}  // namespace ridge::sampling
