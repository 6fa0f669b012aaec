#include "engine/draft_model_policy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ridge::engine {
namespace {

constexpr double kPriorOdds = 0.7;
constexpr int64_t kProbeTokens = 2;
constexpr int64_t kAssumedLeft = 256;    // tokens of an answer that has no limit of its own
constexpr double kCatchUpReturn = 1.25;  // what reading must bring back
constexpr double kPromptGain = 8;        // tokens of a prompt in the time of one that is decoded, until it was measured

}  // namespace

double DraftModelPolicy::Odds(const DraftRecord& record) const { return Rate(record, Rate(all_, kPriorOdds)); }

double DraftModelPolicy::PassMs(int64_t sequences, const StepCosts& costs) const {
  if (const auto ms = passes_.DecodeMs(sequences)) return *ms;
  return cost_ratio_ * costs.DecodeMs(sequences).value_or(0);
}

double DraftModelPolicy::CatchUpMs(int64_t tokens, const StepCosts& costs) const {
  const double token_ms = passes_.PromptTokenMs().value_or(PassMs(1, costs) / kPromptGain);
  return token_ms * static_cast<double>(tokens);
}

int64_t DraftModelPolicy::CatchUpTokens(int64_t rows, const StepCosts& costs) const {
  const double ms = (rows > 1 ? 0.5 : 1.0) * costs.DecodeMs(rows).value_or(0), one = CatchUpMs(1, costs);
  return one > 0 ? std::max(kLeastCatchUp, static_cast<int64_t>(std::min(ms / one, 1e6))) : kLeastCatchUp;
}

void DraftModelPolicy::Choose(std::span<DraftModelAsk> asks, int64_t rows, int64_t most, const StepCosts& costs) {
  for (DraftModelAsk& ask : asks) ask.take = 0;
  const auto alone = costs.DecodeMs(rows);
  if (!alone || most <= 0) return;
  order_.resize(asks.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::erase_if(order_, [&](size_t i) { return asks[i].most <= 0; });
  std::ranges::stable_sort(order_, [&](size_t a, size_t b) { return asks[a].odds > asks[b].odds; });
  const double base = static_cast<double>(rows) / *alone;
  double best = DraftPolicy::kLeastGain;
  size_t best_m = 0;
  int64_t best_k = 0;
  // The first m of the order, k tokens each; token by token, so that each pair costs one look at the times.
  std::vector<double> reach(order_.size(), 1.0);  // that all k tokens of a sequence are accepted
  std::vector<double> expected(order_.size(), 0.0), pass_ms(order_.size(), 0.0);  // of the first m + 1, up to k
  std::vector<int64_t> drafted(order_.size(), 0);
  for (int64_t k = 1; k <= kMostDrafts; k++) {
    double gained = 0;
    int64_t active = 0;
    for (size_t m = 0; m < order_.size(); m++) {
      const DraftModelAsk& ask = asks[order_[m]];
      if (k <= ask.most) {
        reach[m] *= ask.odds;
        gained += reach[m];
        active++;
      }
      expected[m] += gained;
      drafted[m] += active;
      if (active == 0 || drafted[m] > most) continue;
      pass_ms[m] += PassMs(active, costs);
      const double gain =
          (static_cast<double>(rows) + expected[m]) / (*costs.DecodeMs(rows + drafted[m]) + pass_ms[m]) / base;
      if (gain > best) best = gain, best_m = m + 1, best_k = k;
    }
  }
  bool any = false;
  for (size_t m = 0; m < best_m; m++) {
    DraftModelAsk& ask = asks[order_[m]];
    if (ask.behind > 0) {
      const double left = static_cast<double>(ask.left < 0 ? kAssumedLeft : ask.left);
      const double saved_ms = left * *alone * (1 - 1 / best);
      if (CatchUpMs(ask.behind, costs) * kCatchUpReturn > saved_ms) continue;
    }
    ask.take = std::min(best_k, ask.most);
    ask.pays = true;
    any = true;
  }
  if (any) {
    idle_ms_ = 0;
    return;
  }
  idle_ms_ += *alone;
  DraftModelAsk* probe = nullptr;
  for (const size_t i : order_) {
    if (probe == nullptr || asks[i].behind < probe->behind) probe = &asks[i];
  }
  if (probe == nullptr) return;
  const double cost = CatchUpMs(probe->behind, costs) + kProbeTokens * PassMs(1, costs) +
                      std::max(0.0, *costs.DecodeMs(rows + kProbeTokens) - *alone);
  if (cost > kProbeShare * idle_ms_) return;
  idle_ms_ = 0;
  probe->take = std::min({kProbeTokens, probe->most, most});
}

void DraftModelPolicy::Learn(DraftRecord& record, int64_t proposed, int64_t accepted) {
  Count(record, accepted, accepted < proposed, 24);
  Count(all_, accepted, accepted < proposed, 96);
}

}  // namespace ridge::engine
