#include "engine/forecast.h"

#include <algorithm>

namespace ridge::engine {

std::optional<Forecast> Predict(const Load& load, const Ahead& ahead, int64_t prompt_tokens) {
  if (load.prompt_token_ms <= 0) return std::nullopt;
  const double per_token = load.prompt_token_ms * (1 - load.cached_share);
  const double prompts_ms = static_cast<double>(load.prompt_tokens) * load.prompt_token_ms +
                            static_cast<double>(ahead.prompt_tokens) * per_token;
  // Who needs the k-th place that becomes free waits for k answers; when there are more before it than run, for whole answers besides.
  double place_ms = 0;
  const auto running = static_cast<int64_t>(load.left_tokens.size());
  const int64_t places = ahead.sequences + 1 - (load.max_running - running);
  if (places > 0 && running > 0) {
    std::vector<int64_t> left = load.left_tokens;
    std::ranges::sort(left);
    const double rounds = static_cast<double>((places - 1) / running);
    const double answer = load.mean_answer_tokens > 0 ? load.mean_answer_tokens : static_cast<double>(left.back());
    place_ms =
        load.decode_ms * (static_cast<double>(left[static_cast<size_t>((places - 1) % running)]) + rounds * answer);
  }
  const double begin_ms = std::max(prompts_ms, place_ms);
  return Forecast{.begin_ms = begin_ms,
                  .ttft_ms = begin_ms + std::max(1.0, static_cast<double>(prompt_tokens) * (1 - load.cached_share)) *
                                            load.prompt_token_ms};
}

}  // namespace ridge::engine
