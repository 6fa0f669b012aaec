#include "engine/drafter.h"

#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "engine/engine.h"
#include "engine/fake_program.h"

namespace ridge::engine {
namespace {

using test::FakeClock;
using test::FakeProgram;
using namespace std::chrono_literals;

constexpr int64_t kVocab = 97;

// Agrees with FakeProgram but for one token in `wrong`, which follows from the tokens before it; 0: always.
class DraftProgram : public FakeProgram {
 public:
  explicit DraftProgram(int64_t vocab = kVocab, uint64_t wrong = 0) : FakeProgram(vocab), wrong_(wrong) {}
  uint64_t Choose(uint64_t hash, std::span<const TokenId> /*tokens*/) const override {
    const uint64_t right = hash % static_cast<uint64_t>(kVocab);
    return wrong_ > 0 && (hash >> 20) % wrong_ == 0 ? right + 1 : right;
  }

 private:
  uint64_t wrong_;
};

struct Outcome {
  std::vector<TokenId> ids;
  std::vector<std::optional<float>> logprobs;
  Summary summary;
};

Outcome ReadAll(Outbox& outbox) {
  Outcome outcome;
  TokenEvent event;
  for (Outbox::Got got; (got = outbox.Next(120s, event)) != Outbox::Got::kEnd;) {
    if (got == Outbox::Got::kNothing) {
      ADD_FAILURE() << "no event for two minutes";
      return outcome;
    }
    outcome.ids.push_back(event.token);
    outcome.logprobs.push_back(event.logprob);
  }
  outcome.summary = outbox.summary();
  return outcome;
}

EngineOptions Options(int64_t max_running, int64_t pages, FakeProgram* draft, int64_t draft_vocab = kVocab) {
  return {.vocab = kVocab,
          .context_tokens = 160,
          .step_tokens = 64,
          .max_running = max_running,
          .max_logit_rows = 40,
          .check_each_step = true,
          .draft_slots = 9,
          .state = {.n_pages = pages, .page_tokens = 4},
          .draft_program = draft,
          .draft_vocab = draft_vocab,
          .draft_cost_ratio = 0.05};
}

// How much is drafted follows from measured times: here steps take so long, and those of the draft model next to nothing.
std::unique_ptr<Engine> Started(FakeProgram& program, FakeProgram& draft, FakeClock& clock, int step_ms,
                                EngineOptions options) {
  program.clock = draft.clock = &clock;
  program.step_ms = step_ms;
  options.now = clock.Source();
  return *Engine::Start(&program, options);
}

std::vector<TokenId> Prompt(size_t n, TokenId first = 3) {
  std::vector<TokenId> prompt;
  for (size_t i = 0; i < n; i++) prompt.push_back(static_cast<TokenId>((first + static_cast<TokenId>(i) * 5) % kVocab));
  return prompt;
}

Request NewRequest(std::vector<TokenId> prompt, int64_t max_tokens, Speculation speculation, double temperature = 0) {
  return {.prompt = std::move(prompt),
          .max_tokens = max_tokens,
          .sampling = {.temperature = temperature, .top_k = 0, .top_p = 1.0, .min_p = 0.0, .seed = 5},
          .logprobs = 1,
          .speculation = speculation};
}

TEST(EngineDraft, TheSameAnswersInFewerStepsGreedyAndSampled) {
  for (const auto& [temperature, recurrent] : {std::pair(0.0, false), {0.3, false}, {0.0, true}, {0.3, true}}) {
    std::vector<Outcome> plain;
    for (const Speculation speculation : {Speculation::kOff, Speculation::kDraft, Speculation::kAuto}) {
      FakeClock clock;
      FakeProgram program(kVocab, recurrent);
      DraftProgram draft(kVocab, 6);
      auto engine = Started(program, draft, clock, 4, Options(3, 128, &draft));
      program.LetRun(0);
      std::vector<Ticket> tickets;
      for (TokenId i = 0; i < 3; i++)
        tickets.push_back(*engine->Submit(NewRequest(Prompt(30, i), 60 + i, speculation, temperature)));
      program.LetAllRun();
      int64_t accepted = 0, proposed = 0;
      for (size_t i = 0; i < 3; i++) {
        const Outcome outcome = ReadAll(*tickets[i].outbox);
        EXPECT_EQ(outcome.summary.reason, FinishReason::kLength);
        proposed += outcome.summary.drafts_proposed;
        accepted += outcome.summary.drafts_accepted;
        EXPECT_EQ(outcome.summary.speculation_gain.has_value(), outcome.summary.drafts_proposed > 0);
        if (speculation == Speculation::kOff) {
          plain.push_back(outcome);
          continue;
        }
        EXPECT_EQ(outcome.ids, plain[i].ids);
        EXPECT_EQ(outcome.logprobs, plain[i].logprobs);
      }
      const EngineStats stats = engine->Stats();
      EXPECT_EQ(stats.drafts_proposed, static_cast<uint64_t>(proposed));
      EXPECT_EQ(stats.drafts_accepted, static_cast<uint64_t>(accepted));
      EXPECT_EQ(stats.pages_held, 0);
      EXPECT_EQ(stats.draft_failures, 0u);
      if (speculation == Speculation::kOff) {
        EXPECT_EQ(proposed, 0);
        EXPECT_EQ(draft.steps, 0);
      } else {
        EXPECT_GT(accepted, temperature == 0 ? 30 : 5);
        EXPECT_GT(stats.draft_passes, 0u);
        if (temperature == 0) {
          EXPECT_LT(stats.steps, 58u);
        }
      }
    }
  }
}

// A draft model that always agrees is refused only if its KV is not that of the tokens: a wrong page, position or leftover would show.
class DraftsAreRight : public ::testing::TestWithParam<std::tuple<int64_t, bool>> {
};  // pages: few make preemptions; recurrent
INSTANTIATE_TEST_SUITE_P(Engine, DraftsAreRight, ::testing::Combine(::testing::Values(36, 256), ::testing::Bool()));

TEST_P(DraftsAreRight, ThroughSharedPrefixesForksPreemptionsAndCancels) {
  const auto [n_pages, recurrent] = GetParam();
  FakeClock clock;
  FakeProgram program(kVocab, recurrent);
  DraftProgram draft;
  auto engine = Started(program, draft, clock, 1, Options(4, n_pages, &draft));
  std::mt19937 random(5);
  std::vector<std::vector<TokenId>> talks(3, Prompt(22));
  uint64_t accepted = 0, proposed = 0, cached = 0;
  for (int round = 0; round < 12; round++) {
    std::vector<std::pair<Ticket, std::vector<TokenId>>> asked;
    program.LetRun(program.steps);
    for (std::vector<TokenId>& talk : talks) {
      talk.push_back(static_cast<TokenId>(random() % kVocab));
      // One in three without drafts, so that cached pages are there that the draft model has not read.
      const Request request = NewRequest(talk, 12 + static_cast<int64_t>(random() % 30),
                                         random() % 3 == 0 ? Speculation::kOff : Speculation::kDraft);
      const std::vector<Ticket> tickets = *engine->SubmitGroup(request, 1 + static_cast<int64_t>(random() % 2));
      for (const Ticket& ticket : tickets) asked.emplace_back(ticket, talk);
    }
    if (round % 3 == 0) engine->Cancel(asked.front().first.id);
    program.LetAllRun();
    for (size_t i = 0; i < asked.size(); i++) {
      const Outcome outcome = ReadAll(*asked[i].first.outbox);
      EXPECT_EQ(outcome.ids, FakeProgram::Expected(asked[i].second, outcome.ids.size(), kVocab));
      accepted += static_cast<uint64_t>(outcome.summary.drafts_accepted);
      proposed += static_cast<uint64_t>(outcome.summary.drafts_proposed);
      cached += static_cast<uint64_t>(outcome.summary.cached_tokens);
      if (outcome.summary.reason != FinishReason::kCancelled) {
        EXPECT_EQ(outcome.summary.drafts_accepted, outcome.summary.drafts_proposed);
      }
      std::vector<TokenId>& talk = talks[i % 3];
      talk = asked[i].second;
      talk.insert(talk.end(), outcome.ids.begin(), outcome.ids.end());
      if (talk.size() > 90) talk.resize(22);
    }
  }
  const EngineStats stats = engine->Stats();
  EXPECT_GT(accepted, 100u);
  EXPECT_GT(cached, 100u);
  EXPECT_EQ(stats.preemptions > 0, n_pages < 100);
  EXPECT_EQ(stats.draft_failures, 0u);
}

TEST(EngineDraft, AVocabularyThatIsPaddedOtherwiseDraftsWhatBothHave) {
  for (const int64_t vocab : {kVocab - 9, kVocab + 9}) {
    FakeClock clock;
    FakeProgram program(kVocab);
    DraftProgram draft(vocab);
    auto engine = Started(program, draft, clock, 1, Options(1, 64, &draft, vocab));
    const Outcome outcome = ReadAll(*engine->Submit(NewRequest(Prompt(20), 60, Speculation::kDraft))->outbox);
    EXPECT_EQ(outcome.ids, FakeProgram::Expected(Prompt(20), 60, kVocab));
    EXPECT_GT(outcome.summary.drafts_accepted, 10);
  }
}

TEST(EngineDraft, ADraftModelThatFailsEndsNoRequest) {
  FakeClock clock;
  FakeProgram program(kVocab);
  DraftProgram draft;
  draft.fail_at_step = 7;
  auto engine = Started(program, draft, clock, 1, Options(2, 64, &draft));
  const Outcome outcome = ReadAll(*engine->Submit(NewRequest(Prompt(20), 60, Speculation::kDraft))->outbox);
  EXPECT_EQ(outcome.ids, FakeProgram::Expected(Prompt(20), 60, kVocab));
  EXPECT_EQ(engine->Stats().draft_failures, 1u);
  EXPECT_EQ(outcome.summary.drafts_accepted, outcome.summary.drafts_proposed);
}

TEST(EngineDraft, IsRefusedWhereItCannotWork) {
  FakeProgram program(kVocab), recurrent(kVocab, /*recurrent=*/true);
  auto none = *Engine::Start(&program, Options(1, 64, nullptr));
  const auto refused = none->Submit(NewRequest(Prompt(4), 4, Speculation::kDraft));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_NE(refused.error().Message().find("no draft model"), std::string::npos);
  const auto engine = Engine::Start(&program, Options(1, 64, &recurrent));
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, Code::kUnsupported);
}

// ---- What the pages hold

class Pages {
 public:
  Pages() : pool_(std::move(*cache::PagePool::Create(8))) {}
  std::unique_ptr<Sequence> NewSequence(std::vector<TokenId> tokens) {
    auto sequence = std::make_unique<Sequence>();
    sequence->tokens = std::move(tokens);
    sequence->pages.emplace(&pool_, 4);
    EXPECT_TRUE(sequence->pages->Reserve(sequence->length() + 1));
    return sequence;
  }
  static void Read(DraftMap& map, Sequence& sequence, int64_t begin, int64_t end) {
    (void)map.Known(sequence);
    for (int64_t at = begin; at < end; at++)
      map.Write(sequence.pages->pages(), at, sequence.prefix_hashes[static_cast<size_t>(at)]);
  }

