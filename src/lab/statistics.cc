#include "lab/statistics.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ridge::lab {
namespace {

constexpr double kConfidence = 0.95;

// Probability that at most `k` of `n` fair coins show heads.
double CoinsAtMost(size_t k, size_t n) {
  double term = std::exp2(-static_cast<double>(n)), sum = term;
  for (size_t i = 1; i <= k; i++) {
    term *= static_cast<double>(n - i + 1) / static_cast<double>(i);
    sum += term;
  }
  return sum;
}

}  // namespace

double Median(std::vector<double> samples) { return Quantile(std::move(samples), 0.5); }

double Quantile(std::vector<double> samples, double q) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const double at = q * static_cast<double>(samples.size() - 1);
  const size_t low = static_cast<size_t>(at), high = std::min(low + 1, samples.size() - 1);
  return samples[low] + (at - static_cast<double>(low)) * (samples[high] - samples[low]);
}

std::optional<Interval> MedianInterval(std::vector<double> samples) {
  const size_t n = samples.size();
  if (n < 2) return std::nullopt;
  std::sort(samples.begin(), samples.end());
  // With the k-th smallest and the k-th largest (k from 0), the median lies outside where at most k samples are on one side of it.
  size_t best = 0;
  if (n <= 1000) {  // beyond that 2^-n is 0; ends of the sample are then a wide but true interval
    for (size_t k = 0; k < n / 2 && 1 - 2 * CoinsAtMost(k, n) >= kConfidence; k++) best = k;
  }
  return Interval{samples[best], samples[n - 1 - best], 1 - 2 * CoinsAtMost(best, n)};
}

bool IsSteady(const std::vector<double>& samples, double tolerance) {
  if (samples.size() < 2) return false;
  const double a = samples[samples.size() - 2], b = samples.back();
  return std::abs(a - b) <= tolerance * std::max(std::abs(a), std::abs(b));
}

}  // namespace ridge::lab
