// Allocations that fail on the engine's thread while a step's results are taken: that request fails, all others go on, bit for bit.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "engine/engine.h"
#include "engine/fake_program.h"

namespace {

thread_local int fail_at = 0;  // 1: the thread's next allocation fails; 0: none does

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
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
  int arm_at_step = 0, allocation = 0;
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
      int failed = 0;
      for (size_t i = 0; i < 3; i++) {
        std::vector<TokenId> ids;
        TokenEvent event;
        Outbox::Got got;
        while ((got = tickets[i].outbox->Next(10s, event)) == Outbox::Got::kToken) ids.push_back(event.token);
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
      while (after->outbox->Next(10s, event) == Outbox::Got::kToken) ids.push_back(event.token);
      EXPECT_EQ(ids, FakeProgram::Expected({9, 9, 9}, 4, kVocab));
    }
  }
  EXPECT_GT(failed_requests, 10);
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
  static constexpr size_t kNone = 99;
  size_t place = kNone;
};

TEST_P(NoMemory, ADrawWithoutMemoryFailsItsRequestAlone) {
  const auto answers = [](size_t place, bool recurrent) {
    ArmingDraws program(kVocab, recurrent);
    program.place = place;
    program.step_ms = 5;  // so that all three are there when the first of them draws
    auto engine = std::move(*Engine::Start(&program, {.vocab = kVocab,
                                                      .context_tokens = 60,
                                                      .step_tokens = 32,
                                                      .max_running = 4,
                                                      .state = {.n_pages = 60, .page_tokens = 4}}));
    std::vector<Ticket> tickets;
    for (TokenId i = 0; i < 3; i++)
      tickets.push_back(*engine->Submit({.prompt = {i, 5, 6, 7},
                                         .max_tokens = 9,
                                         .sampling = {.temperature = 1, .top_k = 0, .top_p = 0.9F, .seed = 7}}));
    std::vector<std::vector<TokenId>> all(3);
    for (size_t i = 0; i < 3; i++) {
      TokenEvent event;
      while (tickets[i].outbox->Next(10s, event) == Outbox::Got::kToken) all[i].push_back(event.token);
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

}  // namespace
}  // namespace ridge::engine
