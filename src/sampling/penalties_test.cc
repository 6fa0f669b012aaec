#include "sampling/penalties.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

namespace ridge::sampling {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> RandomLogits(std::mt19937& rng, size_t n) {
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits(n);
  for (float& l : logits) l = normal(rng);
  return logits;
}

TEST(Penalties, MatchTheFormula) {
  std::mt19937 rng(1);
  Penalties penalties;
  for (int round = 0; round < 300; ++round) {
    const int vocab = 20;
    SamplingParams p;
    p.repeat_penalty = round % 3 == 0 ? 1.0 : 0.5 + (round % 7) * 0.3;
    p.presence_penalty = round % 2 ? 0.7 : 0.0;
    p.frequency_penalty = round % 5 ? 0.3 : 0.0;
    p.repeat_last_n = round % 4 == 0 ? -1 : static_cast<int>(rng() % 30);
    std::vector<TokenId> history(rng() % 50);
    for (TokenId& id : history) id = static_cast<TokenId>(rng() % vocab);
    const std::vector<float> before = RandomLogits(rng, vocab);
    std::vector<float> after = before;
    penalties.Apply(p, history, after);
    std::map<TokenId, int> counts;
    for (size_t i = 0; i < history.size(); ++i) {
      if (p.repeat_last_n < 0 || history.size() - i <= static_cast<size_t>(p.repeat_last_n)) ++counts[history[i]];
    }
    for (TokenId id = 0; id < vocab; ++id) {
      double want = before[id];
      if (counts.contains(id)) {
        want = want > 0 ? want / p.repeat_penalty : want * p.repeat_penalty;
        want -= counts[id] * p.frequency_penalty + p.presence_penalty;
      }
      ASSERT_EQ(after[id], static_cast<float>(want)) << round << " " << id;
    }
  }
}

TEST(Penalties, SurviveForeignTokensAndExtremeValues) {
  Penalties penalties;
  SamplingParams p;
  p.repeat_penalty = 1e30;
  p.presence_penalty = 1e300;
  std::vector<float> logits = {-1e30f, kInf, -kInf, kNan, 5.0f};
  const std::vector<TokenId> history = {-1, 5, 1 << 30, 0, 1, 2, 3, std::numeric_limits<TokenId>::min()};
  penalties.Apply(p, history, logits);
  EXPECT_EQ(logits[0], -std::numeric_limits<float>::max());  // penalized, not banned
  EXPECT_EQ(logits[1], -std::numeric_limits<float>::max());
  EXPECT_EQ(logits[2], -kInf);
  EXPECT_TRUE(std::isnan(logits[3]));
  EXPECT_EQ(logits[4], 5.0f);
}

TEST(Bias, AddsBansAndStaysFinite) {
  std::vector<float> logits = {1, 2, 3, -kInf};
  const LogitBias bias[] = {{0, 1.5}, {0, 1.0}, {1, -std::numeric_limits<double>::infinity()}, {2, 1e300}, {3, 5.0}};
  ApplyBias(bias, logits);
  EXPECT_EQ(logits, (std::vector<float>{3.5f, -kInf, std::numeric_limits<float>::max(), -kInf}));
}

TEST(Mask, ClearsExactlyTheBitsThatAreNotSet) {
  std::mt19937 rng(5);
  for (const size_t vocab : {1u, 31u, 32u, 33u, 100u}) {
    std::vector<uint32_t> mask((vocab + 31) / 32);
    for (uint32_t& word : mask) word = rng() % 4 == 0 ? 0xffffffff : rng() % 4 == 0 ? 0 : static_cast<uint32_t>(rng());
    std::vector<float> logits(vocab, 1.0f);
    ApplyMask(mask, logits);
    for (size_t i = 0; i < vocab; ++i) ASSERT_EQ(logits[i], (mask[i / 32] >> (i % 32) & 1) ? 1.0f : -kInf) << i;
  }
}

TEST(Window, TakesTheNewest) {
  const std::vector<TokenId> history = {1, 2, 3};
  EXPECT_EQ(Window(history, 2).front(), 2);
  EXPECT_EQ(Window(history, 2).size(), 2u);
  EXPECT_EQ(Window(history, 0).size(), 0u);
  EXPECT_EQ(Window(history, -1).size(), 3u);
  EXPECT_EQ(Window(history, 9).size(), 3u);
}

}  // namespace
}  // namespace ridge::sampling
