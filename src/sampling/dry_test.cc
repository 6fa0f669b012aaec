#include "sampling/dry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

namespace ridge::sampling {
namespace {

// DRY from its definition: for every earlier position, compare backwards token by token.
std::map<TokenId, double> NaivePenalties(const SamplingParams& p, std::vector<TokenId> history, int vocab) {
  std::map<TokenId, double> penalties;
  if (p.dry_penalty_last_n >= 0 && history.size() > static_cast<size_t>(p.dry_penalty_last_n)) {
    history.erase(history.begin(), history.end() - p.dry_penalty_last_n);
  }
  const int n = static_cast<int>(history.size());
  int limit = n;
  for (int end = 1; end <= n; ++end) {
    for (const auto& breaker : p.dry_sequence_breakers) {
      const int size = static_cast<int>(breaker.size());
      if (size <= end && std::equal(breaker.begin(), breaker.end(), history.begin() + end - size)) limit = n - end;
    }
  }
  std::map<TokenId, int> longest;
  for (int end = 1; end < n; ++end) {  // history[0, end) against history[0, n)
    int length = 0;
    while (length < end && length < limit && history[end - 1 - length] == history[n - 1 - length]) ++length;
    const TokenId next = history[end];
    if (std::ranges::count(p.dry_sequence_breakers, std::vector<TokenId>{next}) > 0 || next < 0 || next >= vocab)
      continue;
    if (length >= p.dry_allowed_length) longest[next] = std::max(longest[next], length);
  }
  for (const auto& [id, length] : longest) {
    penalties[id] = p.dry_multiplier * std::pow(p.dry_base, length - p.dry_allowed_length);
  }
  return penalties;
}

TEST(Dry, MatchesTheDefinition) {
  std::mt19937 rng(1);
  int penalized = 0;
  for (int round = 0; round < 3000; ++round) {
    const int vocab = 2 + static_cast<int>(rng() % 5);
    SamplingParams p;
    p.dry_multiplier = 0.8;
    p.dry_allowed_length = 1 + static_cast<int>(rng() % 3);
    p.dry_penalty_last_n = round % 3 == 0 ? -1 : static_cast<int>(rng() % 40);
    for (int i = static_cast<int>(rng() % 3); i > 0; --i) {
      p.dry_sequence_breakers.emplace_back(1 + rng() % 3);
      for (TokenId& id : p.dry_sequence_breakers.back()) id = static_cast<TokenId>(rng() % vocab);
    }
    ASSERT_TRUE(Validate(p, vocab));
    std::vector<TokenId> history(rng() % 60);
    for (TokenId& id : history) id = static_cast<TokenId>(rng() % vocab) - (rng() % 50 == 0 ? 7 : 0);
    Dry dry(p, vocab);
    std::vector<float> logits(vocab, 1.0f);
    dry.Apply(p, history, logits);
    const auto want = NaivePenalties(p, history, vocab);
    for (TokenId id = 0; id < vocab; ++id) {
      const double penalty = want.contains(id) ? want.at(id) : 0.0;
      penalized += penalty > 0;
      ASSERT_NEAR(logits[id], 1.0 - penalty, 1e-6 * (1 + penalty)) << round << " " << id;
    }
  }
  EXPECT_GT(penalized, 1000);
}

TEST(Dry, WorkedExample) {
  // a b c c b c y a b c: "a b c" occurred and was followed by c, "b c" by y, "c" by b.
  SamplingParams p;
  p.dry_multiplier = 1.0;
  p.dry_base = 2.0;
  p.dry_allowed_length = 1;
  Dry dry(p, 4);
  std::vector<float> logits(4, 0.0f);
  dry.Apply(p, std::vector<TokenId>{0, 1, 2, 2, 1, 2, 3, 0, 1, 2}, logits);
  EXPECT_EQ(logits, (std::vector<float>{0, -1, -4, -2}));
}

TEST(Dry, LongRepeatsLowerButNeverBan) {
  SamplingParams p;
  p.dry_multiplier = 1e10;
  p.dry_base = 1e10;
  p.dry_penalty_last_n = -1;
  Dry dry(p, 2);
  std::vector<float> logits = {1.0f, 0.0f};
  dry.Apply(p, std::vector<TokenId>(5000, 0), logits);
  EXPECT_TRUE(std::isfinite(logits[0]));
  EXPECT_LT(logits[0], -1e38f);
  EXPECT_EQ(logits[1], 0.0f);
}

TEST(DryBreakers, FindsTokensThatHoldOrBeginABreaker) {
  const std::vector<std::string> pieces = {"", "a", "\n", "x\n", "en", "end", "d", "the en", ":"};
  const auto piece = [&](TokenId id) { return std::string_view(pieces[id]); };
  const auto encode = [&](std::string_view text) {
    return text == "d" ? std::vector<TokenId>{6} : text == "nd" ? std::vector<TokenId>{1, 6} : std::vector<TokenId>{};
  };
  const std::vector<std::string> texts = {"\n", "end", ""};
  EXPECT_EQ(DryBreakers(texts, 9, piece, encode), (std::vector<std::vector<TokenId>>{{2}, {3}, {4, 6}, {5}, {7, 6}}));
  EXPECT_EQ(DefaultDryBreakers().size(), 4u);
}

}  // namespace
}  // namespace ridge::sampling
