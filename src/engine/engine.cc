#include "engine/engine.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/planted.h"
#include "base/quantity.h"
#include "sampling/log_probability.h"
#include "sampling/sampler.h"

namespace ridge::engine {
namespace {

// The model's own log-probabilities, of `token` and of the n best.
std::vector<std::pair<TokenId, float>> TopLogprobs(std::span<const float> logits, int32_t n, TokenId token,
                                                   float& logprob) {
  const double sum = sampling::LogSumExp(logits);
  logprob = static_cast<float>(static_cast<double>(logits[static_cast<size_t>(token)]) - sum);
  std::vector<std::pair<TokenId, float>> top;
  if (n == 0) return top;
  sampling::Candidates candidates;
  candidates.FillTopK(logits, std::min(static_cast<size_t>(n), logits.size()));
  for (const sampling::Candidate& c : candidates.items()) top.emplace_back(c.id, static_cast<float>(c.logit - sum));
  return top;
}

Error NoMemory() { return Fail(Code::kResourceExhausted, "no memory for the request").Take(); }

constexpr std::chrono::milliseconds kMemoryPause{1};

double MsBetween(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

}  // namespace

struct Work {
  sampling::Sampler sampler;
  uint64_t draw_stream = 0;
  int32_t logprobs = -1, prompt_logprobs = -1;
  double pin_s = 0;
  std::optional<Clock::time_point> deadline = {};
  std::shared_ptr<Outbox> outbox;
  Clock::time_point submitted;
  bool begun = false;
  int64_t prompt_done = 0;  // prompt tokens whose first computation is over
  Clock::time_point last_token = {};
  double decode_ms = 0, alone_ms = 0;  // of its decode steps: as they were, and as expected without drafts
  bool drafted = false;
  std::optional<Result<TokenId>> drawn = {};  // of this step, by DrawTogether
  bool draw_failed = false;                   // there was no memory for it
  double draw_ms = 0;
  Summary summary = {};
  Error no_memory = NoMemory();  // made while there is some

