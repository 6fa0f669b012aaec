// Allocations that fail on the engine's thread, while a step is planned or its results are taken: one request fails at most, all others go on, bit for
// bit.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "engine/fake_program.h"

namespace {

thread_local int fail_at = 0;         // 1: the thread's next allocation fails; 0: none does
thread_local size_t asked_bytes = 0;  // by the thread so far

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  asked_bytes += bytes;
  if (fail_at > 0 && --fail_at == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
// All forms that share their delete: a sanitizer's own would not match it.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  if (fail_at > 0 && --fail_at == 0) return nullptr;
  return std::malloc(bytes > 0 ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace ridge::engine {
namespace {

using test::FakeProgram;
using namespace std::chrono_literals;

constexpr int64_t kVocab = 61;

// Arms the failure when the n-th step has run.
class Arming : public FakeProgram {
 public:
  using FakeProgram::FakeProgram;
  Status Run(const backend::Step& step, backend::StateStore& store, std::span<float> logits) override {
    const Status ran = FakeProgram::Run(step, store, logits);
    if (steps == arm_at_step) fail_at = allocation;
    return ran;
  }
  std::atomic<int> arm_at_step = 0;  // read when the engine tells an end, while the test goes on
  int allocation = 0;
};

class NoMemory : public ::testing::TestWithParam<bool> {};  // recurrent
INSTANTIATE_TEST_SUITE_P(Engine, NoMemory, ::testing::Bool());

TEST_P(NoMemory, ARequestWhoseResultsCannotBeTakenFailsAlone) {
  int failed_requests = 0;
  for (int step = 1; step <= 8; step++) {
    for (int allocation = 1; allocation <= 12; allocation++) {
      Arming program(kVocab, GetParam());
      program.arm_at_step = step;
      program.allocation = allocation;
      program.LetRun(0);
      auto engine = std::move(*Engine::Start(&program, {.vocab = kVocab,
                                                        .context_tokens = 60,
                                                        .step_tokens = 32,
                                                        .max_running = 4,
                                                        .state = {.n_pages = 60, .page_tokens = 4}}));
      std::vector<Ticket> tickets;
      std::vector<std::vector<TokenId>> prompts;
      for (TokenId i = 0; i < 3; i++) {
        prompts.push_back({i, 5, 6, 7, static_cast<TokenId>(8 + i)});
        // Whoever is told is past the results: what fails later is no request's.
        tickets.push_back(*engine->Submit({.prompt = prompts.back(),
                                           .max_tokens = 3 + i,
                                           .sampling = {.temperature = 0},
                                           .logprobs = 3,
                                           .notify = [&] {
                                             if (program.steps >= program.arm_at_step) fail_at = 0;
                                           }}));
      }
      program.LetAllRun();
      int failed = 0;
      for (size_t i = 0; i < 3; i++) {
        std::vector<TokenId> ids;
        TokenEvent event;
        Outbox::Got got;
        while ((got = tickets[i].outbox->Next(120s, event)) == Outbox::Got::kToken) ids.push_back(event.token);
        ASSERT_EQ(got, Outbox::Got::kEnd) << "step " << step << ", allocation " << allocation;
        const Summary& summary = tickets[i].outbox->summary();
        if (summary.reason == FinishReason::kFailed) {
          EXPECT_EQ(summary.error->code, Code::kResourceExhausted);
          failed++;
          continue;
        }
        EXPECT_EQ(ids, FakeProgram::Expected(prompts[i], 3 + i, kVocab));
      }
      EXPECT_LE(failed, 1) << "step " << step << ", allocation " << allocation;
      failed_requests += failed;
      EXPECT_EQ(engine->Stats().pages_held, 0);
      program.arm_at_step = 0;
      const auto after = engine->Submit({.prompt = {9, 9, 9}, .max_tokens = 4, .sampling = {.temperature = 0}});
      std::vector<TokenId> ids;
      TokenEvent event;
      while (after->outbox->Next(120s, event) == Outbox::Got::kToken) ids.push_back(event.token);
      EXPECT_EQ(ids, FakeProgram::Expected({9, 9, 9}, 4, kVocab));
    }
  }
  EXPECT_GT(failed_requests, 10);
}

TEST_P(NoMemory, AGroupIsAcceptedWholeOrNotAtAll) {
  FakeProgram program(kVocab, GetParam());
  auto engine = std::move(*Engine::Start(&program, {.vocab = kVocab,
                                                    .context_tokens = 60,
                                                    .step_tokens = 16,
                                                    .max_running = 1,
                                                    .max_waiting = 3,
                                                    .prefix_cache = false,
                                                    .state = {.n_pages = 60, .page_tokens = 4}}));
  int refused = 0;
  bool came = true;
  for (int allocation = 1; came; allocation++) {
    ASSERT_LT(allocation, 500);
    const Request request{
        .prompt = {1, 2, 3, 4, 5}, .max_tokens = 2, .sampling = {.temperature = 0}, .tenant = std::string(20, 't')};
    fail_at = allocation;
    const auto tickets = engine->SubmitGroup(request, 3);
    came = std::exchange(fail_at, 0) == 0;
    if (!tickets) {
      EXPECT_EQ(tickets.error().code, Code::kResourceExhausted);
      EXPECT_EQ(tickets.error().what, "no memory for the request") << "allocation " << allocation;
      refused++;
    } else {
      for (const Ticket& ticket : *tickets) {
        std::vector<TokenId> ids;
        TokenEvent event;
        while (ticket.outbox->Next(120s, event) == Outbox::Got::kToken) ids.push_back(event.token);
        EXPECT_EQ(ids, FakeProgram::Expected(request.prompt, 2, kVocab));
      }
    }
    const EngineStats stats = engine->Stats();
    EXPECT_EQ(stats.waiting, 0) << "allocation " << allocation;
    EXPECT_EQ(stats.submitted, stats.finished);
  }
  EXPECT_GT(refused, 20);
}

// Fails allocations of the engine itself, not those of this program.
class ArmingOthers : public FakeProgram {
 public:
  using FakeProgram::FakeProgram;
  Status Run(const backend::Step& step, backend::StateStore& store, std::span<float> logits) override {
    const int left = std::exchange(fail_at, 0);
    const Status ran = FakeProgram::Run(step, store, logits);
    fail_at = steps == arm_at_step ? allocation : left;
    return ran;
  }
  std::atomic<int> arm_at_step = 0;  // read when the engine tells an end, while the test goes on
  int allocation = 0;
};

TEST_P(NoMemory, AnAllocationThatFailsAnywhereEndsOneRequestAtMost) {
  int failed_requests = 0;
  for (int step = 1; step <= 6; step++) {
    for (int allocation = 1; allocation <= 60; allocation++) {
      ArmingOthers program(kVocab, GetParam());
      program.arm_at_step = step;
      program.allocation = allocation;
      program.LetRun(0);  // all are there when the first step ends
      auto engine = std::move(*Engine::Start(&program, {.vocab = kVocab,
                                                        .context_tokens = 60,
                                                        .step_tokens = 16,
                                                        .max_running = 3,
                                                        .max_logit_rows = 8,
                                                        .checkpoints = 4,
                                                        .draft_slots = 4,
                                                        .state = {.n_pages = 15, .page_tokens = 4}}));
      std::vector<Ticket> tickets;
      std::vector<std::vector<TokenId>> prompts;
      for (TokenId i = 0; i < 5; i++) {
        prompts.push_back({1, 2, 3, 4, 5, 6, 7, 8, static_cast<TokenId>(8 + i), 4, 5, 6, 7, 8});
        tickets.push_back(*engine->Submit({.prompt = prompts.back(),
                                           .max_tokens = 6 + i,
                                           .sampling = {.temperature = 0},
                                           .priority = i % 2,
                                           .tenant = std::string(20, static_cast<char>('a' + i)),
                                           .speculation = Speculation::kLookup}));
      }
      program.LetAllRun();
      const auto where = [&] { return "step " + std::to_string(step) + ", allocation " + std::to_string(allocation); };
      int failed = 0;
      for (size_t i = 0; i < tickets.size(); i++) {
        std::vector<TokenId> ids;
        TokenEvent event;
        Outbox::Got got;
        while ((got = tickets[i].outbox->Next(120s, event)) == Outbox::Got::kToken) ids.push_back(event.token);
        ASSERT_EQ(got, Outbox::Got::kEnd) << where();
        const Summary& summary = tickets[i].outbox->summary();
        if (summary.reason == FinishReason::kFailed) {
          EXPECT_EQ(summary.error->code, Code::kResourceExhausted) << where();
          EXPECT_EQ(summary.error->what, "no memory for the request");
          failed++;
          continue;
        }
        EXPECT_EQ(ids, FakeProgram::Expected(prompts[i], 6 + i, kVocab)) << where();
      }
      EXPECT_LE(failed, 1) << where();
      failed_requests += failed;
      EXPECT_EQ(engine->Stats().pages_held, 0) << where();
      EXPECT_EQ(engine->Stats().finished, 5u);
      const auto after = engine->Submit({.prompt = {9, 9, 9}, .max_tokens = 4, .sampling = {.temperature = 0}});
      std::vector<TokenId> ids;
      TokenEvent event;
      while (after->outbox->Next(120s, event) == Outbox::Got::kToken) ids.push_back(event.token);
      if (after->outbox->summary().reason != FinishReason::kFailed)  // the failure may have come as late as this
        EXPECT_EQ(ids, FakeProgram::Expected({9, 9, 9}, 4, kVocab)) << where();
    }
  }
  EXPECT_GT(failed_requests, 10);
}

// The n-th allocation of a scheduler at work, which has to preempt, share, copy and draft.
class OneFailure {
 public:
  explicit OneFailure(int at) : left_(at) {}
  // False: it failed in here.
  bool Try(const auto& work) {
    fail_at = left_;
    bool done = true;
    try {
      work();
    } catch (const std::bad_alloc&) {
      done = false;
    }
    left_ = std::exchange(fail_at, 0);
    return done;
  }
  bool came() const { return left_ == 0; }

 private:
  int left_;
};

TEST_P(NoMemory, ASchedulerStaysWholeWhicheverAllocationFails) {
  int starved = 0, refused = 0;
  for (int at = 1;; at++) {
    OneFailure failure(at);
    auto pool = std::move(*cache::PagePool::Create(14));
    Scheduler scheduler({.max_running = 3,
                         .step_tokens = 16,
                         .context_tokens = 52,
                         .page_tokens = 4,
                         .cache_pages = 14,
                         .max_logit_rows = 8,
                         .recurrent = GetParam(),
                         .checkpoints = 4,
                         .draft_slots = 4,
                         .thinking = 7},
                        &pool);
    std::map<RequestId, std::vector<TokenId>> ended;
    int failed = 0;
    RequestId next = 1;
    const auto next_token = [](const Sequence& s) {
      return s.tokens[static_cast<size_t>(s.length()) - 5];  // the text repeats
    };
    const auto remove = [&](RequestId id, bool done) {
      std::unique_ptr<Sequence> gone;
      ASSERT_TRUE(failure.Try([&] { gone = scheduler.Remove(id); })) << "an end needs no memory: allocation " << at;
      ASSERT_NE(gone, nullptr);
      done ? (void)(ended[id] = gone->tokens) : (void)failed++;
    };
    for (int turn = 0; next <= 9 || !scheduler.idle(); turn++) {
      ASSERT_LT(turn, 2000) << "allocation " << at;
      if (next <= 9 && turn % 2 == 0) {
        auto sequence = std::make_unique<Sequence>();
        sequence->id = next;
        sequence->tokens = {1, 2, 3, 4, 5, 7, 2, 3, static_cast<TokenId>(next % 3 + 9), 5, 6, 2, 3, 4, 5};
        if (next % 3 == 0) sequence->tokens.erase(sequence->tokens.begin() + 5);  // a thought left out
        sequence->prompt_tokens = sequence->length();
        sequence->max_tokens = 4 + static_cast<int64_t>(next) * 3;
        sequence->priority = next % 4 == 0 ? 1 : 0;
        sequence->tenant = std::string(20, static_cast<char>('a' + next % 3));
        if (next % 5 != 0) sequence->cache_root = std::string(30, 'r');
        sequence->ephemeral_root = next == 2;
        sequence->looks_up = true;
        sequence->pin_until_ms = next % 4 == 1 ? 100000 : 0;
        next++;
        if (!failure.Try([&] { scheduler.Add(std::move(sequence)); })) {
          ASSERT_NE(sequence, nullptr) << "who could not be added is still there";
          refused++, failed++;
        }
      }
      const Plan* plan = nullptr;
      ASSERT_TRUE(failure.Try([&] { plan = &scheduler.Next(); })) << "allocation " << at;
      scheduler.TakeCopies();
      scheduler.TakeStateCopies();
      if (const std::optional<RequestId> id = scheduler.starved()) {
        EXPECT_TRUE(plan->chunks.empty());
        starved++;
        ASSERT_NO_FATAL_FAILURE(remove(*id, false));
      } else {
        const std::vector<Chunk> chunks = plan->chunks;
        if (turn % 17 == 16 && !chunks.empty()) {
          scheduler.Abandon();
        } else if (!chunks.empty()) {
          ASSERT_TRUE(failure.Try([&] { scheduler.Commit(2.0); }));
          for (const Chunk& chunk : chunks) {
            if (!chunk.logits) continue;
            Sequence& s = *chunk.sequence;
            const std::vector<TokenId> drafts = s.drafts;
            std::optional<FinishReason> end;
            for (size_t accepted = 0;; accepted++) {
              end = scheduler.Accept(s, next_token(s));
              if (end || drafts.empty()) break;
              if (accepted == drafts.size() || s.tokens.back() != drafts[accepted]) {
                scheduler.EndDrafts(s, static_cast<int64_t>(accepted));
                break;
              }
              scheduler.AcceptDraft(s);
            }
            if (end) ASSERT_NO_FATAL_FAILURE(remove(s.id, true));
          }
        }
      }
      const Status whole = scheduler.CheckIntegrity();
      ASSERT_TRUE(whole) << whole.error().Message() << ", allocation " << at << ", turn " << turn;
    }
    EXPECT_LE(failed, 1) << "allocation " << at;
    for (const auto& [id, tokens] : ended) {
      const size_t prompt = id % 3 == 0 ? 14 : 15;
      ASSERT_EQ(tokens.size(), prompt + 4 + 3 * id);
      for (size_t i = prompt; i < tokens.size(); i++) ASSERT_EQ(tokens[i], tokens[i - 5]);
    }
    if (!failure.came()) {
      EXPECT_GT(at, 200);
      break;
    }
  }
  EXPECT_GT(starved, 3);
  EXPECT_GT(refused, 3);
}

// The first allocation of one draw fails, in each step that has a draw of that place until one did.
class ArmingDraws : public FakeProgram {
 public:
  using FakeProgram::FakeProgram;
  void ForEach(size_t n, const std::function<void(size_t)>& fn) override {
    for (size_t i = 0; i < n; i++) {
      if (i == place) fail_at = 1;
      fn(i);
      if (i == place && std::exchange(fail_at, 0) == 0) place = kNone;
    }
  }
  // The first step ends when all requests are there.
  Status Run(const backend::Step& step, backend::StateStore& store, std::span<float> logits) override {
    running = true;
    running.notify_all();
    all_there.wait(false);
    return FakeProgram::Run(step, store, logits);
  }
  static constexpr size_t kNone = 99;
  size_t place = kNone;
  std::atomic<bool> running = false, all_there = false;
};

TEST_P(NoMemory, ADrawWithoutMemoryFailsItsRequestAlone) {
  const auto answers = [](size_t place, bool recurrent) {
    ArmingDraws program(kVocab, recurrent);
    program.place = place;
    auto engine = std::move(*Engine::Start(&program, {.vocab = kVocab,
                                                      .context_tokens = 60,
                                                      .step_tokens = 32,
                                                      .max_running = 4,
                                                      .state = {.n_pages = 60, .page_tokens = 4}}));
    // The first step is this one's alone; the three have their first draws, which are those that allocate, together in the second.
    const Ticket first = *engine->Submit({.prompt = {9, 9}, .max_tokens = 1, .sampling = {.temperature = 0}});
    program.running.wait(false);
    std::vector<Ticket> tickets;
    for (TokenId i = 0; i < 3; i++)
      tickets.push_back(*engine->Submit({.prompt = {i, 5, 6, 7},
                                         .max_tokens = 9,
                                         .sampling = {.temperature = 1, .top_k = 0, .top_p = 0.9F, .seed = 7}}));
    program.all_there = true;
    program.all_there.notify_all();
    std::vector<std::vector<TokenId>> all(3);
    for (size_t i = 0; i < 3; i++) {
      TokenEvent event;
      while (tickets[i].outbox->Next(120s, event) == Outbox::Got::kToken) all[i].push_back(event.token);
      const Summary& summary = tickets[i].outbox->summary();
      if (summary.reason != FinishReason::kFailed) continue;
      EXPECT_EQ(summary.error->code, Code::kResourceExhausted);
      all[i].assign(1, -1);
    }
    EXPECT_EQ(engine->Stats().pages_held, 0);
    return all;
  };
  const auto whole = answers(ArmingDraws::kNone, GetParam());
  size_t failed = 0;
  for (size_t place = 0; place < 3; place++) {
    const auto with_failure = answers(place, GetParam());
    for (size_t i = 0; i < 3; i++) {
      EXPECT_EQ(whole[i].size(), 9u);
      if (with_failure[i] == std::vector<TokenId>{-1})
        failed++;
      else
        EXPECT_EQ(with_failure[i], whole[i]) << "place " << place;
    }
  }
  EXPECT_EQ(failed, 3u) << "one each time";
}

// A bias of a whole vocabulary has megabytes.
TEST(Memory, TheAnswersOfAGroupShareTheirBias) {
  FakeProgram program(kVocab);
  program.LetRun(0);
  auto engine = std::move(*Engine::Start(
      &program, {.vocab = kVocab, .context_tokens = 60, .max_running = 4, .state = {.n_pages = 60, .page_tokens = 4}}));
  Request request{.prompt = {1, 2, 3}, .max_tokens = 1};
  request.sampling.logit_bias.resize(100'000);
  const size_t before = asked_bytes;
  const auto tickets = engine->SubmitGroup(request, 50);
  ASSERT_TRUE(tickets) << tickets.error().Message();
  EXPECT_LT(asked_bytes - before, 2 * request.sampling.logit_bias.size() * sizeof(sampling::LogitBias));
  program.LetAllRun();
}

}  // namespace
}  // namespace ridge::engine
