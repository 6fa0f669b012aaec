#include "quant/fit.h"

#include <cmath>
#include <cstddef>

#include "base/result.h"
#include "quant/rounding.h"

namespace ridge::quant {
namespace {

constexpr int kRounds = 3;           // of least squares and rounding; more change less than 0.1 % of the error
constexpr size_t kMaxElements = 32;  // of a group
constexpr size_t kLanes = 8;         // partial sums, so that the compiler can vectorize without reordering any sum

// As NearestEven, left as a float; without a branch, so that loops over it vectorize. NaN gives q_low.
float Round(float value, float q_low, float q_high) {
  value = value > q_low ? value : q_low;
  value = value < q_high ? value : q_high;
  return value + 0x1.8p23f - 0x1.8p23f;
}

// Sum of f(i), i < n, n a multiple of kLanes.
template <class F>
float Sum(size_t n, F f) {
  float lanes[kLanes] = {};
  for (size_t i = 0; i < n; i += kLanes) {
    for (size_t k = 0; k < kLanes; ++k) lanes[k] += f(i + k);
  }
  float sum = 0;
  for (float lane : lanes) sum += lane;
  return sum;
}

// One group with what does not change during the search.
class AffineGroup {
 public:
  AffineGroup(std::span<const float> x, std::span<const float> weights, int q_max)
      : x_(x), weights_(weights), q_max_(static_cast<float>(q_max)) {
    w_ = Sum(x_.size(), [&](size_t i) { return weights_[i]; });
    wx_ = Sum(x_.size(), [&](size_t i) { return weights_[i] * x_[i]; });
    wxx_ = Sum(x_.size(), [&](size_t i) { return weights_[i] * x_[i] * x_[i]; });
  }

  struct Step {
    AffineFit fit;
    float error;
  };

  // The best scale and minimum for the quants that rounding with `inverse` and `min` gives, and their error.
  Step Solve(float inverse, float min) const {
    float q[kMaxElements];
    float weighted[kMaxElements];
    for (size_t i = 0; i < x_.size(); ++i) {
      q[i] = Round((x_[i] + min) * inverse, 0, q_max_);
      weighted[i] = weights_[i] * q[i];
    }
    const float wq = Sum(x_.size(), [&](size_t i) { return weighted[i]; });
    const float wqq = Sum(x_.size(), [&](size_t i) { return weighted[i] * q[i]; });
    const float wqx = Sum(x_.size(), [&](size_t i) { return weighted[i] * x_[i]; });
    AffineFit fit = {0, 0};
    const float determinant = w_ * wqq - wq * wq;
    if (determinant > 0) fit = {(w_ * wqx - wq * wx_) / determinant, (wq * wqx - wqq * wx_) / determinant};
    if (!(fit.min > 0)) fit = {wqq > 0 ? wqx / wqq : 0, 0};  // the formats have no minimum above zero
    if (!(fit.scale > 0)) fit.scale = 0;
    const float s = fit.scale;
    const float m = fit.min;
    // sum of weight * (s*q - m - x)^2
    return {fit, s * s * wqq + m * m * w_ + wxx_ - 2 * (s * m * wq + s * wqx - m * wx_)};
  }

 private:
  std::span<const float> x_;
  std::span<const float> weights_;
  float q_max_;
  float w_;
  float wx_;
  float wxx_;
};

// The best scale for the quants that rounding with `inverse` gives, and how much of sum(weight * x^2) it explains.
struct SymmetricStep {
  float scale;
  float gain;
};

SymmetricStep SolveSymmetric(std::span<const float> x, std::span<const float> weights, int q_low, int q_high,
                             float inverse) {
  float q[kMaxElements];
  float weighted[kMaxElements];
  for (size_t i = 0; i < x.size(); ++i) {
    q[i] = Round(x[i] * inverse, static_cast<float>(q_low), static_cast<float>(q_high));
    weighted[i] = weights[i] * q[i];
  }
  const float wqq = Sum(x.size(), [&](size_t i) { return weighted[i] * q[i]; });
  const float wqx = Sum(x.size(), [&](size_t i) { return weighted[i] * x[i]; });
  if (!(wqq > 0)) return {0, 0};
  return {wqx / wqq, wqx * wqx / wqq};
}

}  // namespace

AffineFit FitAffine(std::span<const float> x, std::span<const float> weights, int q_max) {
  RIDGE_CHECK(x.size() <= kMaxElements && x.size() % kLanes == 0 && weights.size() == x.size());
  const Range range = RangeOf(x.data(), static_cast<int>(x.size()));
  const float low = std::min(range.low, 0.0f);
  const float width = range.high - low;
  if (!(width > 0) || !std::isfinite(width)) return {0, -low};
  const AffineGroup group(x, weights, q_max);
  AffineGroup::Step best = {{width / static_cast<float>(q_max), -low}, INFINITY};
  // Fewer steps than q_max cut off the extremes' outer half step, more leave quants unused.
  for (int candidate = -5; candidate <= 5; ++candidate) {
    const float steps = static_cast<float>(q_max) + 0.2f * static_cast<float>(candidate);
    AffineGroup::Step step = group.Solve(steps / width, -low);
    for (int round = 0; round < kRounds; ++round) {
      const AffineGroup::Step next = group.Solve(Inverse(step.fit.scale), step.fit.min);
      if (!(next.error < step.error)) break;
      step = next;
    }
    if (step.error < best.error) best = step;
  }
  return best.fit;
}

float FitSymmetric(std::span<const float> x, std::span<const float> weights, int q_low, int q_high) {
  RIDGE_CHECK(x.size() <= kMaxElements && x.size() % kLanes == 0 && weights.size() == x.size());
  const float largest = LargestMagnitude(x.data(), static_cast<int>(x.size()));
  if (largest == 0 || !std::isfinite(largest)) return 0;
  SymmetricStep best = {largest / static_cast<float>(q_low), 0};
  for (int candidate = -5; candidate <= 5; ++candidate) {
    const float steps = static_cast<float>(q_low) + 0.2f * static_cast<float>(candidate);
    SymmetricStep step = SolveSymmetric(x, weights, q_low, q_high, steps / largest);
    for (int round = 0; round < kRounds; ++round) {
      const SymmetricStep next = SolveSymmetric(x, weights, q_low, q_high, Inverse(step.scale));
      if (!(next.gain > step.gain)) break;
      step = next;
    }
    if (step.gain > best.gain) best = step;
  }
  return best.scale;
}

}  // namespace ridge::quant