  // One step after the first token; each accepted draft saves one more alone_ms.
  void CountStep(const StepTimes& times, bool has_drafts) {
    decode_ms += times.total_ms;
    alone_ms += times.alone_ms.value_or(times.total_ms);
    drafted = drafted || has_drafts;
  }
};

Sequence::Sequence() = default;
Sequence::~Sequence() = default;

Engine::Engine(const EngineOptions& options, cache::PagePool pool, std::unique_ptr<backend::StateStore> state,
               backend::Program* program, std::unique_ptr<Drafter> drafter)
    : options_(options),
      pool_(std::move(pool)),
      state_(std::move(state)),
      drafter_(std::move(drafter)),
      scheduler_({.max_running = options.max_running,
                  .step_tokens = options.step_tokens,
                  .context_tokens = options.context_tokens,
                  .page_tokens = static_cast<int32_t>(options.state.page_tokens),
                  .cache_pages = options.state.n_pages,
                  .max_logit_rows = options.max_logit_rows,
                  .draft_model = drafter_ != nullptr,
                  .recurrent = state_->slot_bytes() > 0,
                  .checkpoints = options.checkpoints,
                  .draft_slots = options.draft_slots,
                  .thinking = options.thinking},
                 &pool_),
      runner_(program, state_.get(), options.vocab, std::max(options.max_running, options.max_logit_rows)) {
  counts_.pages_capacity = pool_.capacity_pages();
  draws_.reserve(static_cast<size_t>(options.max_running));
  chunks_.reserve(static_cast<size_t>(options.max_running));
  counts_.page_tokens = options.state.page_tokens;
  counts_.last_step = counts_.step_begin = Now();
  Publish();
}

Result<std::unique_ptr<Engine>> Engine::Start(backend::Program* program, const EngineOptions& options) {
  if (options.state.n_pages > cache::PagePool::kMaxCapacityPages) {
    return Fail(Code::kOutOfRange, "too many KV pages")
        .Found(std::to_string(options.state.n_pages))
        .Expected(std::to_string(cache::PagePool::kMaxCapacityPages) + " at most");
  }
  backend::StateOptions state_options = options.state;
  state_options.n_slots = options.max_running + options.checkpoints + options.draft_slots;
  RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<backend::StateStore> state, program->NewState(state_options));
  RIDGE_ASSIGN_OR_RETURN(cache::PagePool pool, cache::PagePool::Create(static_cast<int32_t>(options.state.n_pages)));
  std::unique_ptr<Drafter> drafter;
  if (options.draft_program != nullptr) {
    RIDGE_ASSIGN_OR_RETURN(drafter, Drafter::Create(options.draft_program, {.vocab = options.draft_vocab,
                                                                            .target_vocab = options.vocab,
                                                                            .step_tokens = options.step_tokens,
                                                                            .max_rows = options.max_running,
                                                                            .cost_ratio = options.draft_cost_ratio,
                                                                            .state = options.state,
                                                                            .now = options.now}));
  }
  std::unique_ptr<Engine> engine(new Engine(options, std::move(pool), std::move(state), program, std::move(drafter)));
  try {
    engine->thread_ = std::thread([raw = engine.get()] { raw->Loop(); });
  } catch (const std::exception& refused) {
    return Fail(Code::kResourceExhausted, "the system gives no thread for the engine").Found(refused.what());
  }
  return engine;
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  mail_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool Engine::can_speculate() const {
  return options_.max_logit_rows > options_.max_running && (state_->slot_bytes() == 0 || options_.draft_slots > 0);
}

// What was asked for by name is there, or the request is refused; kAuto takes what there is.
Status Engine::CheckSpeculation(Speculation speculation) const {
  if (speculation == Speculation::kOff || speculation == Speculation::kAuto) return {};
  if (!can_speculate()) {
    return Fail(Code::kUnsupported, "the engine cannot verify drafts")
        .Where("speculation")
        .Found(options_.max_logit_rows <= options_.max_running
                   ? "no more logit rows than sequences"
                   : "a recurrent model, and no slots for states on the way")
        .Remedy("turn speculation off");
  }
  if (speculation == Speculation::kDraft && !drafter_) {
    return Fail(Code::kUnsupported, "there is no draft model")
        .Where("speculation")
        .Remedy("load one, or draft by lookup");
  }
  return {};
}

Status Engine::CheckPin(const Request& request) const {
  if (request.pin_s == 0) return {};
  const auto wrong = [](std::string found, std::string expected) {
    return Fail(Code::kInvalidArgument, "no prefix can be pinned")
        .Where("cache_pin_s")
        .Found(std::move(found))
        .Expected(std::move(expected));
  };
  if (!(request.pin_s > 0 && request.pin_s <= kMostPin_s))
    return wrong(std::to_string(request.pin_s),
                 "0 to " + std::to_string(static_cast<int64_t>(kMostPin_s)) + " seconds");
  if (!options_.prefix_cache || !request.TakesPartInCache())
    return wrong("no prefix cache", "a request that takes part in it");
  if (scheduler_.max_pinned_pages() > 0) return {};
  return wrong("a KV pool with room for one request of the whole context", "room for more");
}

Result<std::unique_ptr<Sequence>> Engine::NewSequence(const Request& request, const sampling::Sampler& sampler) const {
  const auto outside = [](const char* where, int64_t found, int64_t least, int64_t most) -> Status {
    return Fail(Code::kInvalidArgument, "the value is out of range")
        .Where(where)
        .Found(std::to_string(found))
        .Expected(std::to_string(least) + " to " + std::to_string(most));
  };
  if (request.prompt.empty()) return Fail(Code::kInvalidArgument, "the prompt has no tokens").Expected("one at least");
  for (const TokenId token : request.prompt) {
    if (token >= 0 && token < options_.vocab) continue;
    return Fail(Code::kInvalidArgument, "the token is outside the vocabulary")
        .Where("prompt")
        .Found(std::to_string(token))
        .Expected("0 to " + std::to_string(options_.vocab - 1));
  }
  if (request.logprobs < -1 || request.logprobs > kMaxLogprobs)
    RIDGE_RETURN_IF_ERROR(outside("logprobs", request.logprobs, -1, kMaxLogprobs));
  if (request.prompt_logprobs < -1 || request.prompt_logprobs > kMaxLogprobs)
    RIDGE_RETURN_IF_ERROR(outside("prompt_logprobs", request.prompt_logprobs, -1, kMaxLogprobs));
  RIDGE_RETURN_IF_ERROR(CheckSpeculation(request.speculation));
  RIDGE_RETURN_IF_ERROR(CheckPin(request));
  RIDGE_RETURN_IF_ERROR(scheduler_.CheckFits(static_cast<int64_t>(request.prompt.size())));
  auto sequence = std::make_unique<Sequence>();
  sequence->prompt_tokens = static_cast<int64_t>(request.prompt.size());
  sequence->max_tokens = request.max_tokens < 0 ? -1 : request.max_tokens;
  sequence->stop_tokens = request.stop_tokens;
  sequence->priority = request.priority;
  sequence->tenant = request.tenant;
  sequence->cache_root = CacheRoot(request);
  const auto wants = [&](Speculation kind) {
    return can_speculate() && (request.speculation == kind || request.speculation == Speculation::kAuto);
  };
  sequence->looks_up = wants(Speculation::kLookup);
  sequence->asks_model = drafter_ && wants(Speculation::kDraft);
  sequence->scores = request.prompt_logprobs >= 0;
  sequence->tokens = request.prompt;
  sequence->work = std::unique_ptr<Work>(new Work{.sampler = sampler,
                                                  .draw_stream = request.draw_stream,
                                                  .logprobs = request.logprobs,
                                                  .prompt_logprobs = request.prompt_logprobs,
                                                  .pin_s = request.pin_s,
                                                  .deadline = request.deadline,
                                                  .outbox = std::make_shared<Outbox>(request.notify),
                                                  .submitted = Now()});
  return sequence;
}

// Equal salts of equal tenants share. Lengths go first, so that no salt spells another tenant's.
std::optional<std::string> Engine::CacheRoot(const Request& request) const {
  if (!options_.prefix_cache || !request.TakesPartInCache()) return std::nullopt;
  return std::to_string(request.tenant.size()) + ":" + request.tenant + request.cache_salt;
}

Result<std::vector<Ticket>> Engine::Enqueue(std::vector<std::unique_ptr<Sequence>> sequences) {
  const int32_t priority = sequences.front()->priority;  // of one request all have the same
  const Clock::time_point now = Now();
  std::vector<Ticket> tickets;
  tickets.reserve(sequences.size());
  std::list<std::unique_ptr<Sequence>> added;
  for (std::unique_ptr<Sequence>& sequence : sequences) added.push_back(std::move(sequence));
  {
    const std::lock_guard lock(mutex_);
    if (not_begun_ + added.size() > options_.max_waiting) {
      return Fail(Code::kResourceExhausted, "too many requests wait")
          .Found(std::to_string(not_begun_) + " waiting, " + std::to_string(added.size()) + " more")
          .Expected(std::to_string(options_.max_waiting) + " at most")
          .Remedy("try again later");
    }
    RequestId id = next_id_;
    for (std::unique_ptr<Sequence>& sequence : added) {
      sequence->id = id++;
      if (added.size() > 1 && !sequence->cache_root) {  // the answers of a group share their prompt, with nobody else
        sequence->cache_root = std::string(kGroupRoot) + std::to_string(next_id_);
        sequence->ephemeral_root = true;
      }
      tickets.push_back({sequence->id, sequence->work->outbox});
    }
    Ahead& waiting = waiting_[priority];
    // What follows needs no memory: all of the group are accepted or none is.
    next_id_ = id;
    {
      const std::lock_guard stats_lock(stats_mutex_);
      if (submitted_ == published_.finished) work_begin_ = now;
    }
    for (const std::unique_ptr<Sequence>& sequence : added) {
      not_begun_++;
      waiting.sequences++;
      waiting.prompt_tokens += sequence->prompt_tokens;
      submitted_++;
      prompt_tokens_submitted_ += static_cast<uint64_t>(sequence->prompt_tokens);
    }
    inbox_.splice(inbox_.end(), added);
  }
  mail_.notify_one();
  return tickets;
}

Result<Ticket> Engine::Submit(Request request) {
  RIDGE_ASSIGN_OR_RETURN(std::vector<Ticket> tickets, SubmitGroup(request, 1));
  return std::move(tickets.front());
}

Result<std::vector<Ticket>> Engine::SubmitGroup(const Request& request, int64_t n) {
  if (n < 1 || n > static_cast<int64_t>(options_.max_waiting)) {
    return Fail(Code::kInvalidArgument, "the number of answers is out of range")
        .Where("n")
        .Found(std::to_string(n))
        .Expected("1 to " + std::to_string(options_.max_waiting) + ", which is how many requests may wait");
  }
  try {
    const std::optional<Forecast> forecast = Predict(request.priority, static_cast<int64_t>(request.prompt.size()));
    RIDGE_RETURN_IF_ERROR(CheckDeadline(request, forecast));
    RIDGE_ASSIGN_OR_RETURN(const sampling::Sampler sampler,
                           sampling::Sampler::Create(request.sampling, static_cast<int32_t>(options_.vocab)));
    std::vector<std::unique_ptr<Sequence>> sequences;
    for (int64_t i = 0; i < n; i++) {
      RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<Sequence> sequence, NewSequence(request, sampler));
      sequence->work->draw_stream += static_cast<uint64_t>(i);
      if (forecast) sequence->work->summary.predicted_ttft_ms = forecast->ttft_ms;
      if (i > 0) sequence->scores = false;  // once is enough: the prompt is the same
      sequences.push_back(std::move(sequence));
    }
    return Enqueue(std::move(sequences));
  } catch (const std::bad_alloc&) {
    return Fail(Code::kResourceExhausted, "no memory for the request")
        .Found(ridge::Count(n, "answer") + " to " + ridge::Count(request.prompt.size(), "token"));
  }
}

EngineStats Engine::Stats() const {
  EngineStats stats;
  {
    const std::lock_guard lock(stats_mutex_);
    stats = published_;
  }
  // Later than the rest, so that nothing is finished before it was submitted.
  const std::lock_guard lock(mutex_);
  stats.submitted = submitted_;
  stats.waiting = static_cast<int64_t>(submitted_ - stats.finished) - stats.running;
  if (submitted_ > stats.finished) stats.no_progress_since = std::max(stats.last_step, work_begin_);
  stats.prompt_tokens_submitted = prompt_tokens_submitted_;
  stats.prompt_tokens_pending = prompt_tokens_submitted_ - stats.prompt_tokens_computed - stats.prompt_tokens_cached -
                                stats.prompt_tokens_dropped;
  return stats;
}

int64_t Engine::NowMs() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started_).count();
}

