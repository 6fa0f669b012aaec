#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "sampling/sampler.h"

namespace ridge::engine {
namespace {

double MsBetween(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

}  // namespace

struct Work {
  sampling::Sampler sampler;
  uint64_t draw_stream;
  std::shared_ptr<Outbox> outbox;
  Clock::time_point submitted;
  bool begun = false;
  Summary summary;
};

Sequence::Sequence() = default;
Sequence::~Sequence() = default;

Engine::Engine(const EngineOptions& options, cache::PagePool pool, std::unique_ptr<backend::StateStore> state,
               backend::Program* program)
    : options_(options),
      pool_(std::move(pool)),
      state_(std::move(state)),
      scheduler_({.max_running = options.max_running,
                  .step_tokens = options.step_tokens,
                  .context_tokens = options.context_tokens,
                  .page_tokens = static_cast<int32_t>(options.state.page_tokens)},
                 &pool_),
      runner_(program, state_.get(), options.vocab, options.max_running) {}

Result<std::unique_ptr<Engine>> Engine::Start(backend::Program* program, const EngineOptions& options) {
  if (options.state.n_pages > cache::PagePool::kMaxCapacityPages) {
    return Fail(Code::kOutOfRange, "too many KV pages")
        .Found(std::to_string(options.state.n_pages))
        .Expected(std::to_string(cache::PagePool::kMaxCapacityPages) + " at most");
  }
  RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<backend::StateStore> state, program->NewState(options.state));
  RIDGE_ASSIGN_OR_RETURN(cache::PagePool pool, cache::PagePool::Create(static_cast<int32_t>(options.state.n_pages)));
  std::unique_ptr<Engine> engine(new Engine(options, std::move(pool), std::move(state), program));
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

Result<Ticket> Engine::Submit(Request request) {
  const Clock::time_point now = Clock::now();
  if (request.prompt.empty()) return Fail(Code::kInvalidArgument, "the prompt has no tokens").Expected("one at least");
  for (const TokenId token : request.prompt) {
    if (token >= 0 && token < options_.vocab) continue;
    return Fail(Code::kInvalidArgument, "the token is outside the vocabulary")
        .Where("prompt")
        .Found(std::to_string(token))
        .Expected("0 to " + std::to_string(options_.vocab - 1));
  }
  RIDGE_RETURN_IF_ERROR(scheduler_.CheckFits(static_cast<int64_t>(request.prompt.size())));
  RIDGE_ASSIGN_OR_RETURN(sampling::Sampler sampler,
                         sampling::Sampler::Create(std::move(request.sampling), static_cast<int32_t>(options_.vocab)));
  auto sequence = std::make_unique<Sequence>();
  auto outbox = std::make_shared<Outbox>();
  sequence->prompt_tokens = static_cast<int64_t>(request.prompt.size());
  sequence->tokens = std::move(request.prompt);
  sequence->max_tokens = request.max_tokens < 0 ? -1 : request.max_tokens;
  sequence->stop_tokens = std::move(request.stop_tokens);
  // Tokens are appended while a plan borrows the vector's data only between Commit and Next, but a decode step should not allocate.
  const int64_t most = sequence->max_tokens < 0
                           ? scheduler_.limit_tokens()
                           : std::min(scheduler_.limit_tokens(), sequence->prompt_tokens + sequence->max_tokens);
  sequence->tokens.reserve(static_cast<size_t>(std::max(most, sequence->prompt_tokens)));
  sequence->work = std::unique_ptr<Work>(
      new Work{.sampler = std::move(sampler), .draw_stream = request.draw_stream, .outbox = outbox, .submitted = now});
  RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (not_begun_ >= options_.max_waiting) {
      return Fail(Code::kResourceExhausted, "too many requests wait")
          .Found(std::to_string(not_begun_))
          .Expected(std::to_string(options_.max_waiting) + " at most")
          .Remedy("try again later");
    }
    id = sequence->id = next_id_++;
    not_begun_++;
    inbox_.push_back(std::move(sequence));
  }
  mail_.notify_one();
  return Ticket{id, std::move(outbox)};
}

void Engine::Cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    cancels_.push_back(id);
  }
  mail_.notify_one();
}

