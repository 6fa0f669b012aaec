// Oracle: simulated settings of known speed.
#include "lab/planning/tune.h"

#include <gtest/gtest.h>

#include <random>

namespace ridge::lab {
namespace {

// Winner among settings whose times are `truth` (the present one is 1), 3 % of noise on each time and an outlier now and then.
size_t Tune(const std::vector<double>& truth, size_t present, uint64_t seed, size_t* pairs = nullptr) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const auto time = [&](double mean) { return mean * (1 + 0.03 * normal(random)) * (random() % 20 == 0 ? 1.4 : 1); };
  std::vector<std::string> values;
  for (size_t i = 0; i < truth.size(); i++) values.push_back(std::to_string(i));
  Elimination e(values, present);
  while (const auto turn = e.Next()) {
    std::vector<double> ratios;
    for (int i = 0; i < 8; i++) ratios.push_back(time(truth[*turn]) / time(truth[present]));
    e.Add(*turn, ratios);
    if (pairs != nullptr) *pairs += ratios.size();
  }
  return e.winner();
}

TEST(TuneTest, EqualSettingsHaveNoWinner) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 200; seed++) wrong += Tune({1, 1, 1, 1}, 1, seed) != 1;
  EXPECT_LE(wrong, 10);  // 5 %
}

TEST(TuneTest, AFasterSettingIsFound) {
  int found = 0;
  for (uint64_t seed = 0; seed < 200; seed++) found += Tune({1.3, 1, 0.9, 1.02}, 1, seed) == 2;
  EXPECT_GE(found, 180);  // 90 %
}

TEST(TuneTest, TheFastestOfSeveralWins) {
  int found = 0;
  for (uint64_t seed = 0; seed < 100; seed++) found += Tune({1, 0.8, 0.6, 0.9}, 0, seed) == 2;
  EXPECT_GE(found, 95);
}

TEST(TuneTest, WhatIsSlowerIsDroppedEarly) {
  size_t pairs = 0;
  Tune({1, 2, 3, 1.5}, 0, 7, &pairs);
  EXPECT_LE(pairs, 3u * 16);
}

TEST(TuneTest, LimitsComeBeforeSpeed) {
  Elimination e({"a", "b", "c"}, 0);
  for (int i = 0; i < 3; i++) {
    e.Add(1, std::vector<double>(8, 0.5));
    e.Add(2, std::vector<double>(8, 1.3));
  }
  ASSERT_EQ(e.winner(), 1u);
  EXPECT_EQ(Choose(e, {true, true, true}), 1u);
  EXPECT_EQ(Choose(e, {true, false, true}), 0u);
  EXPECT_EQ(Choose(e, {false, false, true}), 2u);   // slower, and the only one that meets them
  EXPECT_EQ(Choose(e, {false, false, false}), 1u);  // none does
  EXPECT_EQ(Choose(e, {std::nullopt, false, std::nullopt}), 1u);
}

TEST(TuneTest, SharesHaveAnHonestLowerLimit) {
  // 200 candidates whose texts differ in how well they are predicted: the limit lies above the truth in at most 5 %, give or take.
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  int above = 0;
  const double truth = 0.9;
  for (int trial = 0; trial < 1000; trial++) {
    std::vector<Agreement> texts(10);
    for (Agreement& t : texts) {
      t.positions = 60 + static_cast<int64_t>(random() % 40);
      const double p = std::min(1.0, std::max(0.0, truth + 0.05 * normal(random)));
      for (int64_t i = 0; i < t.positions; i++) t.same += std::generate_canonical<double, 53>(random) < p;
    }
    const Share s = ShareOf(texts);
    EXPECT_LT(s.low, s.share);
    above += s.low > truth;
  }
  EXPECT_LE(above, 75);
  EXPECT_GE(above, 20);                                             // and it is not simply far too low
  EXPECT_LT(ShareOf(std::vector<Agreement>(10, {50, 50})).low, 1);  // all the same so far
  EXPECT_GT(ShareOf(std::vector<Agreement>(10, {50, 50})).low, 0.99);
  EXPECT_EQ(ShareOf({{50, 50}}).low, 0);
  EXPECT_EQ(ShareOf({}).positions, 0);
}

TEST(TuneTest, FewSamplesProveNothing) {
  EXPECT_FALSE(MedianIntervalAt({0.5, 0.5, 0.5}, 0.95));
  const auto interval = MedianIntervalAt({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.95);
  ASSERT_TRUE(interval);
  EXPECT_EQ(interval->low, 2);
  EXPECT_EQ(interval->high, 9);
  Elimination e({"a", "b"}, 0);
  e.Add(1, {0.5, 0.5});
  e.Add(1, {});  // nothing more is to be had
  EXPECT_EQ(e.winner(), 0u);
}

}  // namespace
}  // namespace ridge::lab