void Engine::Publish() {
  counts_.running = static_cast<int64_t>(scheduler_.running());
  counts_.pages_free = pool_.free_pages();
  counts_.pages_held = pool_.held_pages() - pool_.idle_pages();
  counts_.pages_cached = pool_.idle_pages();
  counts_.cache_pages = scheduler_.cache().pages();
  counts_.cache_states = scheduler_.cache().states();
  counts_.cache_bytes = static_cast<uint64_t>(counts_.cache_pages) * state_->page_bytes() +
                        static_cast<uint64_t>(counts_.cache_states) * state_->slot_bytes();
  counts_.pages_pinned = scheduler_.cache().pinned_pages();
  counts_.pages_pinned_limit = scheduler_.max_pinned_pages();
  counts_.pages_evicted = scheduler_.cache().evicted_pages();
  counts_.pages_refused = scheduler_.cache().refused_pages();
  counts_.pages_dropped = scheduler_.cache().dropped_pages();
  counts_.preemptions = static_cast<uint64_t>(scheduler_.preemptions());
  const std::lock_guard lock(stats_mutex_);
  published_ = counts_;
}

void Engine::Cancel(RequestId id) {
  for (bool told = false; !told;) {
    try {
      const std::lock_guard lock(mutex_);
      cancels_.push_back(id);
      told = true;
    } catch (const std::bad_alloc&) {
      // Streams that nobody wants any more end so: what frees memory must not fail for want of it.
      std::this_thread::sleep_for(kMemoryPause);
    }
  }
  mail_.notify_one();
}

