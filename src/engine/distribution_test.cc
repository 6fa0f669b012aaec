// Whether sampled answers follow the target's distribution when they are drafted: by lookup, by a model that nearly agrees, and by one that does not.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <random>

#include "engine/engine.h"
#include "engine/fake_program.h"

namespace ridge::engine {
namespace {

using test::FakeClock;
using test::FakeProgram;
using namespace std::chrono_literals;

constexpr int64_t kVocab = 12;
constexpr int kTopK = 7;

// Logits of what follows a token: `noise` 0 is the target; the others are the same with so much of something else.
std::vector<float> LogitsAfter(TokenId token, double noise) {
  std::vector<float> logits;
  std::mt19937 own(static_cast<uint32_t>(token) * 7919 + 17), other(static_cast<uint32_t>(token) * 104729 + 3);
  std::uniform_real_distribution<double> value(0, 6);
  for (int64_t i = 0; i < kVocab; i++) {
    const double a = value(own), b = value(other);
    logits.push_back(static_cast<float>((1 - noise) * a + noise * b));
  }
  return logits;
}

class MarkovProgram : public FakeProgram {
 public:
  explicit MarkovProgram(double noise) : FakeProgram(kVocab) {
    for (TokenId t = 0; t < kVocab; t++) rows_.push_back(LogitsAfter(t, noise));
  }
  void Logits(uint64_t /*hash*/, std::span<const TokenId> tokens, std::span<float> out) const override {
    std::ranges::copy(rows_[static_cast<size_t>(tokens.back())], out.begin());
  }

