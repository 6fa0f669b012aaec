// Random traffic over the whole engine, with its integrity proved after each step; and what a step of the scheduler costs.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <random>
#include <string>

#include "engine/engine.h"
#include "engine/fake_program.h"

namespace ridge::engine {
namespace {

using test::FakeProgram;
using namespace std::chrono_literals;

constexpr int64_t kVocab = 31;
constexpr auto kPatience = 120s;

struct Asked {
  Request request;
  Ticket ticket;
  bool scores = false;
  bool cancelled = false;
};

// Of this process.
int64_t ResidentKiB() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::atoll(line.c_str() + 6);
  return 0;
}

// What the heap holds; 0 under sanitizers, which have a heap of their own.
int64_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// RIDGE_STRESS_S=7200 in the environment runs it as long; so many requests otherwise.
std::optional<double> Seconds() {
  const char* given = std::getenv("RIDGE_STRESS_S");
  return given == nullptr ? std::nullopt : std::optional(std::atof(given));
}
constexpr int kStressRequests = 12000;
constexpr int64_t kHeapSlackBytes = 64 << 10;  // what tables of a cache that is full vary by

class Stress : public ::testing::TestWithParam<bool> {};  // recurrent
INSTANTIATE_TEST_SUITE_P(Engine, Stress, ::testing::Bool());

TEST_P(Stress, SubmitsCancelsForksAndEvictionsLeaveEveryAnswerWhole) {
  FakeProgram program(kVocab, GetParam());
  FakeProgram draft(kVocab);
  const EngineOptions options{.vocab = kVocab,
                              .context_tokens = 120,
                              .step_tokens = 48,
                              .max_running = 6,
                              .max_logit_rows = 20,
                              .max_waiting = 64,
                              .check_each_step = true,
                              .draft_slots = 7,
                              .thinking = 3,
                              .state = {.n_pages = 70, .page_tokens = 4},
                              .draft_program = &draft,
                              .draft_vocab = kVocab,
                              .draft_cost_ratio = 0.01};
  auto engine = std::move(*Engine::Start(&program, options));
  std::mt19937 random(11);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  std::vector<std::vector<TokenId>> conversations(5);
  std::deque<Asked> asked;
  uint64_t ended = 0, cancels = 0, cancelled = 0, refused = 0, forks = 0;
  const auto read = [&](Asked& a) {
    std::vector<TokenId> ids;
    TokenEvent event;
    size_t scored = 1;
    for (Outbox::Got got; (got = a.ticket.outbox->Next(kPatience, event)) != Outbox::Got::kEnd;) {
      // Once more: the process may have been stopped meanwhile.
      if (got == Outbox::Got::kNothing) got = a.ticket.outbox->Next(kPatience, event);
      if (got == Outbox::Got::kEnd) break;
      ASSERT_NE(got, Outbox::Got::kNothing);
      if (event.prompt) {
        ASSERT_TRUE(a.scores && ids.empty() && event.token == a.request.prompt.at(scored++));
      } else {
        ids.push_back(event.token);
      }
    }
    const Summary& summary = a.ticket.outbox->summary();
    ASSERT_NE(summary.reason, FinishReason::kFailed) << summary.error->Message();
    ASSERT_TRUE(a.cancelled || summary.reason == FinishReason::kLength);
    ASSERT_TRUE(scored == a.request.prompt.size() || !a.scores || a.cancelled);
    ASSERT_EQ(ids, FakeProgram::Expected(a.request.prompt, ids.size(), kVocab));
    cancelled += summary.reason == FinishReason::kCancelled;
    ended++;
    std::vector<TokenId>& talk = conversations[below(conversations.size())];
    talk = a.request.prompt;
    talk.insert(talk.end(), ids.begin(), ids.end());
    if (talk.size() > 90) talk.resize(below(20));
  };
  const std::optional<double> seconds = Seconds();
  const auto begin = std::chrono::steady_clock::now();
  // After each quarter everything is read to its end, and the heap is looked at. The first quarter fills caches and tables; from then on it must not grow.
  std::vector<int64_t> heap;
  for (int i = 0;; i++) {
    const double part = seconds
                            ? std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / *seconds
                            : static_cast<double>(i) / kStressRequests;
    if (part * 4 >= static_cast<double>(heap.size() + 1)) {
      for (Asked& a : asked) ASSERT_NO_FATAL_FAILURE(read(a));
      asked.clear();
      const EngineStats stats = engine->Stats();
      EXPECT_EQ(stats.running + stats.waiting + stats.pages_held, 0);
      heap.push_back(HeapBytes());
      fmt::print(
          "stress, {}, {:3.0f} %: RSS {} KiB, heap {} bytes; {} requests ended, {} of them forks, {} cancels ({} in "
          "time), {} refused, "
          "{} steps, {} preemptions, {} pages evicted, {} dropped\n",
          GetParam() ? "recurrent" : "attention", 100 * part, ResidentKiB(), heap.back(), ended, forks, cancels,
          cancelled, refused, stats.steps, stats.preemptions, stats.pages_evicted, stats.pages_dropped);
      std::fflush(stdout);
      if (heap.size() == 4) break;
    }
    Request request{.prompt = conversations[below(conversations.size())],
                    .max_tokens = static_cast<int64_t>(below(30)),
                    .sampling = {.temperature = 0},
                    .prompt_logprobs = below(4) == 0 ? 1 : -1,
                    .cache_salt = std::string(below(3) == 0 ? 1 : 0, 's'),
                    .pin_s = 0,
                    .use_cache = below(8) != 0,
                    .priority = static_cast<int32_t>(below(3)),
                    .tenant = std::string(below(3), 't'),
                    .speculation = below(2) == 0 ? Speculation::kAuto : Speculation::kOff};
    if (request.TakesPartInCache() && below(6) == 0) request.pin_s = 0.001 * static_cast<double>(1 + below(20));
    for (size_t n = 1 + below(12); n > 0; n--) request.prompt.push_back(static_cast<TokenId>(below(4)));
    const auto tickets = engine->SubmitGroup(request, static_cast<int64_t>(1 + below(below(6) == 0 ? 5 : 1)));
    if (!tickets) {
      ASSERT_EQ(tickets.error().code, Code::kResourceExhausted) << tickets.error().Message();
      refused++;
    } else {
      for (const Ticket& ticket : *tickets) {
        const bool first = ticket.id == tickets->front().id;
        asked.push_back({request, ticket, first && request.prompt_logprobs >= 0});
      }
      forks += tickets->size() - 1;
    }
    if (!asked.empty() && below(3) == 0) {
      Asked& victim = asked[below(asked.size())];
      victim.cancelled = true;
      cancels++;
      engine->Cancel(victim.ticket.id);
    }
    while (asked.size() > 40 || (!asked.empty() && below(3) == 0)) {
      ASSERT_NO_FATAL_FAILURE(read(asked.front()));
      asked.pop_front();
    }
  }
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.finished, ended);
  EXPECT_EQ(stats.submitted, ended);
  EXPECT_LT(heap.at(3), heap.at(1) + kHeapSlackBytes) << "a leak: the heap after each quarter must stay as it is";
  EXPECT_EQ(stats.prompt_tokens_pending, 0u);
  EXPECT_GT(cancelled, 0u);
  EXPECT_GT(forks, 0u);
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_GT(stats.pages_evicted, 0u);
  EXPECT_GT(stats.prompt_tokens_cached, 0u);
  EXPECT_EQ(stats.draft_failures, 0u);
  RecordProperty("requests", std::to_string(ended));
}

