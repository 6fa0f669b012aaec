// What the engine has done and holds now, as one consistent snapshot.
//
//   const EngineStats stats = engine->Stats();
//   stats.pages_free + stats.pages_held + stats.pages_cached == stats.pages_capacity;
//
// Guarantees: plain values, all of one moment, at most one step old. Counters never decrease and include every request whose end was delivered.
// Laws: pages_free + pages_held + pages_cached = pages_capacity;
// prompt_tokens_submitted = prompt_tokens_computed + prompt_tokens_cached + prompt_tokens_dropped + prompt_tokens_pending;
// submitted = finished + running + waiting, once the inbox is taken; drafts_accepted <= drafts_proposed.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "engine/request.h"

namespace ridge::engine {

// Counts of durations. Bucket i counts those of at most kBounds_s[i] seconds, each once (not cumulative); the last one all longer ones.
struct Histogram {
  static constexpr std::array<double, 20> kBounds_s = {0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15,
                                                       0.25,  0.5,   1,     2.5,  5,    10,   20,   40,    80,  160};
  std::array<uint64_t, kBounds_s.size() + 1> buckets = {};
  uint64_t count = 0;
  double sum_s = 0;

  void Add(double seconds) {
    const auto at = std::lower_bound(kBounds_s.begin(), kBounds_s.end(), seconds);
    buckets[static_cast<size_t>(at - kBounds_s.begin())]++;
    count++;
    sum_s += seconds;
  }
};

struct EngineStats {
  // Now.
  int64_t running = 0, waiting = 0;  // waiting: in the inbox too
  int64_t pages_free = 0;
  int64_t pages_held = 0;    // by sequences, shared ones once
  int64_t pages_cached = 0;  // by the prefix cache alone: given up when a sequence needs them
  int64_t pages_capacity = 0, page_tokens = 0;
  int64_t pages_pinned = 0, pages_pinned_limit = 0;  // of the prefix cache, held or not
  // What the prefix cache has in its tree: pages, whether sequences use them too or not, and checkpoints of recurrent models; and their bytes.
  int64_t cache_pages = 0, cache_states = 0;
  uint64_t cache_bytes = 0;
  // Since the start. Computing a prompt again after a preemption counts nowhere.
  uint64_t submitted = 0, finished = 0, preemptions = 0, steps = 0;
  uint64_t pages_evicted = 0;  // of the prefix cache, for room
  uint64_t pages_refused = 0;  // by the prefix cache, whose limit allowed no more
  uint64_t pages_dropped = 0;  // of the prefix cache, since nobody comes back to them: dead thinking turns
  uint64_t prompt_tokens_submitted = 0, prompt_tokens_computed = 0, prompt_tokens_cached = 0;
  uint64_t prompt_tokens_dropped = 0;  // of requests that ended before their prompt was done
  uint64_t prompt_tokens_pending = 0;  // of requests that wait or are at their prompt
  uint64_t generated_tokens = 0, drafts_proposed = 0, drafts_accepted = 0;
  uint64_t draft_passes = 0;     // of the draft model, what it only reads included
  uint64_t draft_failures = 0;   // steps that did without, since the draft model failed
  Clock::time_point last_step;   // end of the latest step, or the start of the engine
  bool stepping = false;         // a step is being computed
  Clock::time_point step_begin;  // of the latest step
  // Since when there is something to do and no step has ended; none: there is nothing to do. Who watches the engine looks at this: it grows in a step that
  // does not end, and as well where the engine's thread is held up outside of one.
  std::optional<Clock::time_point> no_progress_since;
  // Of requests: queue (Submit to first step), TTFT (Submit to first token), inter-token gap, end-to-end (Submit to the end; not of cancelled ones).
  Histogram queue, ttft, gap, end_to_end;
};

}  // namespace ridge::engine
