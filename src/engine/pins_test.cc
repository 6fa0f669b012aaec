// Pinned prefixes and dead thinking turns, through the whole engine.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/fake_program.h"

namespace ridge::engine {
namespace {

using test::FakeProgram;
using namespace std::chrono_literals;

constexpr int64_t kVocab = 97;
constexpr TokenId kThink = 50;

// The first token of an answer to a prompt that ends with 60 is the one that begins its thoughts.
class ThinkingProgram : public FakeProgram {
 public:
  using FakeProgram::FakeProgram;
  uint64_t Choose(uint64_t hash, std::span<const TokenId> tokens) const override {
    if (tokens.back() == 60) return kThink;
    return hash % 40;
  }
};

class Pins : public ::testing::TestWithParam<bool> {  // recurrent
 protected:
  // Kept here, because the engine uses it until its own end.
  template <class Program>
  Program& New() {
    auto program = std::make_unique<Program>(kVocab, GetParam());
    Program& borrowed = *program;
    program_ = std::move(program);
    return borrowed;
  }
  void Start(FakeProgram& program, int64_t pages, int64_t context = 40) {
    engine = std::move(*Engine::Start(&program, {.vocab = kVocab,
                                                 .context_tokens = context,
                                                 .step_tokens = 16,
                                                 .max_running = 4,
                                                 .check_each_step = true,
                                                 .checkpoints = 8,
                                                 .thinking = kThink,
                                                 .state = {.n_pages = pages, .page_tokens = 4}}));
  }
  struct Said {
    std::vector<TokenId> ids;
    Summary summary;
    Clock::time_point end;  // of the answer
  };
  Said Read(const Ticket& ticket) {
    Said said;
    TokenEvent event;
    while (ticket.outbox->Next(120s, event) == Outbox::Got::kToken)
      said.ids.push_back(event.token), said.end = event.at;
    said.summary = ticket.outbox->summary();
    return said;
  }
  // When that was seen first.
  Clock::time_point UntilNoneIsPinned() {
    for (int i = 0; i < 10000 && engine->Stats().pages_pinned > 0; i++) std::this_thread::sleep_for(5ms);
    return Clock::now();
  }
  Said Ask(std::vector<TokenId> prompt, int64_t n, double pin_s = 0) {
    return Read(*engine->Submit(
        {.prompt = std::move(prompt), .max_tokens = n, .sampling = {.temperature = 0}, .pin_s = pin_s}));
  }
  static std::vector<TokenId> Prompt(size_t n, TokenId first) {
    std::vector<TokenId> prompt;
    for (size_t i = 0; i < n; i++) prompt.push_back(static_cast<TokenId>((first + static_cast<TokenId>(i) * 5) % 40));
    return prompt;
  }

