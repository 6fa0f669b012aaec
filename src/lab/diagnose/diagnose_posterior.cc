#include "lab/diagnose/diagnose_posterior.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "lab/statistics.h"

namespace ridge::lab {
namespace {

constexpr double kModelError = 0.03;  // parts overlap in truth: a sum is not exact
constexpr double kFreedom = 4;        // of Student's t: one answer that is wrong does not decide
constexpr int kBurnIn = 3000, kDraws = 4000, kThinning = 4;

struct Observed {
  double median = 1, error = 0.05;
  const Response* response = nullptr;
};

// Standard error of the median of the pairs, from the distance of their quartiles.
Observed Observe(const Response& r) {
  const double spread = (Quantile(r.ratios, 0.75) - Quantile(r.ratios, 0.25)) / 1.35;
  const double n = static_cast<double>(r.ratios.size());
  return {Median(r.ratios), 1.25 * spread / std::sqrt(n), &r};
}

double ErrorOf(const Observed& o, const Factors& s) {
  double variance = o.error * o.error + std::pow(kModelError * o.median, 2);
  for (size_t i = 0; i < kParts; i++) variance += std::pow(s[i] * o.response->factors[i] * o.response->doubt[i], 2);
  return std::sqrt(variance);
}

double LogLikelihood(const std::vector<Observed>& observed, const std::vector<MostShare>& limits, const Factors& s) {
  double sum = 0;
  for (const MostShare& limit : limits) {
    const double over = (Answer(s, limit.weights) - limit.most) / limit.doubt;
    if (over > 0) sum -= over * over / 2;
  }
  for (const Observed& o : observed) {
    const double error = ErrorOf(o, s), z = (o.median - Answer(s, o.response->factors)) / error;
    sum -= std::log(error) + (kFreedom + 1) / 2 * std::log1p(z * z / kFreedom);
  }
  return sum;
}

}  // namespace

double Answer(const Factors& shares, const Factors& factors) {
  double sum = 0;
  for (size_t i = 0; i < kParts; i++) sum += shares[i] * factors[i];
  return sum;
}

double Misfit(const Response& response, const Factors& shares) {
  const Observed o = Observe(response);
  return std::abs(o.median - Answer(shares, response.factors)) / ErrorOf(o, shares);
}

// Metropolis: some share moves from one part to another, by steps of several sizes.
std::vector<Factors> DrawShares(const PhaseEvidence& evidence) {
  std::vector<Observed> observed;
  for (const Response& r : evidence.responses) {
    if (!r.ratios.empty()) observed.push_back(Observe(r));
  }
  std::vector<Factors> draws;
  if (observed.empty()) return draws;
  std::mt19937_64 random(20261130);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  constexpr std::array<double, 3> kSteps = {0.03, 0.12, 0.5};
  Factors at;
  at.fill(1.0 / kParts);
  double level = LogLikelihood(observed, evidence.limits, at);
  for (int i = 0; i < kBurnIn + kDraws * kThinning; i++) {
    const size_t from = random() % kParts, to = (from + 1 + random() % (kParts - 1)) % kParts;
    const double amount = (2 * uniform() - 1) * kSteps[random() % kSteps.size()];
    Factors next = at;
    next[from] -= amount;
    next[to] += amount;
    if (next[from] >= 0 && next[to] >= 0) {
      const double there = LogLikelihood(observed, evidence.limits, next);
      if (std::log(uniform() + 1e-300) < there - level) {
        at = next;
        level = there;
      }
    }
    if (i >= kBurnIn && i % kThinning == 0) draws.push_back(at);
  }
  return draws;
}

}  // namespace ridge::lab
