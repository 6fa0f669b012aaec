#include "engine/step_costs.h"

#include <algorithm>
#include <cmath>

namespace ridge::engine {

// What one more token adds to a step that reads all weights anyway, until it was measured.
constexpr double kGuessPerToken = 0.04;

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
  const int64_t most = static_cast<int64_t>(decode_ms_.size()) - 1;
  const auto at = [&](int64_t i) -> const Mean& { return decode_ms_[static_cast<size_t>(i)]; };
  n = std::clamp<int64_t>(n, 1, most);
  int64_t below = n, above = n;
  while (below >= 1 && at(below).samples == 0) below--;
  while (above <= most && at(above).samples == 0) above++;
  if (below < 1) return above > most ? std::nullopt : std::optional(at(above).value);
  if (above > most) return at(below).value * (1 + kGuessPerToken * static_cast<double>(n - below));
  if (below == above) return at(n).value;
  const double part = static_cast<double>(n - below) / static_cast<double>(above - below);
  return at(below).value + part * (at(above).value - at(below).value);
}

double StepCosts::PromptMs(int64_t n, int64_t prompts, double alone, double token_ms) {
  const double p = static_cast<double>(prompts), d = static_cast<double>(n);
  const double claim = std::max(kMostStretch, std::min(1 + p / d, kCrowdStretch)) - 1;
  const double full = std::min(std::min(p, kCrowdStretch - 1) * alone, (static_cast<double>(kFullRows) - d) * token_ms);
  return std::max(claim * alone, full);
}

double StepCosts::BusyPromptTokenMs(int64_t decode_tokens, int64_t prompts) const {
  const Mean& mean = lone_token_ms_.samples > 0 ? lone_token_ms_ : prompt_token_ms_;
  const std::optional<double> alone = DecodeMs(decode_tokens);
  if (decode_tokens == 0 || prompt_token_ms_.samples == 0 || !alone) return mean.value;
  return prompt_token_ms_.value * (1 + *alone / PromptMs(decode_tokens, prompts, *alone, prompt_token_ms_.value));
}

int64_t StepCosts::PromptTokens(int64_t decode_tokens, int64_t most, int64_t prompts) {
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
  const double room = PromptMs(decode_tokens, prompts, *alone, per_token);
  double tokens = room / per_token;
  // The first tokens may be cheap, where reading the weights takes longer than computing: what comes on top is judged by what it cost.
  const double last = static_cast<double>(last_.prompt_tokens);
  if (last_.decode_tokens == decode_tokens && tokens > last && growth_ms_.value > per_token)
    tokens = last + std::max(0.0, room - last * per_token) / growth_ms_.value;
  const int64_t rows = decode_tokens + static_cast<int64_t>(std::clamp(tokens, 1.0, 1e9)),
                whole = rows / kTileRows * kTileRows;
  return std::min(most, (whole > decode_tokens ? whole : rows) - decode_tokens);
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
  const double more = n - static_cast<double>(last_.prompt_tokens);
  if (last_.decode_tokens == shape.decode_tokens && std::abs(more) >= kTileRows && prompt_token_ms_.samples > 0)
    growth_ms_.Add(std::clamp((ms - last_ms_) / more, 0.0, 4 * prompt_token_ms_.value));
  last_ = shape;
  last_ms_ = ms;
  if (const std::optional<double> alone = DecodeMs(shape.decode_tokens))
    prompt_token_ms_.Add(std::max(ms - *alone, 0.02 * ms) / n);
}

}  // namespace ridge::engine
