#include "engine/speculation.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ridge::engine {
namespace {

// Times of a small model: most of a step is reading the weights.
StepCosts Costs(double read = 4, double token = 0.25) {
  StepCosts costs(96);
  for (int64_t n = 1; n <= 96; n++) costs.Observe({n, 0}, std::max(read, token * static_cast<double>(n) + 0.9 * read));
  return costs;
}

TEST(DraftPolicy, TakesMoreTheBetterTheOddsAndNothingThatDoesNotPay) {
  const DraftPolicy policy;
  const StepCosts costs = Costs();
  int64_t before = 0;
  for (const double odds : {0.02, 0.3, 0.6, 0.9, 0.98}) {
    std::vector<DraftChoice> drafts = {{.odds = odds, .most = 16}};
    policy.Choose(drafts, 1, 64, costs);
    EXPECT_GE(drafts[0].take, before) << odds;
    before = drafts[0].take;
    EXPECT_EQ(drafts[0].take == 0, odds < 0.05);
  }
  EXPECT_GE(before, 10);
  // Where time is proportional to tokens nothing pays.
  std::vector<DraftChoice> drafts = {{.odds = 0.9, .most = 16}};
  policy.Choose(drafts, 1, 64, Costs(0, 2));
  EXPECT_EQ(drafts[0].take, 0);
  policy.Choose(drafts, 1, 64, StepCosts(8));
  EXPECT_EQ(drafts[0].take, 0) << "nothing measured yet";
}

TEST(DraftPolicy, RoomGoesToTheBestOdds) {
  const DraftPolicy policy;
  std::vector<DraftChoice> drafts = {{.odds = 0.3, .most = 8}, {}, {.odds = 0.95, .most = 3}, {.odds = 0.9, .most = 8}};
  policy.Choose(drafts, 4, 6, Costs());
  EXPECT_EQ(drafts[0].take, 0);
  EXPECT_EQ(drafts[1].take, 0);
  EXPECT_EQ(drafts[2].take, 3);
  EXPECT_EQ(drafts[3].take, 3);
}

// A stream whose drafts are right with the given odds: tokens per ms with drafts over without.
double Gain(double right, double read, double token, int64_t match, DraftPolicy& policy) {
  const StepCosts costs = Costs(read, token);
  std::mt19937 random(7);
  DraftRecord record;
  double ms = 0, tokens = 0;
  while (tokens < 400) {
    std::vector<DraftChoice> drafts = {{.odds = policy.Odds(record, match), .most = 16}};
    policy.Choose(drafts, 1, 64, costs);
    int64_t accepted = 0;
    while (accepted < drafts[0].take && std::uniform_real_distribution<>(0, 1)(random) < right) accepted++;
    if (drafts[0].take > 0) policy.Learn(record, match, drafts[0].take, accepted);
    ms += *costs.DecodeMs(1 + drafts[0].take);
    tokens += static_cast<double>(1 + accepted);
  }
  return tokens / ms * *costs.DecodeMs(1);
}

TEST(DraftPolicy, NeverLosesMuchAndGainsWhereTextRepeats) {
  for (const int64_t match : {3, 5, 8, 15, 32}) {
    for (const auto& [read, token] : {std::pair(4.0, 0.25), std::pair(4.0, 1.0), std::pair(1.0, 2.0)}) {
      DraftPolicy policy;
      EXPECT_GE(Gain(0, read, token, match, policy), 0.96) << match << " at first, without knowledge";
      EXPECT_GE(Gain(0, read, token, match, policy), 0.985) << match;
      EXPECT_GE(Gain(0.15, read, token, match, policy), 0.98) << match;
    }
    DraftPolicy policy;
    EXPECT_GE(Gain(0.97, 4, 0.25, match, policy), 3) << match;
  }
}

}  // namespace
}  // namespace ridge::engine