bool Engine::TakeMail() {
  std::vector<RequestId> cancels;
  std::vector<std::function<void()>> tasks;
  bool stop = false;
  {
    std::unique_lock lock(mutex_);
    const auto mail = [&] {
      return stop_ || !inbox_.empty() || !cancels_.empty() || !tasks_.empty() || !scheduler_.idle();
    };
    const std::optional<int64_t> pin_end_ms = scheduler_.cache().next_pin_end_ms();
    if (!pin_end_ms) {
      mail_.wait(lock, mail);
    } else {  // so that what is told about pins is true on an idle engine too
      mail_.wait_until(lock, started_ + std::chrono::milliseconds(*pin_end_ms + 1), mail);
    }
    taken_.swap(inbox_);
    cancels.swap(cancels_);
    tasks.swap(tasks_);
    stop = stop_;
  }
  for (std::unique_ptr<Sequence>& sequence : taken_) {
    try {
      if (sequence->work->deadline) deadlines_.emplace(*sequence->work->deadline, sequence->id);
      scheduler_.Add(std::move(sequence));
    } catch (const std::bad_alloc&) {
      End(*sequence, FinishReason::kFailed, std::move(sequence->work->no_memory), 0);
    }
  }
  taken_.clear();
  for (const RequestId id : cancels) Finish(id, FinishReason::kCancelled);
  while (const std::optional<RequestId> id = stop ? scheduler_.AnyId() : std::nullopt)
    Finish(*id, FinishReason::kCancelled);
  for (const auto& task : tasks) task();
  if (!deadlines_.empty() && !stop) EndLate();
  return !stop;
}

