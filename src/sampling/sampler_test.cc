#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace ridge::sampling {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingParams Neutral() {
  SamplingParams p;
  p.temperature = 1.0;
  p.top_k = 0;
  p.top_p = 1.0;
  p.min_p = 0.0;
  return p;
}

Sampler Make(const SamplingParams& params, size_t vocab) {
  return std::move(Sampler::Create(params, static_cast<int32_t>(vocab)).value());
}

TokenId Draw(Sampler& sampler, std::vector<float> logits, uint64_t request, uint64_t position,
             const std::vector<TokenId>& history = {}, const std::vector<uint32_t>& mask = {}) {
  return sampler.Sample(logits, history, request, position, mask).value();
}

// Logits with many equal values now and then, banned ones and a wide range.
std::vector<float> RandomLogits(std::mt19937& rng, size_t n) {
  std::normal_distribution<float> normal(0, 1.0f + static_cast<float>(rng() % 5));
  std::vector<float> logits(n);
  const int kind = static_cast<int>(rng() % 4);
  for (float& l : logits) {
    l = normal(rng);
    if (kind == 1) l = std::round(l);
    if (kind == 2 && rng() % 3 == 0) l = -kInf;
    if (kind == 3 && rng() % 3 == 0) l = kNan;
  }
  if (!std::ranges::any_of(logits, [](float l) { return l > -kInf; })) logits[rng() % n] = 1.0f;
  return logits;
}

// One straightforward implementation: full sorts, probabilities recomputed at every step.
struct Naive {
  struct Item {
    TokenId id;
    double logit;
    double p = 0;
  };
  std::vector<Item> items;  // best first
  double temperature = 1.0;

  explicit Naive(const std::vector<float>& logits) {
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] > -kInf) items.push_back({static_cast<TokenId>(i), logits[i]});
    }
    Softmax();
  }
  void Softmax() {
    std::ranges::stable_sort(items, [](const Item& a, const Item& b) { return a.logit > b.logit; });
    double sum = 0;
    for (Item& i : items) sum += i.p = std::exp((i.logit - items[0].logit) / temperature);
    for (Item& i : items) i.p /= sum;
  }
  void Apply(Stage stage, const SamplingParams& p) {
    const size_t min_keep = static_cast<size_t>(std::max(1, p.min_keep));
    size_t keep = items.size();
    switch (stage) {
      case Stage::kTopNSigma: {
        if (p.top_n_sigma <= 0) break;
        double mean = 0, var = 0;
        for (const Item& i : items) mean += i.logit / static_cast<double>(items.size());
        for (const Item& i : items) var += (i.logit - mean) * (i.logit - mean) / static_cast<double>(items.size());
        const double limit = items[0].logit - p.top_n_sigma * std::sqrt(var);
        keep = std::ranges::count_if(items, [&](const Item& i) { return i.logit >= limit - 1e-12; });
        break;
      }
      case Stage::kTopK:
        if (p.top_k > 0) keep = std::min(keep, static_cast<size_t>(p.top_k));
        break;
      case Stage::kTypicalP: {
        if (p.typical_p >= 1) break;
        double entropy = 0;
        for (const Item& i : items) entropy -= i.p * std::log(i.p);
        // Rounded, so that equal probabilities tie whatever the last bits say; the stable sort then keeps the better
        // first.
        const auto distance = [&](const Item& i) { return std::round(std::fabs(-std::log(i.p) - entropy) * 1e9); };
        std::ranges::stable_sort(items, [&](const Item& a, const Item& b) { return distance(a) < distance(b); });
        double sum = 0;
        for (size_t i = 0; i < items.size(); ++i) {
          sum += items[i].p;
          if (sum > p.typical_p && i + 1 >= min_keep) {
            keep = i + 1;
            break;
          }
        }
        break;
      }
      case Stage::kTopP: {
        if (p.top_p >= 1) break;
        double sum = 0;
        for (size_t i = 0; i < items.size(); ++i) {
          sum += items[i].p;
          if (sum >= p.top_p && i + 1 >= min_keep) {
            keep = i + 1;
            break;
          }
        }
        break;
      }
      case Stage::kMinP:
        if (p.min_p <= 0) break;
        for (size_t i = 0; i < items.size(); ++i) {
          if (items[i].p < p.min_p * items[0].p && i >= min_keep) {
            keep = i;
            break;
          }
        }
        break;
      case Stage::kXtc: {
        if (p.xtc_probability < 1 || p.xtc_threshold > 0.5) break;  // the tests use a chance of 0 or 1
        const size_t above = std::ranges::count_if(items, [&](const Item& i) { return i.p >= p.xtc_threshold; });
        if (above >= 2 && items.size() - (above - 1) >= min_keep) items.erase(items.begin(), items.begin() + above - 1);
        keep = items.size();
        break;
      }
      case Stage::kTemperature: temperature *= p.temperature; break;
    }
    items.resize(keep);
    Softmax();
  }
};

