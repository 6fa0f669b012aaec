// When a request that comes now would begin and give its first token, from what runs, what waits and what steps have cost.
//
//   const Load load = scheduler.CurrentLoad();
//   if (auto forecast = Predict(load, {.sequences = 3, .prompt_tokens = 900}, 120)) forecast->ttft_ms;
//
// An estimate: prompts ahead are computed one after the other at the measured rate, less the share that the cache has saved lately; who needs a place
// waits for the answers that end first, whose lengths are the limits that requests set, or the mean of late answers where that is less.
// Guarantees: no clock, no device; deterministic in what it was told. Nothing is predicted before steps were measured.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ridge::engine {

// At the end of a step.
struct Load {
  int64_t max_running = 1;
  int64_t prompt_tokens = 0;              // of running sequences, not computed yet
  std::vector<int64_t> left_tokens = {};  // of each running sequence: its answer's tokens still to come
  double decode_ms = 0;                   // of a step of all that run; 0: not measured
  double prompt_token_ms = 0;             // until one more prompt token is computed, beside them; 0: not measured
  double mean_answer_tokens = 0;          // of answers that ended; 0: none has
  double cached_share = 0;                // of the prompt tokens of late requests
};

struct Ahead {  // who comes first and has not begun
  int64_t sequences = 0;
  int64_t prompt_tokens = 0;
};

struct Forecast {
  double begin_ms = 0;  // until its first step
  double ttft_ms = 0;   // until its first token
};

std::optional<Forecast> Predict(const Load& load, const Ahead& ahead, int64_t prompt_tokens);

}  // namespace ridge::engine
