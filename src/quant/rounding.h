// Float to quant for the encoders: defined for every float, NaN and infinity included.
//
//   int q = Quantize(x * inverse, -128, 127);   // round half away from zero, then clamp; NaN gives 0 or the nearest
//   bound float inverse = Inverse(d);                 // 1/d, but 0 for 0
//
// Guarantees: no undefined conversion, whatever the input. A block with a NaN or an infinity gets defined bytes that
// mean nothing.
#pragma once

#include <algorithm>
#include <cmath>

namespace ridge::quant {

// A float that is already whole (or is to be cut towards zero), clamped to [low, high] before it becomes an int.
inline int ToInt(float value, int low, int high) {
  if (std::isnan(value)) return std::clamp(0, low, high);
  return static_cast<int>(std::clamp(value, static_cast<float>(low), static_cast<float>(high)));
}

inline int Quantize(float value, int low, int high) { return ToInt(std::round(value), low, high); }

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
