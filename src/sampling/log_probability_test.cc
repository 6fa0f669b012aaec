#include "sampling/log_probability.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace ridge::sampling {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(LogProbability, SumsToOneAndMatchesLongDouble) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0, 5);
  for (int round = 0; round < 50; ++round) {
    std::vector<float> logits(1 + rng() % 2000);
    long double sum = 0;
    for (float& l : logits) sum += std::exp(static_cast<long double>(l = normal(rng) + 80));
    const double want = static_cast<double>(std::log(sum));
    EXPECT_NEAR(LogSumExp(logits), want, 1e-12 * std::fabs(want));
    std::vector<double> all(logits.size());
    LogSoftmax(logits, all);
    double total = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      total += std::exp(all[i]);
      if (i % 50 == 0) {
        ASSERT_EQ(all[i], LogProbability(logits, static_cast<TokenId>(i)));
      }
    }
    EXPECT_NEAR(total, 1.0, 1e-12);
    const auto top = TopLogProbabilities(logits, 10);
    ASSERT_EQ(top.size(), std::min<size_t>(10, logits.size()));
    for (size_t i = 0; i < top.size(); ++i) {
      EXPECT_EQ(top[i].log_probability, all[top[i].id]);
      EXPECT_LE(top[i].log_probability, i > 0 ? top[i - 1].log_probability : 0.0);
    }
  }
}

TEST(LogProbability, BannedAndBrokenLogits) {
  const std::vector<float> logits = {kNan, 1.0f, -kInf, 1.0f};
  EXPECT_NEAR(LogProbability(logits, 1), -std::log(2.0), 1e-15);
  EXPECT_EQ(LogProbability(logits, 0), -kInf);
  EXPECT_EQ(LogProbability(logits, 2), -kInf);
  EXPECT_EQ(TopLogProbabilities(logits, 4).size(), 2u);
  EXPECT_TRUE(TopLogProbabilities(logits, 0).empty());
  EXPECT_EQ(LogSumExp(std::vector<float>(3, -kInf)), -kInf);
  EXPECT_EQ(LogProbability(std::vector<float>(3, kNan), 1), -kInf);
  EXPECT_NEAR(LogProbability(std::vector<float>{kInf, 1.0f}, 0), 0.0, 1e-15);
}

}  // namespace
}  // namespace ridge::sampling
