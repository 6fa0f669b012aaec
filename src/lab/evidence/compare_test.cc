#include "lab/evidence/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace ridge::lab {
namespace {

// By counting all orders of m + n samples.
double Counted(size_t u, size_t m, size_t n) {
  size_t all = 0, at_most = 0;
  for (unsigned mask = 0; mask < (1u << (m + n)); mask++) {
    if (static_cast<size_t>(__builtin_popcount(mask)) != m) continue;
    size_t statistic = 0, others = 0;  // pairs in which the one of the first side is the larger
    for (size_t i = 0; i < m + n; i++) {
      if ((mask >> i) & 1)
        statistic += others;
      else
        others++;
    }
    all++;
    at_most += statistic <= u;
  }
  return static_cast<double>(at_most) / static_cast<double>(all);
}

TEST(RankSum, IsThatOfAllOrders) {
  for (size_t m = 1; m <= 5; m++) {
    for (size_t n = 1; n <= 5; n++) {
      for (size_t u = 0; u <= m * n; u++)
        EXPECT_NEAR(RankSumAtMost(u, m, n), Counted(u, m, n), 1e-12) << m << " " << n << " " << u;
    }
  }
  // The normal form meets the exact one where it takes over.
  EXPECT_NEAR(RankSumAtMost(1500, 60, 60), RankSumAtMost(1500 * 61 / 60, 60, 61), 0.02);
}

TEST(Shift, SaysTheConfidenceThatItHas) {
  const auto three = ShiftBetween({1, 2, 3}, {11, 12, 13}).value();
  EXPECT_EQ(three.value, 10);
  EXPECT_EQ(three.low, 8);
  EXPECT_EQ(three.high, 12);
  EXPECT_NEAR(three.confidence, 0.9, 1e-12);
  EXPECT_NEAR(ShiftBetween({1, 2, 3, 4}, {1, 2, 3, 4})->confidence, 1 - 2.0 / 70, 1e-12);
  EXPECT_FALSE(ShiftBetween({}, {1}));
}

// In simulation the interval holds the truth at least as often as it says.
TEST(Shift, HoldsTheTruth) {
  std::mt19937 random(3);
  std::exponential_distribution<double> skewed(1);
  int held = 0;
  constexpr int kTrials = 2000;
  for (int i = 0; i < kTrials; i++) {
    std::vector<double> a, b;
    for (int k = 0; k < 7; k++) a.push_back(skewed(random));
    for (int k = 0; k < 9; k++) b.push_back(skewed(random) + 0.5);
    const Shift s = ShiftBetween(a, b).value();
    held += s.low <= 0.5 && s.high >= 0.5;
    ASSERT_GE(s.confidence, 0.95);
  }
  EXPECT_GE(held, kTrials * 94 / 100);
}

CompareCase Simulated(std::mt19937& random, double effect, double noise, bool higher = true) {
  std::normal_distribution<double> normal(0, noise);
  CompareCase one{.name = "tg8",
                  .unit = higher ? "t/s" : "ms",
                  .higher_is_better = higher,
                  .floor = std::abs(normal(random)),
                  .floor_from = "A/A"};
  for (int i = 0; i < 12; i++) {
    one.a.push_back(std::log(100) + normal(random));
    one.b.push_back(std::log(100 * effect) + normal(random));
  }
  return one;
}

TEST(Compare, FindsAPlantedSlowdownAndNoDifferenceWhereThereIsNone) {
  std::mt19937 random(11);
  int false_differences = 0, false_failures = 0, found = 0, failed = 0;
  for (int i = 0; i < 200; i++) {
    const Compared same = Compare(Simulated(random, 1, 0.01), 0.03);
    false_differences += same.verdict != "no difference";
    false_failures += same.gate == "slower than allowed";
    const Compared slower = Compare(Simulated(random, 0.95, 0.01), 0.03);
    found += slower.verdict == "slower";
    failed += slower.gate == "slower than allowed";
  }
  EXPECT_LE(false_differences, 10);  // 5 % of 200
  EXPECT_EQ(false_failures, 0);
  EXPECT_GE(found, 180);  // 90 %
  EXPECT_GE(failed, 180);
}

TEST(Compare, TheGateKnowsWhichWayIsWorse) {
  std::mt19937 random(1);
  EXPECT_EQ(Compare(Simulated(random, 1.10, 0.001, false), 0.03).gate, "slower than allowed");
  EXPECT_EQ(Compare(Simulated(random, 0.90, 0.001, false), 0.03).gate, "within the bound");
  EXPECT_EQ(Compare(Simulated(random, 1.10, 0.001), 0.03).gate, "within the bound");
  EXPECT_EQ(Compare(Simulated(random, 0.98, 0.001), 0.03).gate, "within the bound");
  EXPECT_EQ(Compare(Simulated(random, 0.98, 0.001), 0.03).verdict, "slower");
  EXPECT_EQ(Compare(Simulated(random, 0.98, 0.001), std::nullopt).gate, "");
}

TEST(Compare, SaysThatItDoesNotKnow) {
  std::mt19937 random(1);
  EXPECT_TRUE(Compare(Simulated(random, 0.97, 0.03), 0.03).gate.starts_with("undetermined: the loss lies between"));
  CompareCase few = Simulated(random, 0.5, 0.001);
  few.b.resize(3);
  EXPECT_TRUE(Compare(few, 0.03).gate.starts_with("undetermined: 12 and 3 samples"));
  CompareCase noisy = Simulated(random, 0.90, 0.001);
  noisy.floor = 0.2;  // identical runs differ by more than these two do
  EXPECT_EQ(Compare(noisy, 0.03).verdict, "no difference");
  EXPECT_TRUE(Compare(noisy, 0.03).gate.starts_with("undetermined: identical runs"));
}

TEST(ParsePercent, TakesPercentagesOnly) {
  EXPECT_DOUBLE_EQ(ParsePercent("3%").value(), 0.03);
  EXPECT_DOUBLE_EQ(ParsePercent("0.5%").value(), 0.005);
  for (const char* bad : {"3", "0.03", "-1%", "100%", "%", "three%", ""}) EXPECT_FALSE(ParsePercent(bad)) << bad;
}

}  // namespace
}  // namespace ridge::lab
