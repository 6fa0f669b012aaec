#include "sampling/log_probability.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/math.h"
#include "base/result.h"
#include "sampling/candidates.h"

namespace ridge::sampling {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

double Value(float logit) { return logit > kLowest ? std::min(logit, kLargest) : kLowest; }

}  // namespace

double LogSumExp(std::span<const float> logits) {
  const Best best = Argmax(logits);
  if (best.id < 0) return kLowest;
  const double highest = Value(logits[best.id]);
  double sum = 0.0;
  std::array<double, 256> block = {};
  for (size_t begin = 0; begin < logits.size(); begin += block.size()) {
    const std::span<double> values(block.data(), std::min(block.size(), logits.size() - begin));
    for (size_t i = 0; i < values.size(); ++i) values[i] = Value(logits[begin + i]) - highest;
    ExpEach(values);
    for (const double value : values) sum += value;
  }
  return highest + Log(sum);
}

double LogProbability(std::span<const float> logits, TokenId id) {
  RIDGE_CHECK(static_cast<size_t>(id) < logits.size());
  const double value = Value(logits[id]);
  return value == kLowest ? kLowest : value - LogSumExp(logits);
}

std::vector<TokenLogProbability> TopLogProbabilities(std::span<const float> logits, size_t n) {
  std::vector<TokenLogProbability> top;
  if (n == 0) return top;
  const double sum = LogSumExp(logits);
  Candidates candidates;
  candidates.FillTopK(logits, std::min(n, logits.size()));
  for (const Candidate& c : candidates.items()) top.push_back({c.id, c.logit - sum});
  return top;
}

void LogSoftmax(std::span<const float> logits, std::span<double> out) {
  RIDGE_CHECK(out.size() == logits.size());
  const double sum = LogSumExp(logits);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double value = Value(logits[i]);
    out[i] = value == kLowest ? kLowest : value - sum;
  }
}

}  // namespace ridge::sampling