std::vector<TokenId> SortedIds(auto items) {
  std::vector<TokenId> ids;
  for (const auto& i : items) ids.push_back(i.id);
  std::ranges::sort(ids);
  return ids;
}

TEST(Sampler, KeepsTheCandidatesOfTheNaiveReference) {
  std::mt19937 rng(1);
  const auto fraction = [&] { return 0.02 + 0.96 * static_cast<double>(rng() % 1000) / 1000.0; };
  int truncated = 0;
  for (int round = 0; round < 4000; ++round) {
    const size_t vocab = round % 10 == 0 ? 2000 + rng() % 1000 : 2 + rng() % 150;
    SamplingParams p = Neutral();
    p.temperature = 0.2 + 2 * fraction();
    if (rng() % 2) p.top_k = static_cast<int32_t>(2 + rng() % 100);
    if (rng() % 2) p.top_p = fraction();
    if (rng() % 2) p.min_p = fraction() * 0.3;
    if (rng() % 3 == 0) p.typical_p = fraction();
    if (rng() % 3 == 0) p.top_n_sigma = fraction() * 3;
    if (rng() % 3 == 0) p.xtc_probability = 1.0, p.xtc_threshold = fraction() / 2;
    if (rng() % 2) p.min_keep = static_cast<int32_t>(rng() % 20);
    std::ranges::shuffle(p.samplers, rng);
    if (rng() % 2) p.samplers = SamplingParams{}.samplers;
    const std::vector<float> logits = RandomLogits(rng, vocab);
    Sampler sampler = Make(p, vocab);
    ASSERT_FALSE(sampler.greedy());
    const TokenId drawn = Draw(sampler, logits, 1, static_cast<uint64_t>(round));

    Naive naive(logits);
    const size_t before = naive.items.size();
    for (const Stage stage : p.samplers) naive.Apply(stage, p);
    truncated += naive.items.size() < before;
    const std::vector<TokenId> want = SortedIds(naive.items);
    if (sampler.candidates().empty()) {  // nothing is dropped, so no set was made
      ASSERT_EQ(naive.items.size(), before) << "round " << round;
    } else {
      ASSERT_EQ(SortedIds(sampler.candidates()), want) << "round " << round;
    }
    ASSERT_TRUE(std::ranges::binary_search(want, drawn)) << "round " << round;
  }
  EXPECT_GT(truncated, 2000);
}

// Draws against the exact probabilities of the reference.
TEST(Sampler, DrawsFollowTheExactDistribution) {
  std::mt19937 rng(2);
  for (int round = 0; round < 12; ++round) {
    const size_t vocab = 30;
    SamplingParams p = Neutral();
    p.seed = 1000 + static_cast<uint64_t>(round);
    p.temperature = 0.5 + 0.25 * (round % 4);
    if (round % 3 == 1) p.top_k = 12, p.top_p = 0.9;
    if (round % 3 == 2) p.min_p = 0.02, p.typical_p = 0.9;
    std::vector<float> logits(vocab);
    for (float& l : logits) l = static_cast<float>(rng() % 1000) / 300.0f;
    Naive naive(logits);
    for (const Stage stage : p.samplers) naive.Apply(stage, p);
    Sampler sampler = Make(p, vocab);
    constexpr int kDraws = 20000;
    std::vector<int> counts(vocab);
    // Half the draws along the positions of one request, half along the requests at one position.
    for (int i = 0; i < kDraws; ++i) {
      const uint64_t n = static_cast<uint64_t>(i);
      ++counts[Draw(sampler, logits, i % 2 ? n : 7, i % 2 ? 3 : n)];
    }
    double chi2 = 0, rest = 0, rest_count = 0;
    int cells = 0, inside = 0;
    for (const Naive::Item& item : naive.items) {
      const double want = item.p * kDraws;
      inside += counts[item.id];
      if (want < 8) {
        rest += want, rest_count += counts[item.id];
        continue;
      }
      chi2 += (counts[item.id] - want) * (counts[item.id] - want) / want;
      ++cells;
    }
    if (rest > 0) chi2 += (rest_count - rest) * (rest_count - rest) / std::max(rest, 4.0), ++cells;
    ASSERT_EQ(inside, kDraws);
    ASSERT_GE(cells, 3);
    const double freedom = cells - 1;
    EXPECT_LT(chi2, freedom + 4 * std::sqrt(2 * freedom) + 4) << "round " << round << ", cells " << cells;
  }
}

