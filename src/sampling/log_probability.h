// Log-probabilities of a row of logits, for `logprobs` answers, perplexity and KL divergence.
//
//   const double z = LogSumExp(logits);
//   double logprob = logits[id] - z;
//   std::vector<TokenLogProbability> top = TopLogProbabilities(logits, 5);
//
// Guarantees: natural logarithms, in double, summed in id order (base/math.h: same bits on every machine); NaN logits
// count as minus infinity. Call before Sampler::Sample, which changes the row. Thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/token_id.h"

namespace ridge::sampling {

struct TokenLogProbability {
  TokenId id = -1;
  double log_probability = 0.0;
};

// log of the sum of exp(logit); minus infinity when no logit is above it; +inf logits count as the largest float.
double LogSumExp(std::span<const float> logits);

// log softmax of one token; id must lie inside the row.
double LogProbability(std::span<const float> logits, TokenId id);

// The n most probable tokens, best first, lower id first among equals; fewer when fewer have a probability above 0.
std::vector<TokenLogProbability> TopLogProbabilities(std::span<const float> logits, size_t n);

// log softmax of the whole row. out: [vocab_size]
void LogSoftmax(std::span<const float> logits, std::span<double> out);

}  // namespace ridge::sampling
