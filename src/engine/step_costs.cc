#include "engine/step_costs.h"

#include <algorithm>
#include <cmath>

namespace ridge::engine {

// A mean that forgets. One step that the system held up changes it by little.
void StepCosts::Mean::Add(double sample) {
  if (samples++ == 0) {
    value = sample;
    return;
  }
  if (samples > 3) sample = std::clamp(sample, value / 1.5, value * 1.5);
  value += (sample - value) / static_cast<double>(std::min<int64_t>(samples, 8));
}

StepCosts::StepCosts(int64_t max_decode_tokens) : decode_ms_(static_cast<size_t>(max_decode_tokens) + 1) {}

std::optional<double> StepCosts::DecodeMs(int64_t n) const {
  // The nearest number of tokens that was seen, the smaller one first: it costs no more.
  const int64_t most = static_cast<int64_t>(decode_ms_.size()) - 1;
  n = std::min(n, most);
  for (int64_t away = 0; away <= most; away++) {
    for (const int64_t at : {n - away, n + away}) {
      if (at >= 1 && at <= most && decode_ms_[static_cast<size_t>(at)].samples > 0)
        return decode_ms_[static_cast<size_t>(at)].value;
    }
  }
  return std::nullopt;
}

int64_t StepCosts::PromptTokens(int64_t decode_tokens, int64_t most) {
  if (decode_tokens == 0 || most <= 0 || !measured_) return most;
  const std::optional<double> alone = DecodeMs(decode_tokens);
  if ((!alone || since_decode_ >= kStaleSteps) && !probing_) {
    probing_ = true;
    return 0;
  }
  probing_ = false;
  if (!alone) return most;
  const double per_token = prompt_token_ms_.samples > 0 ? prompt_token_ms_.value
                           : lone_token_ms_.samples > 0 ? lone_token_ms_.value
                                                        : *alone / 8;
  const double tokens = (kMostStretch - 1) * *alone / per_token;
  return std::min(most, std::max<int64_t>(1, static_cast<int64_t>(std::min(tokens, 1e9))));
}

void StepCosts::Observe(const StepShape& shape, double ms) {
  if (!(ms > 0)) return;
  measured_ = true;
  if (shape.prompt_tokens == 0) {
    if (shape.decode_tokens == 0) return;
    const size_t n = std::min(static_cast<size_t>(shape.decode_tokens), decode_ms_.size() - 1);
    decode_ms_[n].Add(ms);
    since_decode_ = 0;
    return;
  }
  const double n = static_cast<double>(shape.prompt_tokens);
  if (shape.decode_tokens == 0) {
    lone_token_ms_.Add(ms / n);
    return;
  }
  since_decode_++;
  if (const std::optional<double> alone = DecodeMs(shape.decode_tokens))
    prompt_token_ms_.Add(std::max(ms - *alone, 0.02 * ms) / n);
}

}  // namespace ridge::engine