  std::unique_ptr<FakeProgram> program_;
  std::unique_ptr<Engine> engine;
};
INSTANTIATE_TEST_SUITE_P(Engine, Pins, ::testing::Bool());

TEST_P(Pins, APinnedPromptOutlivesTrafficThatFillsThePoolAndStarvesNobody) {
  FakeProgram& program = New<FakeProgram>();
  Start(program, 24);
  const std::vector<TokenId> kept = Prompt(16, 1), loose = Prompt(16, 2);
  EXPECT_EQ(Ask(loose, 2).summary.pinned_tokens, 0);
  EXPECT_EQ(Ask(kept, 2, 600).summary.pinned_tokens, 16);
  EXPECT_EQ(engine->Stats().pages_pinned, 4);
  EXPECT_EQ(engine->Stats().pages_pinned_limit, 12);
  std::vector<Ticket> tickets;
  for (TokenId i = 3; i < 30; i++)
    tickets.push_back(*engine->Submit({.prompt = Prompt(20, i), .max_tokens = 20, .sampling = {.temperature = 0}}));
  for (size_t i = 0; i < tickets.size(); i++) {
    const Said said = Read(tickets[i]);
    EXPECT_EQ(said.ids, FakeProgram::Expected(Prompt(20, static_cast<TokenId>(i) + 3), 20, kVocab));
  }
  std::vector<TokenId> again = kept;
  again.push_back(9);
  const Said said = Ask(again, 4);
  EXPECT_EQ(said.ids, FakeProgram::Expected(again, 4, kVocab));
  EXPECT_EQ(said.summary.cached_tokens, GetParam() ? 8 : 16)
      << "the checkpoint near the end of the prompt, or all of it";
  again = loose;
  again.push_back(9);
  const Said other = Ask(again, 4);
  EXPECT_EQ(other.summary.cached_tokens, 0);
  EXPECT_EQ(other.summary.cache_miss->reason, cache::MissReason::kEvicted);
  EXPECT_GE(other.summary.cache_miss->gone_ms, 0);
}

TEST_P(Pins, TheyEndOnTheirTimeOnAnIdleEngineToo) {
  FakeProgram& program = New<FakeProgram>();
  Start(program, 24);
  const Said said = Ask(Prompt(9, 1), 2, 0.05);
  EXPECT_EQ(said.summary.pinned_tokens, 9);
  EXPECT_GE(UntilNoneIsPinned() - said.end, 49ms);  // the engine counts whole milliseconds
  EXPECT_EQ(engine->Stats().pages_pinned, 0);
  EXPECT_EQ(engine->Stats().pages_cached, 3);
}

TEST_P(Pins, TheirTimeBeginsWhenTheAnswerEnds) {
  FakeProgram& program = New<FakeProgram>();
  program.step_ms = 20;
  Start(program, 24);
  const Said said = Ask(Prompt(9, 1), 30, 0.4);
  EXPECT_EQ(said.summary.pinned_tokens, 9) << "an answer of 0.6 s";
  EXPECT_GE(UntilNoneIsPinned() - said.end, 399ms);
}

TEST_P(Pins, OnlyWhatCanBeKeptIsAccepted) {
  FakeProgram& program = New<FakeProgram>();
  Start(program, 24);
  const auto refusal = [&](const Request& request) {
    const auto ticket = engine->Submit(request);
    return ticket ? std::string() : ticket.error().where;
  };
  EXPECT_EQ(refusal({.prompt = {1}, .max_tokens = 1, .pin_s = -1}), "cache_pin_s");
  EXPECT_EQ(refusal({.prompt = {1}, .max_tokens = 1, .pin_s = 1e9}), "cache_pin_s");
  EXPECT_EQ(refusal({.prompt = {1}, .max_tokens = 1, .pin_s = std::numeric_limits<double>::quiet_NaN()}),
            "cache_pin_s");
  EXPECT_EQ(refusal({.prompt = {1}, .max_tokens = 1, .pin_s = 5, .use_cache = false}), "cache_pin_s");
  Start(program, 10);
  EXPECT_EQ(refusal({.prompt = {1}, .max_tokens = 1, .pin_s = 5}), "cache_pin_s") << "one context fills the pool";
  EXPECT_EQ(refusal({.prompt = {1}, .max_tokens = 1}), "");
}

TEST_P(Pins, ThePoolWorksToItsLastPageBesideThem) {
  FakeProgram& program = New<FakeProgram>();
  Start(program, 12);  // two pages more than one context
  EXPECT_EQ(Ask(Prompt(16, 1), 2, 600).summary.pinned_tokens, 8) << "as much as may be";
  std::vector<Ticket> tickets;
  for (TokenId i = 3; i < 12; i++)
    tickets.push_back(*engine->Submit({.prompt = Prompt(12, i), .max_tokens = -1, .sampling = {.temperature = 0}}));
  for (size_t i = 0; i < tickets.size(); i++)
    EXPECT_EQ(Read(tickets[i]).ids, FakeProgram::Expected(Prompt(12, static_cast<TokenId>(i) + 3), 28, kVocab));
}

TEST_P(Pins, AConversationThatLeavesItsThoughtsOutFreesThem) {
  ThinkingProgram& program = New<ThinkingProgram>();
  Start(program, 60, 100);
  std::vector<TokenId> prompt = Prompt(18, 1);
  prompt.push_back(60);
  const Said first = Ask(prompt, 20);
  ASSERT_EQ(first.ids[0], kThink);
  const int64_t before = engine->Stats().pages_cached;
  std::vector<TokenId> next = prompt;
  next.insert(next.end(), first.ids.begin() + 12, first.ids.end());
  next.insert(next.end(), {1, 2, 3});
  const Said second = Ask(next, 3);
  EXPECT_GE(second.summary.cached_tokens, GetParam() ? 8 : 19);
  const EngineStats stats = engine->Stats();
  EXPECT_EQ(stats.pages_dropped, 6u);
  EXPECT_EQ(stats.pages_evicted, 0u);
  EXPECT_EQ(before, 10);
  EXPECT_EQ(stats.pages_cached, 4 + 4);
  const Said repeated = Ask(prompt, 20);  // the same question again: nothing is lost but time
  EXPECT_EQ(repeated.ids, first.ids);
}

}  // namespace
}  // namespace ridge::engine