TEST(Sampler, DrawDependsOnlyOnSeedRequestAndPosition) {
  std::mt19937 rng(3);
  const size_t vocab = 500;
  SamplingParams p;
  p.seed = 99;
  p.repeat_penalty = 1.2;
  p.dry_multiplier = 0.5;
  struct Place {
    uint64_t request, position;
    std::vector<float> logits;
    std::vector<TokenId> history;
    TokenId alone;
  };
  std::vector<Place> places(200);
  for (size_t i = 0; i < places.size(); ++i) {
    Place& place = places[i];
    place.request = i % 7;
    place.position = i / 7;
    place.logits = RandomLogits(rng, vocab);
    place.history.resize(rng() % 40);
    for (TokenId& id : place.history) id = static_cast<TokenId>(rng() % 10);
    Sampler fresh = Make(p, vocab);
    place.alone = Draw(fresh, place.logits, place.request, place.position, place.history);
  }
  Sampler shared = Make(p, vocab);
  for (int pass = 0; pass < 3; ++pass) {
    std::ranges::shuffle(places, rng);
    for (const Place& place : places) {
      ASSERT_EQ(Draw(shared, place.logits, place.request, place.position, place.history), place.alone);
    }
  }
  p.seed = 100;
  Sampler other = Make(p, vocab);
  int different = 0;
  for (const Place& place : places) {
    different += Draw(other, place.logits, place.request, place.position, place.history) != place.alone;
  }
  EXPECT_GT(different, 20);
}

// The tokens themselves: a change of order of operations, of a constant or of the generator fails here.
TEST(Sampler, ChoicesAreFixedForAllTime) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (int kind = 0; kind < 4; ++kind) {
    SamplingParams p;
    p.seed = 5;
    p.temperature = 1.3;
    if (kind == 1) p = Neutral();
    if (kind == 2) p.top_k = 0, p.typical_p = 0.8;
    if (kind == 3) p.top_k = 0, p.xtc_probability = 0.5, p.xtc_threshold = 0.02, p.dry_multiplier = 1, p.dry_base = 1.3;
    Sampler sampler = Make(p, 3000);
    std::vector<TokenId> history;
    for (uint64_t position = 0; position < 200; ++position) {
      std::vector<float> logits(3000);
      for (size_t i = 0; i < logits.size(); ++i) {
        const uint32_t bits = static_cast<uint32_t>((i * 2654435761u) ^ (position * 40503u * 65536u));
        logits[i] = static_cast<float>(bits >> 8) * 0x1p-24f * 12.0f;
      }
      history.push_back(Draw(sampler, logits, 8, position, history));
      hash = (hash ^ static_cast<uint64_t>(history.back())) * 0x100000001b3ULL;
    }
  }
  EXPECT_EQ(hash, 0x25c4031e17cc7f10ULL) << std::hex << hash;
}

TEST(Sampler, GreedyTakesTheHighestAndTheLowestIdOfEquals) {
  std::mt19937 rng(4);
  for (int round = 0; round < 300; ++round) {
    const size_t vocab = 1 + rng() % 300;
    SamplingParams p;
    (round % 2 ? p.temperature : p.top_p) = 0.0;
    if (round % 2 == 0) p.top_k = 1;
    Sampler sampler = Make(p, vocab);
    EXPECT_TRUE(sampler.greedy());
    const std::vector<float> logits = RandomLogits(rng, vocab);
    TokenId want = -1;
    for (size_t i = 0; i < vocab; ++i) {
      if (logits[i] > -kInf && (want < 0 || logits[i] > logits[want])) want = static_cast<TokenId>(i);
    }
    ASSERT_EQ(Draw(sampler, logits, 0, static_cast<uint64_t>(round)), want);
  }
}