// Requests that did not begin in time.
void Engine::EndLate() {
  const Clock::time_point now = Clock::now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const RequestId id = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    try {
      Finish(id, FinishReason::kFailed,
             std::move(Fail(Code::kUnavailable, "the request did not begin before its deadline")
                           .Found(ridge::Count(scheduler_.running(), "request runs", "requests run"))
                           .Remedy("try again later"))
                 .Take());
    } catch (const std::bad_alloc&) {
      FinishStarved(id);
    }
  }
}

// It was met, or is nobody's any more.
void Engine::ForgetDeadline(const Sequence& sequence) {
  if (!sequence.work->deadline) return;
  auto [at, end] = deadlines_.equal_range(*sequence.work->deadline);
  at = std::find_if(at, end, [&](const auto& entry) { return entry.second == sequence.id; });
  if (at != end) deadlines_.erase(at);
}

void Engine::Loop() {
  while (TakeMail()) {
    Step();
    if (!options_.check_each_step) continue;
    RIDGE_CHECK(scheduler_.CheckIntegrity().has_value());
    RIDGE_CHECK(CheckCounters().has_value());
  }
}

// The laws of stats.h between two steps, with all that is alive counted one by one: nothing is derived from what it is compared with.
Status Engine::CheckCounters() const {
  const auto broken = [](const char* what) -> Status {
    return Fail(Code::kInternal, "the counters do not add up").Found(what);
  };
  const std::lock_guard lock(mutex_);
  uint64_t alive = 0, pending = 0, not_begun = 0, deadlines = 0;
  std::map<int32_t, Ahead, std::greater<>> waiting;
  const auto count = [&](const Sequence& sequence, bool taken) {
    const Work& work = *sequence.work;
    alive++;
    pending += static_cast<uint64_t>(sequence.prompt_tokens - work.prompt_done);
    if (work.begun) return;
    not_begun++;
    deadlines += taken && work.deadline;
    waiting[sequence.priority].sequences++;
    waiting[sequence.priority].prompt_tokens += sequence.prompt_tokens;
  };
  for (const RequestId id : scheduler_.Ids()) count(*scheduler_.Find(id), true);
  for (const auto& sequence : inbox_) count(*sequence, false);
  if (submitted_ != counts_.finished + alive) return broken("submitted = finished + alive");
  if (prompt_tokens_submitted_ !=
      counts_.prompt_tokens_computed + counts_.prompt_tokens_cached + counts_.prompt_tokens_dropped + pending)
    return broken("prompt tokens submitted = computed + cached + dropped + pending");
  if (not_begun != not_begun_ || deadlines != deadlines_.size()) return broken("those that have not begun");
  if (!std::ranges::equal(waiting, waiting_, [](const auto& a, const auto& b) {
        return a.first == b.first && a.second.sequences == b.second.sequences &&
               a.second.prompt_tokens == b.second.prompt_tokens;
      }))
    return broken("those that have not begun, by priority");
  if (counts_.queue.count + not_begun > submitted_) return broken("begun + not begun <= submitted");
  if (counts_.ttft.count + counts_.gap.count != counts_.generated_tokens)
    return broken("first tokens + later tokens = generated tokens");
  if (counts_.ttft.count > counts_.queue.count || counts_.end_to_end.count > counts_.finished)
    return broken("first tokens <= begun, ends <= finished");
  if (counts_.drafts_accepted > counts_.drafts_proposed) return broken("drafts accepted <= proposed");
  return {};
}