 private:
  std::vector<std::vector<float>> rows_;
};

// What a request may draw: the temperature's softmax over the kTopK best.
std::vector<double> Distribution(const std::vector<float>& logits, double temperature) {
  std::vector<float> sorted = logits;
  std::ranges::sort(sorted, std::greater());
  std::vector<double> p;
  double sum = 0;
  for (const float logit : logits) {
    p.push_back(logit >= sorted[kTopK - 1] ? std::exp(static_cast<double>(logit) / temperature) : 0);
    sum += p.back();
  }
  for (double& each : p) each /= sum;
  return p;
}

struct Sample {
  std::vector<std::vector<double>> counts;  // [previous token, token]
  uint64_t proposed = 0, accepted = 0;
};

Sample Draw(Speculation speculation, double draft_noise, double temperature) {
  constexpr int kRequests = 640, kTokens = 30;
  FakeClock clock;  // how much is drafted follows from measured times
  MarkovProgram program(0), draft(draft_noise);
  program.clock = draft.clock = &clock;
  program.step_ms = 10;
  program.LetRun(0);
  auto engine = *Engine::Start(&program, {.vocab = kVocab,
                                          .context_tokens = 64,
                                          .step_tokens = 64,
                                          .max_running = 16,
                                          .max_logit_rows = 60,
                                          .max_waiting = 2048,
                                          .state = {.n_pages = 256, .page_tokens = 4},
                                          .draft_program = &draft,
                                          .draft_vocab = kVocab,
                                          .draft_cost_ratio = 0.01,
                                          .now = clock.Source()});
  std::vector<std::pair<TokenId, Ticket>> asked;
  for (int i = 0; i < kRequests; i++) {
    const TokenId first = static_cast<TokenId>(i % kVocab);
    asked.emplace_back(first, *engine->Submit({.prompt = {1, 2, 3, first},
                                               .max_tokens = kTokens,
                                               .sampling = {.temperature = temperature,
                                                            .top_k = kTopK,
                                                            .top_p = 1.0,
                                                            .min_p = 0.0,
                                                            .seed = static_cast<uint64_t>(1000 + i)},
                                               .speculation = speculation}));
  }
  program.LetAllRun();
  Sample sample{.counts = std::vector(kVocab, std::vector<double>(kVocab))};
  for (auto& [first, ticket] : asked) {
    TokenId before = first;
    TokenEvent event;
    for (Outbox::Got got; (got = ticket.outbox->Next(120s, event)) != Outbox::Got::kEnd;) {
      if (got == Outbox::Got::kNothing) {
        ADD_FAILURE() << "no event for two minutes";
        return sample;
      }
      sample.counts[static_cast<size_t>(before)][static_cast<size_t>(event.token)]++;
      before = event.token;
    }
    sample.proposed += static_cast<uint64_t>(ticket.outbox->summary().drafts_proposed);
    sample.accepted += static_cast<uint64_t>(ticket.outbox->summary().drafts_accepted);
  }
  return sample;
}

// Of Pearson's statistic over all tokens after all tokens: how many standard deviations it lies above its mean (Wilson and Hilferty's cube root).
double ChiSquareDeviations(const std::vector<std::vector<double>>& counts, double noise, double temperature) {
  double statistic = 0, freedom = 0;
  for (size_t before = 0; before < counts.size(); before++) {
    const std::vector<double> p = Distribution(LogitsAfter(static_cast<TokenId>(before), noise), temperature);
    double n = 0;
    for (const double count : counts[before]) n += count;
    double rare = 0, rare_expected = 0;  // fewer than five expected: together
    int cells = 0;
    for (size_t token = 0; token < p.size(); token++) {
      if (p[token] == 0 && counts[before][token] > 0) return 1e9;  // what can never be drawn
      const double expected = n * p[token];
      if (expected < 5) {
        rare += counts[before][token];
        rare_expected += expected;
        continue;
      }
      statistic += (counts[before][token] - expected) * (counts[before][token] - expected) / expected;
      cells++;
    }
    if (rare_expected >= 5) {
      statistic += (rare - rare_expected) * (rare - rare_expected) / rare_expected;
      cells++;
    }
    if (cells > 1) freedom += cells - 1;
  }
  const double spread = 2 / (9 * freedom);
  return (std::cbrt(statistic / freedom) - (1 - spread)) / std::sqrt(spread);
}

struct Case {
  const char* name;
  Speculation speculation;
  double noise;  // of the draft model
  double temperature;
  double least_share;  // of drafts accepted
};

class Distributions : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Engine, Distributions,
                         ::testing::Values(Case{"off", Speculation::kOff, 0, 0.8, 0},
                                           Case{"lookup", Speculation::kLookup, 0, 0.3, 0.3},
                                           Case{"near", Speculation::kDraft, 0.1, 0.8, 0.5},
                                           Case{"far", Speculation::kDraft, 0.5, 0.8, 0.05},
                                           Case{"auto", Speculation::kAuto, 0.3, 0.8, 0.1}),
                         [](const auto& info) { return info.param.name; });

TEST_P(Distributions, SampledAnswersFollowTheTargetsDistribution) {
  const Case& c = GetParam();
  const Sample sample = Draw(c.speculation, c.noise, c.temperature);
  const double own = ChiSquareDeviations(sample.counts, 0, c.temperature);
  EXPECT_LT(own, 3.7) << "one in ten thousand";
  EXPECT_GT(own, -3.7) << "too good";
  // The same test sees a draft model's distribution in place of the target's.
  if (c.noise > 0) {
    EXPECT_GT(ChiSquareDeviations(sample.counts, c.noise, c.temperature), 20);
  }
  if (c.speculation == Speculation::kOff) {
    EXPECT_EQ(sample.proposed, 0u);
  } else {
    EXPECT_GT(sample.proposed, 200u);
    EXPECT_GT(static_cast<double>(sample.accepted), c.least_share * static_cast<double>(sample.proposed));
  }
  std::printf("%s: chi square %.2f standard deviations above its mean, %llu of %llu drafts accepted\n", c.name, own,
              static_cast<unsigned long long>(sample.accepted), static_cast<unsigned long long>(sample.proposed));
}

}  // namespace
}  // namespace ridge::engine
