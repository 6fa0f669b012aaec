#include "lab/statistics.h"

#include <gtest/gtest.h>

#include <random>

namespace ridge::lab {
namespace {

TEST(Statistics, QuantilesAreOrderStatisticsWithLinesBetween) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({7}), 7);
  EXPECT_EQ(Median({9, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(Quantile({5, 1, 3}, 0), 1);
  EXPECT_EQ(Quantile({5, 1, 3}, 1), 5);
  EXPECT_EQ(Quantile({1, 2, 3, 4, 5}, 0.75), 4);
  EXPECT_DOUBLE_EQ(Quantile({1, 2}, 0.75), 1.75);
}

TEST(Statistics, IntervalSaysItsTrueConfidence) {
  EXPECT_FALSE(MedianInterval({}));
  EXPECT_FALSE(MedianInterval({1}));
  const auto five = MedianInterval({3, 1, 5, 2, 4});
  EXPECT_EQ(five->low, 1);
  EXPECT_EQ(five->high, 5);
  EXPECT_DOUBLE_EQ(five->confidence, 1 - 2.0 / 32);
  // 10 samples: the 2nd and the 9th, 97.85 % (tables of the binomial distribution).
  const auto ten = MedianInterval({10, 9, 8, 7, 6, 5, 4, 3, 2, 1});
  EXPECT_EQ(ten->low, 2);
  EXPECT_EQ(ten->high, 9);
  EXPECT_NEAR(ten->confidence, 0.978515625, 1e-12);
}

// The interval holds the true median about as often as it says.
TEST(Statistics, IntervalCoversTheMedian) {
  std::mt19937 random(1);
  std::exponential_distribution<double> skewed(1);
  const double truth = std::log(2.0);
  for (size_t n : {3u, 6u, 20u, 101u}) {
    int covered = 0;
    double confidence = 0;
    for (int trial = 0; trial < 4000; trial++) {
      std::vector<double> samples(n);
      for (double& s : samples) s = skewed(random);
      const auto interval = MedianInterval(samples);
      covered += interval->low <= truth && truth <= interval->high;
      confidence = interval->confidence;
    }
    EXPECT_NEAR(covered / 4000.0, confidence, 0.02) << n;
  }
}

TEST(Statistics, IntervalOfManySamplesIsOne) {
  std::vector<double> samples(5000);
  for (size_t i = 0; i < samples.size(); i++) samples[i] = static_cast<double>(i);
  const auto interval = MedianInterval(samples);
  EXPECT_LE(interval->low, 2500);
  EXPECT_GE(interval->high, 2500);
  EXPECT_GE(interval->confidence, 0.95);
}

TEST(Statistics, SteadyComparesTheLatestTwo) {
  EXPECT_FALSE(IsSteady({}, 0.03));
  EXPECT_FALSE(IsSteady({1}, 0.03));
  EXPECT_FALSE(IsSteady({1, 1, 1.05}, 0.03));
  EXPECT_TRUE(IsSteady({5, 1, 1.02}, 0.03));
}

}  // namespace
}  // namespace ridge::lab