void Engine::Step() {
  scheduler_.Advance(NowMs());
  const Plan& plan = scheduler_.Next();
  for (const cache::PageCopy& copy : scheduler_.TakeCopies()) {
    state_->CopyPage(copy.from, copy.to);
    if (drafter_) drafter_->CopyPage(copy.from, copy.to);
  }
  for (const cache::PageCopy& copy : scheduler_.TakeStateCopies()) state_->CopySlot(copy.from, copy.to);
  if (const std::optional<RequestId> starved = scheduler_.starved()) return FinishStarved(*starved);
  if (plan.chunks.empty()) {
    Publish();
    return PublishLoad();
  }
  const auto first = [](const Chunk& chunk) { return !chunk.sequence->work->begun; };
  const auto decodes = [](const Chunk& chunk) { return chunk.sequence->generated() > 0; };
  const bool begins = std::ranges::any_of(plan.chunks, first);
  if (begins) SleepIfPlanted(Stage::kQueue);
  const Clock::time_point begin = Now();
  if (begins) SleepIfPlanted(Stage::kPrefill);
  if (std::ranges::any_of(plan.chunks, decodes)) SleepIfPlanted(Stage::kDecode);
  for (const Chunk& chunk : plan.chunks) {
    Work& work = *chunk.sequence->work;
    if (work.begun) continue;
    work.begun = true;
    work.summary.queue_ms = MsBetween(work.submitted, begin);
    counts_.queue.Add(work.summary.queue_ms / 1000);
    LeaveWaiting(*chunk.sequence);
    ForgetDeadline(*chunk.sequence);
  }
  counts_.stepping = true;
  counts_.step_begin = begin;
  Publish();
  times_.draft_ms = DraftByModel(plan);
  // Where nothing is drafted the step itself is the better figure.
  times_.alone_ms = plan.drafted() || times_.draft_ms > 0
                        ? scheduler_.costs().DecodeMs(static_cast<int64_t>(plan.chunks.size()))
                        : std::nullopt;
  try {
    runner_.Prepare(plan);
  } catch (const std::bad_alloc&) {  // a step without the youngest may be small enough
    const RequestId youngest = plan.chunks.back().sequence->id;
    scheduler_.Abandon();
    counts_.stepping = false;
    return FinishStarved(youngest);
  }
  chunks_.assign(plan.chunks.begin(), plan.chunks.end());
  const std::vector<Chunk>& chunks = chunks_;
  const Clock::time_point drafted = Now();
  const Status ran = runner_.Run();
  const Clock::time_point end = Now();
  const double step_ms = times_.total_ms = MsBetween(begin, end);
  counts_.stepping = false;
  counts_.last_step = end;
  counts_.steps++;
  const int64_t step_tokens = plan.tokens, step_rows = plan.logit_rows;
  if (!ran) {
    for (const Chunk& chunk : chunks) {
      const RequestId id = chunk.sequence->id;
      try {
        Finish(id, FinishReason::kFailed, ran.error());
      } catch (const std::bad_alloc&) {
        FinishStarved(id);
      }
    }
    return;
  }
  scheduler_.Commit(MsBetween(drafted, end));
  DrawTogether(chunks);
  int64_t row = 0;
  for (const Chunk& chunk : chunks) {
    const RequestId id = chunk.sequence->id;
    const int64_t rows = chunk.logit_rows();  // before the chunk's sequence may end
    try {
      TakeResults(chunk, row, step_ms, step_tokens, step_rows);
    } catch (const std::bad_alloc&) {
      FinishStarved(id);
    }
    row += rows;
  }
  Publish();
  PublishLoad();
}

void Engine::TakeResults(const Chunk& chunk, int64_t row, double step_ms, int64_t step_tokens, int64_t step_rows) {
  Sequence& sequence = *chunk.sequence;
  Count(chunk);
  sequence.work->summary.bytes_read +=
      options_.bytes.Share(static_cast<int64_t>(chunk.tokens.size() + chunk.drafts.size()), chunk.logit_rows(),
                           chunk.begin, step_tokens, step_rows);
  if (sequence.generated() == 0) {
    sequence.work->summary.prompt_ms += step_ms;
    sequence.work->summary.prompt_chunks++;
  }
  if (chunk.score_rows > 0) Score(chunk, row);
  if (chunk.logits) return Verify(chunk, row + chunk.score_rows, step_ms);
  if (sequence.pending() == 0) Finish(sequence.id, FinishReason::kLength);  // only the prompt was asked for
}

// Draws the tokens of the sequences that need one each, on all threads. What does not fit that is left to Sample: drafts, whose draws follow
// from one another, and log-probabilities, which need the row as it was.
void Engine::DrawTogether(std::span<const Chunk> chunks) {
  draws_.clear();
  int64_t row = 0;
  for (const Chunk& chunk : chunks) {
    Work& work = *chunk.sequence->work;
    work.drawn.reset();
    work.draw_failed = false;
    if (chunk.logits && chunk.drafts.empty() && work.logprobs < 0)
      draws_.push_back({chunk.sequence, row + chunk.score_rows});
    row += chunk.logit_rows();
  }
  if (draws_.size() < 2) return;
  runner_.ForEach(draws_.size(), [this](size_t i) {
    const auto& [sequence, at] = draws_[i];
    Work& work = *sequence->work;
    const Clock::time_point begin = Now();
    try {
      work.drawn = work.sampler.Sample(runner_.logits(at), sequence->tokens, work.draw_stream,
                                       static_cast<uint64_t>(sequence->length()));
    } catch (const std::bad_alloc&) {
      work.draw_failed = true;  // the row may have changed already
    }
    work.draw_ms = MsBetween(begin, Now());
  });
}

