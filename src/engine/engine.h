// The engine: requests of token ids in, streams of token events out, computed by one thread.
//
//   RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Start(&program, {.vocab = 49152, .state = state_options}));
//   RIDGE_ASSIGN_OR_RETURN(Ticket ticket, engine->Submit(request));
//   while (ticket.outbox->Next(100ms, event) != Outbox::Got::kEnd) ...;
//
// Guarantees: every accepted request ends with exactly one Summary, whatever happens; its answer depends only on the request, never on what else
// runs. An allocation that fails ends the request that it was for. Submit and Cancel are thread-safe and never wait for a step. The destructor ends what still runs as cancelled.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "cache/page_pool.h"
#include "engine/cache_file.h"
#include "engine/drafter.h"
#include "engine/outbox.h"
#include "engine/request.h"
#include "engine/runner.h"
#include "engine/scheduler.h"
#include "engine/stats.h"
#include "engine/step_bytes.h"

namespace ridge::sampling {
class Sampler;
}

namespace ridge::engine {

struct EngineOptions {
  int64_t vocab = 0;  // logits of a row
  int64_t context_tokens = 4096;
  int64_t step_tokens = 512;   // at most what the program was compiled for
  int64_t max_running = 1;     // at most the logit rows that the program was compiled for
  int64_t max_logit_rows = 0;  // that the program was compiled for; above max_running there is room for drafts
  size_t max_waiting = 64;     // requests that have not begun; more are refused
  bool prefix_cache = true;    // pages of requests that are done serve later ones
  // For tests: proves the integrity of scheduler, pages, cache and counters after each step.
  bool check_each_step = false;
  int64_t checkpoints = 16;  // of recurrent models: points from which the prefix cache can go on, each a slot of state
  int64_t draft_slots = 0;   // of recurrent models: drafts that a step verifies at most, each a slot of state
  TokenId thinking = -1;     // the token that begins a turn's thoughts; see SchedulerOptions
  backend::StateOptions state;
  StepBytes bytes = {};  // for Summary::bytes_read
  // A second model that drafts; borrowed, used by the engine alone. Its KV takes as many pages of as many tokens as the first model's.
  backend::Program* draft_program = nullptr;
  int64_t draft_vocab = 0;        // logits of a row of it; equal ids are equal tokens
  double draft_cost_ratio = 0.5;  // time of its steps over the first model's, until both were measured
  // The clock by which steps are measured; none: the real one. What is drafted follows from it, so tests bring their own. Thread-safe.
  std::function<Clock::time_point()> now = {};
};

// How long a step took, and what is expected of one of the same sequences without drafts; none where nothing was drafted.
struct StepTimes {
  double total_ms = 0, draft_ms = 0;
  std::optional<double> alone_ms;
};

// What a file of the prefix cache gave or took.
struct SavedCache {
  int64_t pages = 0, tokens = 0, states = 0;
  int64_t pages_left_out = 0;  // for which there was no room
  uint64_t bytes = 0;          // of the file; 0: none was written
  double ms = 0;
};

struct Ticket {
  RequestId id = 0;
  std::shared_ptr<Outbox> outbox;  // shared: either side may go first
};

// Roots of groups that share nothing with others begin so; all others with a number.
inline constexpr std::string_view kGroupRoot = "group:";

class Engine {
 public:
  // program is borrowed and used by the engine alone from here on. Errors: those of NewState and PagePool::Create.
  static Result<std::unique_ptr<Engine>> Start(backend::Program* program, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Errors: kInvalidArgument (empty prompt, unknown token, sampling), kOutOfRange (can never fit, with figures), kResourceExhausted (queue is full),
  // kUnavailable (the deadline cannot be met, with the prediction).
  Result<Ticket> Submit(Request request);
  // n answers to one prompt, draw_stream 0 .. n - 1: all are accepted or none is.
  Result<std::vector<Ticket>> SubmitGroup(const Request& request, int64_t n);
  // Ends a request before the next step. Unknown and finished ids are passed over. Never fails: it waits for memory.
  void Cancel(RequestId id);

  // Thread-safe; never waits for a step.
  EngineStats Stats() const;

  // For a request of this priority and length that would come now. None: too little was measured yet. Thread-safe; never waits for a step.
  std::optional<Forecast> Predict(int32_t priority, int64_t prompt_tokens) const;

  // Writes what the prefix cache holds to a file, and takes it over from one, between two steps: requests wait meanwhile. key says what pages
  // depend on beside their tokens and the settings of the engine. Thread-safe; not beside the destructor.
  // Nothing cached: nothing is written. Errors: those of WriteCacheFile.
  Result<SavedCache> SaveCache(const std::string& path, const CacheKey& key);
  // Before the first request. All of the file that there is room for, the latest first, or nothing. One page is computed again to see that
  // this program still gives the same bits. Errors: those of CacheFile; kUnsupported (other bits), kInvalidArgument (the cache is off or in use).
  Result<SavedCache> RestoreCache(const std::string& path, const CacheKey& key);

  size_t state_bytes() const { return state_->size_bytes(); }
  size_t draft_state_bytes() const { return drafter_ ? drafter_->state_bytes() : 0; }

 private:
  Engine(const EngineOptions& options, cache::PagePool pool, std::unique_ptr<backend::StateStore> state,
         backend::Program* program, std::unique_ptr<Drafter> drafter);
  Status CheckSpeculation(Speculation speculation) const;
  bool can_speculate() const;
  Status CheckPin(const Request& request) const;
  Clock::time_point Now() const { return options_.now ? options_.now() : Clock::now(); }
  int64_t NowMs() const;
  Result<std::unique_ptr<Sequence>> NewSequence(const Request& request, const sampling::Sampler& sampler) const;
  std::optional<std::string> CacheRoot(const Request& request) const;
  Result<std::vector<Ticket>> Enqueue(std::vector<std::unique_ptr<Sequence>> sequences);
  void Publish();
  void PublishLoad();
  Status CheckDeadline(const Request& request, const std::optional<Forecast>& forecast) const;
  void LeaveWaiting(const Sequence& sequence);
  void Loop();
  bool TakeMail();  // false: stop
  void EndLate();
  void ForgetDeadline(const Sequence& sequence);
  Status CheckCounters() const;
  void Step();
  void DrawTogether(std::span<const Chunk> chunks);
  void TakeResults(const Chunk& chunk, int64_t row, double step_ms, int64_t step_tokens, int64_t step_rows);
  double DraftByModel(const Plan& plan);
  void Count(const Chunk& chunk);
  bool Sample(Sequence& sequence, int64_t row, double step_ms);
  void Verify(const Chunk& chunk, int64_t row, double step_ms);
  void Score(const Chunk& chunk, int64_t row);
  // cache_saving.cc
  Status BetweenSteps(const std::function<void()>& task);
  Result<SavedCache> SaveNow(const std::string& path, const CacheKey& key) const;
  Result<SavedCache> RestoreNow(const std::string& path, const CacheKey& key);
  Status CheckBits(const CacheFile& file);
  Status FillRestored(const CacheFile& file, const cache::PrefixCache::Imported& places);
  void Finish(RequestId id, FinishReason reason, std::optional<Error> error = std::nullopt);
  void FinishStarved(RequestId id);  // there was no memory for it; this needs none
  void End(Sequence& sequence, FinishReason reason, std::optional<Error> error, int64_t kv_pages);

  EngineOptions options_;
  cache::PagePool pool_;
  std::unique_ptr<backend::StateStore> state_;
  std::unique_ptr<Drafter> drafter_;  // null: no draft model
  Scheduler scheduler_;               // engine thread; CheckFits may be called by all
  Runner runner_;

  std::multimap<Clock::time_point, RequestId> deadlines_;  // of those that have not begun
  std::vector<float> raw_logits_;                          // [vocab] scratch
  std::vector<std::pair<Sequence*, int64_t>> draws_;       // sequence, row: scratch of DrawTogether
  std::vector<Chunk> chunks_;                              // of the present step: Finish ends the plan's life
  std::list<std::unique_ptr<Sequence>> taken_;             // scratch of TakeMail
  StepTimes times_;                                        // of the latest step

  const Clock::time_point started_ = Clock::now();
  EngineStats counts_;  // engine thread: what is published next

  double mean_answer_tokens_ = 0, cached_share_ = 0;  // means that forget, of answers and prompts; engine thread
  mutable std::mutex stats_mutex_;
  EngineStats published_;
  Load load_;

  mutable std::mutex mutex_;
  std::condition_variable mail_;
  std::list<std::unique_ptr<Sequence>> inbox_;
  std::vector<RequestId> cancels_;
  std::vector<std::function<void()>> tasks_;  // for the engine's thread, after the cancels
  RequestId next_id_ = 1;
  uint64_t submitted_ = 0, prompt_tokens_submitted_ = 0;
  Clock::time_point work_begin_;                      // when the latest came that found nobody here
  size_t not_begun_ = 0;                              // in the inbox, or waiting in the scheduler for the first time
  std::map<int32_t, Ahead, std::greater<>> waiting_;  // the same by priority
  bool stop_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace ridge::engine