TEST(Sampler, TopKOfOneIsNotGreedyBehindAStageThatMayDropTheBest) {
  SamplingParams p = Neutral();
  p.top_k = 1;
  p.xtc_probability = 1.0;
  p.samplers = {Stage::kXtc, Stage::kTopK};
  Sampler sampler = Make(p, 3);
  EXPECT_FALSE(sampler.greedy());
  EXPECT_EQ(Draw(sampler, {2.0f, 1.9f, 0.0f}, 0, 0), 1);
}

TEST(Sampler, TinyAndHugeTemperaturesWork) {
  for (const double temperature : {1e-300, 1e-6, 1e300}) {
    SamplingParams p = Neutral();
    p.temperature = temperature;
    p.typical_p = 0.9;
    p.samplers = {Stage::kTemperature, Stage::kTypicalP};
    Sampler sampler = Make(p, 3);
    bool seen[3] = {};
    for (uint64_t i = 0; i < 100; ++i) seen[Draw(sampler, {1.0f, 3.0f, 2.0f}, 0, i)] = true;
    EXPECT_TRUE(seen[1]);
    EXPECT_EQ(seen[0], temperature > 1) << temperature;
  }
}

TEST(Sampler, NanAndInfinityHaveADefinedResult) {
  for (const bool greedy : {true, false}) {
    SamplingParams p = Neutral();
    if (greedy) p.temperature = 0.0;
    Sampler sampler = Make(p, 4);
    for (uint64_t i = 0; i < 50; ++i) {
      EXPECT_EQ(Draw(sampler, {kNan, 1.0f, kNan, -kInf}, 0, i), 1);
      EXPECT_EQ(sampler.nan_count(), 2);
      EXPECT_EQ(Draw(sampler, {100.0f, kInf, kNan, -kInf}, 0, i), 1);
      EXPECT_EQ(Draw(sampler, {-kInf, -3e38f, -kInf, -kInf}, 0, i), 1);
      EXPECT_EQ(sampler.nan_count(), 0);
    }
    for (const std::vector<float>& bad : {std::vector<float>(4, kNan), std::vector<float>(4, -kInf)}) {
      std::vector<float> logits = bad;
      const Result<TokenId> result = sampler.Sample(logits, {}, 0, 17);
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().code, Code::kInvalidData);
      EXPECT_NE(result.error().Message().find("position 17"), std::string::npos);
    }
  }
}

TEST(Sampler, MaskIsNeverBroken) {
  std::mt19937 rng(6);
  for (int round = 0; round < 500; ++round) {
    const size_t vocab = 1 + rng() % 200;
    SamplingParams p;
    if (round % 3 == 0) p.temperature = 0;
    if (round % 3 == 1) p.logit_bias = {{0, 100.0}};
    p.presence_penalty = 1e300;  // even when every allowed token is penalized beyond reason
    std::vector<uint32_t> mask((vocab + 31) / 32, 0);
    const size_t allowed = rng() % vocab;
    mask[allowed / 32] |= 1u << (allowed % 32);
    if (round % 2) mask[0] |= 1;
    Sampler sampler = Make(p, vocab);
    const TokenId drawn =
        Draw(sampler, std::vector<float>(vocab, 1.0f), 0, 0, {static_cast<TokenId>(allowed), 0}, mask);
    ASSERT_TRUE(mask[drawn / 32] >> (drawn % 32) & 1);
  }
}

TEST(Sampler, WrongSizesAreErrors) {
  Sampler sampler = Make({}, 40);
  std::vector<float> logits(39, 0.0f);
  EXPECT_EQ(sampler.Sample(logits, {}, 0, 0).error().code, Code::kInvalidArgument);
  logits.resize(40);
  const std::vector<uint32_t> mask(1, 0xffffffff);
  EXPECT_EQ(sampler.Sample(logits, {}, 0, 0, mask).error().code, Code::kInvalidArgument);
  EXPECT_EQ(Sampler::Create({.top_p = 2.0}, 40).error().where, "top_p");
}

}  // namespace
}  // namespace ridge::sampling
