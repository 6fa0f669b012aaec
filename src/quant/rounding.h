// Float to quant for the encoders: defined for every float, NaN and infinity included.
//
//   float inverse = Inverse(d);                 // 1/d, but 0 for 0
//   int q = Quantize(x * inverse, -128, 127);   // rounded, then clamped; NaN gives 0 or the bound nearest to it
//
// Guarantees: no undefined conversion, whatever the input. A block with a NaN or an infinity gets defined bytes that
// mean nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace ridge::quant {

// A float that is already whole (or is to be cut towards zero), clamped to [low, high] before it becomes an int.
inline int ToInt(float value, int low, int high) {
  if (std::isnan(value)) return std::clamp(0, low, high);
  return static_cast<int>(std::clamp(value, static_cast<float>(low), static_cast<float>(high)));
}

// Half away from zero.
inline int Quantize(float value, int low, int high) {
  if (std::isnan(value)) return std::clamp(0, low, high);
  const float bounded = std::clamp(value, static_cast<float>(low), static_cast<float>(high));
  const int whole = static_cast<int>(bounded);
  const float rest = bounded - static_cast<float>(whole);
  return whole + (rest >= 0.5f ? 1 : 0) - (rest <= -0.5f ? 1 : 0);
}

// Half to even. |low| and |high| below 2^22: adding 1.5 * 2^23 leaves no fraction bits, so the addition rounds.
inline int NearestEven(float value, int low, int high) {
  if (std::isnan(value)) return std::clamp(0, low, high);
  const float bounded = std::clamp(value, static_cast<float>(low), static_cast<float>(high));
  return static_cast<int>(__builtin_bit_cast(uint32_t, bounded + 0x1.8p23f) - 0x4b400000);
}

inline float Inverse(float d) { return d == 0 ? 0 : 1 / d; }

// The first element of largest magnitude, with its sign; 0 for no element. NaNs are passed over.
inline float LargestMagnitude(const float* x, int n) {
  float largest = 0;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
  }
  return largest;
}

struct Range {
  float low;
  float high;
};

// Smallest and largest element. NaNs are passed over; {0, 0} when there is nothing else.
inline Range RangeOf(const float* x, int n) {
  Range range = {INFINITY, -INFINITY};
  for (int i = 0; i < n; ++i) {
    if (x[i] < range.low) range.low = x[i];
    if (x[i] > range.high) range.high = x[i];
  }
  return range.low <= range.high ? range : Range{0, 0};
}

}  // namespace ridge::quant