 private:
  cache::PagePool pool_;
};

TEST(DraftMap, KnowsWhatWasReadAndNothingElse) {
  Pages pages;
  DraftMap map(8, 4);
  auto sequence = pages.NewSequence(Prompt(11));
  EXPECT_EQ(map.Known(*sequence), 0);
  Pages::Read(map, *sequence, 0, 7);
  EXPECT_EQ(map.Known(*sequence), 7);
  Pages::Read(map, *sequence, 7, 11);
  EXPECT_EQ(map.Known(*sequence), 10) << "the last token is always computed";
  sequence->tokens.push_back(1);
  EXPECT_EQ(map.Known(*sequence), 11);
  // A draft that was refused.
  map.Write(sequence->pages->pages(), 11, DraftMap::Extend(sequence->prefix_hashes[10], 7));
  sequence->tokens.push_back(5);
  ASSERT_TRUE(sequence->pages->Reserve(14));
  EXPECT_EQ(map.Known(*sequence), 11);
}

TEST(DraftMap, PagesThatOthersGotAndGaveBackTellByThemselves) {
  Pages pages;
  DraftMap map(8, 4);
  auto first = pages.NewSequence(Prompt(9));
  Pages::Read(map, *first, 0, 9);
  const auto ids = std::vector<cache::PageId>(first->pages->pages().begin(), first->pages->pages().end());
  // The same tokens under the same pages: known. Others: not, and writing half a page forgets the rest of it.
  auto other = std::make_unique<Sequence>();
  other->tokens = Prompt(9, 50);
  other->pages.emplace(std::move(*first->pages));
  EXPECT_EQ(map.Known(*other), 0);
  Pages::Read(map, *other, 0, 2);
  first->pages.emplace(std::move(*other->pages));
  EXPECT_EQ(map.Known(*first), 0);
  Pages::Read(map, *first, 0, 2);
  EXPECT_EQ(map.Known(*first), 2) << "slots 2 and 3 were forgotten, though they held these tokens once";
  // A copy knows what the page knew, as far as the tokens are the same.
  auto fork = pages.NewSequence(Prompt(9));
  fork->tokens[1] = 90;
  map.Copy(ids[0], fork->pages->pages()[0]);
  EXPECT_EQ(map.Known(*fork), 1);
}

// ---- How much is drafted

StepCosts Costs(double read = 4, double token = 0.25) {
  StepCosts costs(96);
  for (int64_t n = 1; n <= 96; n++) costs.Observe({n, 0}, std::max(read, token * static_cast<double>(n) + 0.9 * read));
  return costs;
}

TEST(DraftModelPolicy, TakesMoreTheBetterTheOddsAndTheCheaperTheModel) {
  int64_t before = 0;
  for (const double odds : {0.05, 0.5, 0.8, 0.95}) {
    DraftModelPolicy policy(8, 0.1);
    std::vector<DraftModelAsk> asks = {{.odds = odds, .most = 16}};
    policy.Choose(asks, 1, 32, Costs());
    EXPECT_GE(asks[0].take, before) << odds;
    EXPECT_EQ(asks[0].take > 0, odds > 0.1);
    before = asks[0].take;
  }
  EXPECT_GT(before, 4);
  for (const double ratio : {0.01, 0.2, 0.5, 1.0}) {
    DraftModelPolicy policy(8, ratio);
    std::vector<DraftModelAsk> asks = {{.odds = 0.8, .most = 16}};
    policy.Choose(asks, 1, 32, Costs());
    EXPECT_LE(asks[0].take, before) << ratio;
    before = std::max<int64_t>(asks[0].take, before == 0 ? 0 : asks[0].take);
    EXPECT_EQ(asks[0].take > 0, ratio < 0.6);
  }
}

TEST(DraftModelPolicy, RoomIsKeptAndTheBestSequencesComeFirst) {
  DraftModelPolicy policy(8, 0.05);
  std::vector<DraftModelAsk> asks = {
      {.odds = 0.02, .most = 9}, {.odds = 0.9, .most = 2}, {.odds = 0.95, .most = 9}, {}};
  policy.Choose(asks, 4, 7, Costs());
  EXPECT_EQ(asks[0].take, 0);
  EXPECT_LE(asks[1].take, 2);
  EXPECT_GT(asks[2].take, 2);
  EXPECT_LE(asks[1].take + asks[2].take, 7);
  EXPECT_EQ(asks[3].take, 0);
}

TEST(DraftModelPolicy, ReadingALongPromptMustPay) {
  DraftModelPolicy policy(1, 0.1);
  for (int i = 0; i < 4; i++) policy.ObserveCatchUp(100, 20);  // 0.2 ms a token
  std::vector<DraftModelAsk> asks = {{.odds = 0.9, .most = 9, .behind = 2000, .left = 20}};
  policy.Choose(asks, 1, 32, Costs());
  EXPECT_EQ(asks[0].take, 0) << "400 ms for an answer of 80";
  asks[0].left = 2000;
  policy.Choose(asks, 1, 32, Costs());
  EXPECT_GT(asks[0].take, 0);
}

TEST(DraftModelPolicy, WhereItDoesNotPayItLooksAgainForAHundredthOfTheTime) {
  DraftModelPolicy policy(1, 0.2);
  const StepCosts costs = Costs();
  DraftRecord record;
  for (int i = 0; i < 40; i++) policy.Learn(record, 4, 0);
  int64_t steps = 0, drafted = 0;
  const auto run = [&](bool right, int64_t n) {
    drafted = steps = 0;
    for (; steps < n; steps++) {
      std::vector<DraftModelAsk> asks = {{.odds = policy.Odds(record), .most = 9, .left = -1}};
      policy.Choose(asks, 1, 32, costs);
      if (asks[0].take == 0) continue;
      drafted++;
      policy.Learn(record, asks[0].take, right ? asks[0].take : 0);
    }
  };
  run(false, 4000);
  EXPECT_GT(drafted, 10);
  EXPECT_LT(drafted, 100);
  run(true, 4000);
  EXPECT_GT(drafted, 500) << "it pays again, and is found out";
}

}  // namespace
}  // namespace ridge::engine