bool Engine::TakeMail() {
  std::vector<RequestId> cancels;
  bool stop = false;
  {
    std::unique_lock lock(mutex_);
    mail_.wait(lock, [&] { return stop_ || !inbox_.empty() || !cancels_.empty() || !scheduler_.idle(); });
    for (auto& sequence : inbox_) scheduler_.Add(std::move(sequence));
    inbox_.clear();
    cancels.swap(cancels_);
    stop = stop_;
  }
  for (const RequestId id : stop ? scheduler_.Ids() : cancels) Finish(id, FinishReason::kCancelled);
  return !stop;
}

void Engine::Loop() {
  while (TakeMail()) Step();
}

void Engine::Step() {
  const Plan& plan = scheduler_.Next();
  if (plan.chunks.empty()) return;
  const Clock::time_point begin = Clock::now();
  for (const Chunk& chunk : plan.chunks) {
    Work& work = *chunk.sequence->work;
    if (work.begun) continue;
    work.begun = true;
    work.summary.queue_ms = MsBetween(work.submitted, begin);
    const std::lock_guard lock(mutex_);
    not_begun_--;
  }
  const Status ran = runner_.Run(plan);
  const double step_ms = MsBetween(begin, Clock::now());
  const std::vector<Chunk> chunks = plan.chunks;  // Finish ends the plan's life
  if (!ran) {
    for (const Chunk& chunk : chunks) Finish(chunk.sequence->id, FinishReason::kFailed, ran.error());
    return;
  }
  scheduler_.Commit();
  int64_t row = 0;
  for (const Chunk& chunk : chunks) {
    Sequence& sequence = *chunk.sequence;
    if (sequence.generated() == 0) {
      sequence.work->summary.prompt_ms += step_ms;
      sequence.work->summary.prompt_chunks++;
    }
    if (chunk.logits) {
      Sample(chunk, row++, step_ms);
    } else if (sequence.pending() == 0) {
      Finish(sequence.id, FinishReason::kLength);  // only the prompt was asked for
    }
  }
}

void Engine::Sample(const Chunk& chunk, int64_t row, double step_ms) {
  Sequence& sequence = *chunk.sequence;
  Work& work = *sequence.work;
  const Clock::time_point begin = Clock::now();
  const auto token = work.sampler.Sample(runner_.logits(row), sequence.tokens, work.draw_stream,
                                         static_cast<uint64_t>(sequence.length()));
  work.summary.nan_logits += work.sampler.nan_count();
  if (!token) return Finish(sequence.id, FinishReason::kFailed, token.error());
  const bool first = sequence.generated() == 0;
  const std::optional<FinishReason> end = scheduler_.Accept(sequence, *token);
  const Clock::time_point now = Clock::now();
  work.outbox->Push({.token = *token,
                     .stop = end == FinishReason::kStop,
                     .decode_ms = first ? 0 : step_ms,
                     .sample_ms = MsBetween(begin, now),
                     .at = now});
  if (end) Finish(sequence.id, *end);
}

void Engine::Finish(RequestId id, FinishReason reason, std::optional<Error> error) {
  const std::unique_ptr<Sequence> sequence = scheduler_.Remove(id);
  if (!sequence) return;
  Work& work = *sequence->work;
  work.summary.reason = reason;
  work.summary.error = std::move(error);
  work.summary.at = Clock::now();
  if (!work.begun) {
    work.summary.queue_ms = MsBetween(work.submitted, work.summary.at);
    const std::lock_guard lock(mutex_);
    not_begun_--;
  }
  work.outbox->Finish(std::move(work.summary));
}

}  // namespace ridge::engine