// RIDGE_CANCELS=100000 in the environment does as many.
TEST_P(Stress, CancelsAtEveryStepFreeThePagesWithinOne) {
  const char* given = std::getenv("RIDGE_CANCELS");
  const int cancels = given == nullptr ? 400 : std::atoi(given);
  FakeProgram program(kVocab, GetParam());
  auto engine = std::move(*Engine::Start(&program, {.vocab = kVocab,
                                                    .context_tokens = 120,
                                                    .step_tokens = 12,
                                                    .max_running = 4,
                                                    .max_logit_rows = 8,
                                                    .check_each_step = true,
                                                    .state = {.n_pages = 70, .page_tokens = 4}}));
  std::mt19937 random(5);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  TokenEvent event;
  int cancelled = 0;
  for (int i = 0; i < cancels; i++) {
    // Shared: the last call may come when the answer was read to its end already.
    const auto end_step = std::make_shared<std::atomic<int>>(0);
    std::vector<TokenId> prompt;
    for (size_t n = 1 + below(50); n > 0; n--) prompt.push_back(static_cast<TokenId>(below(3)));
    Ticket beside;
    if (i % 2 == 1) beside = *engine->Submit({.prompt = {1, 2, 3}, .sampling = {.temperature = 0}});
    // So that the cancel finds it running, however late it comes: its answer takes twice as many.
    int let_run = program.steps + 30;
    program.LetRun(let_run);
    const Ticket ticket = *engine->Submit({.prompt = prompt,
                                           .sampling = {.temperature = 0},
                                           .use_cache = below(3) != 0,
                                           .speculation = Speculation::kAuto,
                                           .notify = [end_step, &program] { *end_step = program.steps.load(); }});
    for (size_t wait = below(20); wait > 0;) {
      const Outbox::Got got = ticket.outbox->Next(20ms, event);
      if (got == Outbox::Got::kEnd) break;
      if (got == Outbox::Got::kToken) wait--;
      if (got == Outbox::Got::kNothing) program.LetRun(++let_run);
    }
    engine->Cancel(ticket.id);
    const int step = program.steps;
    program.LetAllRun();
    while (ticket.outbox->Next(kPatience, event) == Outbox::Got::kToken) {
    }
    ASSERT_TRUE(ticket.outbox->finished());
    if (ticket.outbox->summary().reason == FinishReason::kCancelled) {
      ASSERT_LE(*end_step, step + 1) << "cancel " << i;
      cancelled++;
    }
    if (!beside.outbox) {
      ASSERT_EQ(engine->Stats().pages_held, 0) << "cancel " << i;
    } else {
      engine->Cancel(beside.id);
      while (beside.outbox->Next(kPatience, event) == Outbox::Got::kToken) {
      }
    }
  }
  EXPECT_GT(cancelled, cancels / 2);
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.pages_held + stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.pages_free + stats.pages_cached, stats.pages_capacity);
}

