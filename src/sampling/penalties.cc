#include "sampling/penalties.h"

#include <algorithm>
#include <limits>

namespace ridge::sampling {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();
constexpr double kLargest = std::numeric_limits<float>::max();

float FiniteLogit(double value) { return static_cast<float>(std::clamp(value, -kLargest, kLargest)); }

}  // namespace

void AddToLogit(float& logit, double change) {
  if (logit > kBanned) logit = change == kBanned ? kBanned : FiniteLogit(logit + change);
}

void ApplyBias(std::span<const LogitBias> bias, std::span<float> logits) {
  for (const LogitBias& b : bias) {
    if (static_cast<size_t>(b.id) < logits.size()) AddToLogit(logits[b.id], b.bias);
  }
}

void ApplyMask(std::span<const uint32_t> allowed, std::span<float> logits) {
  const size_t size = logits.size();
  for (size_t word = 0; word * 32 < size; ++word) {
    const uint32_t bits = word < allowed.size() ? allowed[word] : 0;
    if (bits == 0xffffffff) continue;
    const size_t begin = word * 32;
    const size_t end = begin + 32 < size ? begin + 32 : size;
    for (size_t i = begin; i < end; ++i) {
      if ((bits >> (i - begin) & 1) == 0) logits[i] = kBanned;
    }
  }
}

std::span<const TokenId> Window(std::span<const TokenId> history, int32_t last_n) {
  const size_t n = last_n < 0 ? history.size() : static_cast<size_t>(last_n);
  return n < history.size() ? history.last(n) : history;
}

void Penalties::Apply(const SamplingParams& params, std::span<const TokenId> history, std::span<float> logits) {
  const double repeat = params.repeat_penalty;
  if (repeat == 1.0 && params.presence_penalty == 0.0 && params.frequency_penalty == 0.0) return;
  const std::span<const TokenId> window = Window(history, params.repeat_last_n);
  if (window.empty()) return;
  if (counts_.size() != logits.size()) counts_.assign(logits.size(), 0);
  for (const TokenId id : window) {
    if (static_cast<size_t>(id) < counts_.size()) ++counts_[id];
  }
  for (const TokenId id : window) {
    if (static_cast<size_t>(id) >= counts_.size() || counts_[id] == 0) continue;
    const double count = counts_[id];
    counts_[id] = 0;  // each distinct token once, and the table is clean again
    if (!(logits[id] > kBanned)) continue;
    const double logit = std::min<double>(logits[id], kLargest);
    const double scaled = logit > 0.0 ? logit / repeat : logit * repeat;
    logits[id] = FiniteLogit(scaled - (count * params.frequency_penalty + params.presence_penalty));
  }
}

}  // namespace ridge::sampling
