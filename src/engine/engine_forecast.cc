// What the engine tells about waiting: forecasts, and requests that would come too late.
#include <cmath>
#include <new>
#include <utility>

#include "engine/engine.h"

namespace ridge::engine {

void Engine::PublishLoad() {
  try {
    Load load = scheduler_.CurrentLoad(mean_answer_tokens_);
    load.cached_share = cached_share_;
    const std::lock_guard lock(stats_mutex_);
    load_ = std::move(load);
  } catch (const std::bad_alloc&) {  // forecasts stay those of the step before
  }
}

void Engine::LeaveWaiting(const Sequence& sequence) {
  const std::lock_guard lock(mutex_);
  not_begun_--;
  Ahead& waiting = waiting_[sequence.priority];
  waiting.prompt_tokens -= sequence.prompt_tokens;
  if (--waiting.sequences == 0) waiting_.erase(sequence.priority);
}

std::optional<Forecast> Engine::Predict(int32_t priority, int64_t prompt_tokens) const {
  Load load;
  {
    const std::lock_guard lock(stats_mutex_);
    load = load_;
  }
  Ahead ahead;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [other, waiting] : waiting_) {
      if (other < priority) break;
      ahead.sequences += waiting.sequences;
      ahead.prompt_tokens += waiting.prompt_tokens;
    }
  }
  return engine::Predict(load, ahead, prompt_tokens);
}

// What could not begin in time is told at once, so that the client can go elsewhere.
Status Engine::CheckDeadline(const Request& request, const std::optional<Forecast>& forecast) const {
  if (!request.deadline || !forecast) return {};
  const double left_ms = std::chrono::duration<double, std::milli>(*request.deadline - Clock::now()).count();
  if (forecast->begin_ms <= left_ms) return {};
  const auto seconds = [](double ms) { return std::to_string(std::lround(ms) / 1000.0).substr(0, 5); };
  return Fail(Code::kUnavailable, "the request would not begin before its deadline")
      .Found("it would begin in " + seconds(forecast->begin_ms) + " s, with its first token in " +
             seconds(forecast->ttft_ms) + " s")
      .Expected("a begin within " + seconds(left_ms) + " s")
      .Remedy("try again later");
}

}  // namespace ridge::engine