// Lets the draft model add to the step. Without it the step is as right, so a failure ends its drafting and nothing else.
double Engine::DraftByModel(const Plan& plan) {
  const std::span<DraftAsk> asks = scheduler_.draft_asks();
  if (!drafter_ || asks.empty()) return 0;
  const Clock::time_point begin = Now();
  try {
    drafter_->Choose(asks, plan.tokens, scheduler_.draft_room(), scheduler_.costs());
  } catch (const std::bad_alloc&) {
    counts_.draft_failures++;
    return 0;
  }
  bool any = false;
  for (DraftAsk& ask : asks) {
    if (ask.take > 0 && !scheduler_.ReserveDrafts(*ask.sequence, ask.take)) ask.take = 0;
    any = any || ask.take > 0;
  }
  if (!any) return 0;
  bool drafted = false;
  try {
    const Status ran =
        drafter_->Draft(asks, [](Sequence& s, std::span<float> logits, std::span<const TokenId> history) {
          const auto token = s.work->sampler.Sample(logits, history, s.work->draw_stream, history.size());
          return token ? std::optional(*token) : std::nullopt;
        });
    drafted = ran.has_value();
  } catch (const std::bad_alloc&) {
  }
  for (DraftAsk& ask : asks) {
    if (ask.take == 0) continue;
    if (!drafted) ask.sequence->drafts.clear();
    ask.sequence->model_drafts = true;
    scheduler_.PlaceDrafts(*ask.sequence);
  }
  counts_.draft_passes = static_cast<uint64_t>(drafter_->passes());
  if (!drafted) counts_.draft_failures++;
  return MsBetween(begin, Now());
}

void Engine::Count(const Chunk& chunk) {
  const Sequence& sequence = *chunk.sequence;
  Work& work = *sequence.work;
  work.summary.computed_tokens += static_cast<int64_t>(chunk.tokens.size() + chunk.drafts.size());
  const int64_t begin = std::min(chunk.begin, sequence.prompt_tokens);
  const int64_t end = std::min(sequence.computed_tokens, sequence.prompt_tokens);
  if (begin > work.prompt_done) {  // what was skipped came from the cache
    counts_.prompt_tokens_cached += static_cast<uint64_t>(begin - work.prompt_done);
    work.summary.cached_tokens += begin - work.prompt_done;
    work.prompt_done = begin;
  }
  if (end > work.prompt_done) counts_.prompt_tokens_computed += static_cast<uint64_t>(end - work.prompt_done);
  work.prompt_done = std::max(work.prompt_done, end);
}

// The first row gives the next token. If that is the first draft, the second row is the row of what follows, and so on: each token is drawn as if there
// were no drafts, since a draw depends on its position alone.
void Engine::Verify(const Chunk& chunk, int64_t row, double step_ms) {
  Sequence& sequence = *chunk.sequence;
  Work& work = *sequence.work;
  const std::vector<TokenId> drafts = sequence.drafts;
  const auto proposed = static_cast<int64_t>(drafts.size());
  const bool by_model = sequence.model_drafts;
  counts_.drafts_proposed += static_cast<uint64_t>(proposed);
  work.summary.drafts_proposed += proposed;
  if (sequence.generated() > 0) work.CountStep(times_, proposed > 0);
  int64_t accepted = 0;
  while (Sample(sequence, row + accepted, accepted == 0 ? step_ms : 0)) {
    if (proposed == 0) return;
    if (accepted == proposed || sequence.tokens.back() != drafts[static_cast<size_t>(accepted)]) {
      scheduler_.EndDrafts(sequence, accepted);
      if (by_model) drafter_->Learn(sequence, proposed, accepted);
      return;
    }
    accepted++;
    counts_.drafts_accepted++;
    work.summary.drafts_accepted++;
    work.alone_ms += times_.alone_ms.value_or(0);
    scheduler_.AcceptDraft(sequence);
  }
}

// Hands out the log-probabilities of the prompt's tokens behind the chunk's rows.
void Engine::Score(const Chunk& chunk, int64_t row) {
  Sequence& sequence = *chunk.sequence;
  Work& work = *sequence.work;
  for (int64_t i = 0; i < chunk.score_rows; i++) {
    const TokenId next = sequence.tokens[static_cast<size_t>(chunk.begin + chunk.score_begin + i + 1)];
    TokenEvent event{.token = next, .prompt = true};
    event.top = TopLogprobs(runner_.logits(row + i), work.prompt_logprobs, next, event.logprob.emplace());
    event.at = Now();
    work.outbox->Push(std::move(event));
  }
  sequence.scored_tokens = chunk.begin + chunk.score_begin + chunk.score_rows + 1;
}