double CpuUs() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

// 64 sequences decode beside 100,000 cached pages. The time is printed, not judged: a machine may be busy.
TEST(SchedulerCost, OfAStepBeside100000CachedPages) {
  constexpr int64_t kPrompt = 1600, kSequences = 2000;
  cache::PagePool pool = std::move(*cache::PagePool::Create(110'000));
  Scheduler scheduler({.max_running = 64,
                       .step_tokens = 1 << 20,
                       .context_tokens = 4096,
                       .page_tokens = 32,
                       .cache_pages = 110'000,
                       .max_logit_rows = 96},
                      &pool);
  std::mt19937 random(3);
  const auto add = [&](RequestId id) {
    auto sequence = std::make_unique<Sequence>();
    sequence->id = id;
    sequence->prompt_tokens = kPrompt;
    sequence->cache_root = "";
    sequence->looks_up = true;
    for (int64_t i = 0; i < kPrompt; i++) sequence->tokens.push_back(static_cast<TokenId>(random() % 50000));
    scheduler.Add(std::move(sequence));
  };
  RequestId id = 1;
  for (; id <= kSequences; id++) {
    add(id);
    (void)scheduler.Next();
    scheduler.Commit(1);
    scheduler.Remove(id);
  }
  EXPECT_GE(pool.idle_pages(), 100'000);
  for (int i = 0; i < 64; i++) add(id++);
  (void)scheduler.Next();
  scheduler.Commit(1);
  double us = 0;
  constexpr int kSteps = 320;
  for (int step = -1; step < kSteps; step++) {  // the first one reads the prompts, for drafts
    for (const RequestId each : scheduler.Ids())
      (void)scheduler.Accept(const_cast<Sequence&>(*scheduler.Find(each)), static_cast<TokenId>(random() % 50000));
    const double begin = CpuUs();
    const Plan& plan = scheduler.Next();
    scheduler.Commit(5);
    if (step >= 0) us += CpuUs() - begin;
    ASSERT_EQ(plan.chunks.size(), 64u);
  }
  EXPECT_TRUE(scheduler.CheckIntegrity());
  std::printf("scheduler: %.1f us per step of 64 sequences beside %lld cached pages\n", us / kSteps,
              static_cast<long long>(scheduler.cache().pages()));
}

}  // namespace
}  // namespace ridge::engine
