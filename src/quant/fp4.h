// The 4-bit float E2M1 of MXFP4 and NVFP4, doubled so that its values are whole.
//
//   float x = d * kE2m1[q];           // q < 16
//   int q = NearestE2m1(x, d);        // of the smallest error |d * kE2m1[q] - x|; the lowest of equals
//
// Guarantees: defined for every float. Source: OCP Microscaling Formats (MX) 1.0, table of E2M1.
#pragma once

#include <cmath>
#include <cstdint>

namespace ridge::quant {

inline constexpr int8_t kE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

inline int NearestE2m1(float x, float d) {
  int best = 0;
  float least = std::fabs(d * static_cast<float>(kE2m1[0]) - x);
  for (int q = 1; q < 16; ++q) {
    const float error = std::fabs(d * static_cast<float>(kE2m1[q]) - x);
    if (error < least) {
      least = error;
      best = q;
    }
  }
  return best;
}

}  // namespace ridge::quant