// False: the sequence has ended and is gone.
bool Engine::Sample(Sequence& sequence, int64_t row, double step_ms) {
  Work& work = *sequence.work;
  const std::span<float> logits = runner_.logits(row);
  const Clock::time_point begin = Now();
  SleepIfPlanted(Stage::kSample);
  if (work.draw_failed) throw std::bad_alloc();
  if (work.logprobs >= 0) raw_logits_.assign(logits.begin(), logits.end());  // the sampler changes the row
  const double draw_ms = work.drawn ? work.draw_ms : 0;
  const Result<TokenId> token = work.drawn ? *work.drawn
                                           : work.sampler.Sample(logits, sequence.tokens, work.draw_stream,
                                                                 static_cast<uint64_t>(sequence.length()));
  work.drawn.reset();
  work.summary.nan_logits += work.sampler.nan_count();
  if (!token) {
    Finish(sequence.id, FinishReason::kFailed, token.error());
    return false;
  }
  const bool first = sequence.generated() == 0;
  const std::optional<FinishReason> end = scheduler_.Accept(sequence, *token);
  TokenEvent event{.token = *token, .stop = end == FinishReason::kStop, .decode_ms = first ? 0 : step_ms};
  if (event.decode_ms > 0) event.draft_ms = times_.draft_ms;
  if (work.logprobs >= 0) {
    event.top = TopLogprobs(raw_logits_, work.logprobs, *token, event.logprob.emplace());
  }
  event.at = Now();
  event.sample_ms = draw_ms + MsBetween(begin, event.at);
  (first ? counts_.ttft : counts_.gap).Add(MsBetween(first ? work.submitted : work.last_token, event.at) / 1000);
  work.last_token = event.at;
  counts_.generated_tokens++;
  work.outbox->Push(std::move(event));
  if (end) Finish(sequence.id, *end);
  return !end;
}

void Engine::FinishStarved(RequestId id) {
  if (Sequence* ending = scheduler_.Find(id)) Finish(id, FinishReason::kFailed, std::move(ending->work->no_memory));
}

void Engine::Finish(RequestId id, FinishReason reason, std::optional<Error> error) {
  int64_t kv_pages = 0;
  Sequence* ending = scheduler_.Find(id);
  if (ending == nullptr) return;
  if (const double pin_s = ending->work->pin_s; pin_s > 0)
    ending->pin_until_ms = NowMs() + std::max<int64_t>(1, static_cast<int64_t>(1000 * pin_s));
  const std::unique_ptr<Sequence> sequence = scheduler_.Remove(id, &kv_pages);
  End(*sequence, reason, std::move(error), kv_pages);
}

// Of a sequence that the scheduler does not have, or has no more.
void Engine::End(Sequence& ended, FinishReason reason, std::optional<Error> error, int64_t kv_pages) {
  Sequence* sequence = &ended;
  Work& work = *sequence->work;
  work.summary.pinned_tokens = sequence->pinned_tokens;
  work.summary.kv_pages = kv_pages;
  if (work.drafted && work.decode_ms > 0) work.summary.speculation_gain = work.alone_ms / work.decode_ms;
  work.summary.cache_miss = sequence->miss;
  work.summary.reason = reason;
  work.summary.error = std::move(error);
  work.summary.at = Now();
  work.summary.preemptions = sequence->preemptions;
  if (!work.begun) {
    work.summary.queue_ms = MsBetween(work.submitted, work.summary.at);
    LeaveWaiting(*sequence);
    ForgetDeadline(*sequence);
  }
  if (reason != FinishReason::kCancelled) counts_.end_to_end.Add(MsBetween(work.submitted, work.summary.at) / 1000);
  counts_.prompt_tokens_dropped += static_cast<uint64_t>(sequence->prompt_tokens - work.prompt_done);
  counts_.finished++;
  if (reason == FinishReason::kStop || reason == FinishReason::kLength) {
    const auto forget = [](double& mean, double sample) { mean += (sample - mean) * (mean == 0 ? 1 : 0.1); };
    forget(mean_answer_tokens_, static_cast<double>(sequence->generated()));
    const double share = static_cast<double>(work.summary.cached_tokens) / static_cast<double>(sequence->prompt_tokens);
    cached_share_ += (share - cached_share_) * 0.1;
  }
  Publish();  // first: who has read the end finds it counted
  work.outbox->Finish(std::move(work.summary));
}

}  // namespace ridge::engine
