#include "sampling/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace ridge::sampling {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Row(std::mt19937& rng, size_t n, int kind) {
  std::vector<float> logits(n);
  for (size_t i = 0; i < n; ++i) {
    const float value = static_cast<float>(rng() % 100000) * 1e-3f;
    logits[i] = kind == 0   ? value
                : kind == 1 ? static_cast<float>(i)  // every one beats all before it
                : kind == 2 ? -static_cast<float>(i)
                : kind == 3 ? static_cast<float>(rng() % 3)  // mostly ties
                            : (rng() % 2 ? value
                                         : (rng() % 2   ? kNan
                                            : rng() % 2 ? kInf
                                                        : -kInf));
  }
  return logits;
}

TEST(Candidates, DrawFromAllIsTheDrawOfAll) {
  std::mt19937 rng(3);
  for (int round = 0; round < 600; ++round) {
    const std::vector<float> logits = Row(rng, 1 + rng() % 3000, round % 5);
    const double temperature = round % 3 == 0 ? 1.0 : 0.05 + static_cast<double>(rng() % 100) / 30;
    const double uniform = round % 7 == 0   ? 0.0
                           : round % 7 == 1 ? 0x1.fffffffffffffp-1
                                            : static_cast<double>(rng()) * 0x1p-32;
    Candidates all, stepwise;
    int64_t nan_count = -1;
    const TokenId token = all.DrawFromAll(logits, temperature, uniform, nan_count);
    EXPECT_EQ(stepwise.FillAll(logits), nan_count);
    if (stepwise.empty()) {
      EXPECT_EQ(token, -1);
      continue;
    }
    stepwise.Temperature(temperature);
    if (round % 7 == 1) {  // within rounding of the total: any token of the end that has a weight
      EXPECT_GT(logits[static_cast<size_t>(token)], -kInf);
    } else {
      EXPECT_EQ(token, stepwise.Draw(uniform)) << round;
    }
  }
}

TEST(Candidates, TopKEqualsAFullSort) {
  std::mt19937 rng(1);
  for (int round = 0; round < 600; ++round) {
    const size_t n = 1 + rng() % 3000;
    const size_t k = round % 2 ? 1 + rng() % 60 : 1 + rng() % (n + 10);
    const std::vector<float> logits = Row(rng, n, round % 5);
    std::vector<Candidate> want;
    int64_t nan_count = 0;
    for (size_t i = 0; i < n; ++i) {
      nan_count += logits[i] != logits[i];
      if (logits[i] > -kInf)
        want.push_back({std::min(logits[i], std::numeric_limits<float>::max()), static_cast<TokenId>(i)});
    }
    std::ranges::stable_sort(want, [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
    if (want.size() > k) want.resize(k);
    Candidates fused, stepwise;
    EXPECT_EQ(fused.FillTopK(logits, k), nan_count);
    EXPECT_EQ(stepwise.FillAll(logits), nan_count);
    if (!stepwise.empty()) stepwise.TopK(k);
    ASSERT_TRUE(std::ranges::equal(fused.items(), want)) << round;
    std::vector<Candidate> items(stepwise.items().begin(), stepwise.items().end());
    std::ranges::sort(items, Better);
    ASSERT_EQ(items, want) << round;
    const Best best = Argmax(logits);
    ASSERT_EQ(best.id, static_cast<TokenId>(
                           std::ranges::max_element(
                               logits, [](float a, float b) { return (a == a ? a : -kInf) < (b == b ? b : -kInf); }) -
                           logits.begin()))
        << round;
    ASSERT_EQ(best.nan_count, nan_count);
  }
}

TEST(Candidates, EmptyRowsStayEmpty) {
  Candidates c;
  EXPECT_EQ(c.FillAll(std::vector<float>{kNan, -kInf}), 1);
  EXPECT_TRUE(c.empty());
  EXPECT_EQ(c.FillTopK(std::vector<float>{kNan, -kInf}, 1), 1);
  EXPECT_TRUE(c.empty());
  EXPECT_EQ(Argmax(std::vector<float>{kNan, -kInf}).id, -1);
}

TEST(Candidates, DrawWalksTheCumulativeDistribution) {
  Candidates c;
  c.FillAll(std::vector<float>{0.0f, 0.0f, -kInf, 0.0f, 0.0f});
  EXPECT_EQ(c.Draw(0.0), 0);
  EXPECT_EQ(c.Draw(0.2499), 0);
  EXPECT_EQ(c.Draw(0.25), 1);
  EXPECT_EQ(c.Draw(0.5), 3);
  EXPECT_EQ(c.Draw(1.0 - 0x1p-53), 4);
}

TEST(Candidates, EdgesOfTopP) {
  const std::vector<float> logits = {0.0f, 0.0f, 0.0f, 0.0f};
  Candidates c;
  c.FillAll(logits);
  c.TopP(0.5, 1);  // exactly half is enough
  EXPECT_EQ(c.items().size(), 2u);
  c.FillAll(logits);
  c.TopP(0.0, 1);
  EXPECT_EQ(c.items().size(), 1u);
  EXPECT_EQ(c.items()[0].id, 0);
  c.FillAll(logits);
  c.TopP(0.0, 3);
  EXPECT_EQ(c.items().size(), 3u);
}

}  // namespace
}  // namespace ridge::sampling
