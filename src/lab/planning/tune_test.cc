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
