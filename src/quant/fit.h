// Scales for the encoders of the K types and of IQ4_NL: searches for those that leave the least weighted squared error.
//
//   AffineFit fit = FitAffine(x, weights, 15);          // x[n] ~ fit.scale * q[n] - fit.min, q in 0..15
//   float scale = FitSymmetric(x, weights, -32, 31);    // x[n] ~ scale * q[n], q in -32..31; the scale may be negative
//
// Guarantees: never worse than the plain choice (extremes of x onto extremes of q); finite input gives finite output,
// other input gives defined output. Deterministic.
// Method: least squares for the scale alternates with rounding for q, from several starting scales. The idea of trying
// several scales and the weights that callers pass are those of ggml's encoders (ggml-quants.c, make_qkx2_quants).
#pragma once

#include <span>

namespace ridge::quant {

struct AffineFit {
  float scale;  // not negative
  float min;    // not negative
};

// x, weights [n], weights not negative; n = 8, 16, 24 or 32.
AffineFit FitAffine(std::span<const float> x, std::span<const float> weights, int q_max);

// x, weights [n] as above; q_low < 0 < q_high, -q_low >= q_high.
float FitSymmetric(std::span<const float> x, std::span<const float> weights, int q_low, int q_high);

}  // namespace ridge::quant
