// Recurrent layers: the short causal convolution and the gated delta rule, token by token for prompts and for single tokens alike, so that no bit
// depends on how a prompt was cut. Every column of a head's matrix is a recurrence of its own: 16 of them lie along the lanes, and their part of the
// matrix (key_dim * 64 bytes) stays in the first-level cache over the tokens of a call.
#pragma once

#include "elementwise-inl.h"

namespace RIDGE_ISA {

using namespace ridge::cpu;

static void ShortConv(const float* const* rows, const float* weight, int64_t taps, int64_t stride, int64_t n,
                      float* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    F sum = FMul(FLoad(weight + i), FLoad(rows[0] + i));
    for (int64_t t = 1; t < taps; t++) sum = Fma(FLoad(weight + t * stride + i), FLoad(rows[t] + i), sum);
    FStore(out + i, Sigmoidal(sum, sum));
  }
}

// x / sqrt(sum x^2 + eps) * scale; the squares are summed as RmsNorm sums them.
static inline void UnitLength(const float* x, int64_t n, float eps, float scale, float* out) {
  constexpr int kParts = 16 / kLanes;
  F part[kParts];
  for (int p = 0; p < kParts; p++) part[p] = FSet(0);
  for (int64_t i = 0; i < n; i += 16) {
    for (int p = 0; p < kParts; p++) {
      const F v = FLoad(x + i + p * kLanes);
      part[p] = Fma(v, v, part[p]);
    }
  }
  float lanes[16];
  for (int p = 0; p < kParts; p++) FStore(lanes + p * kLanes, part[p]);
  const float factor = 1.0f / sqrtf(SumLanes(lanes) + eps) * scale;
  for (int64_t i = 0; i < n; i++) out[i] = x[i] * factor;
}

// One token on 16 columns: s [n][16]. Sums over the keys run in four parts, by key modulo 4, which are added in pairs.
static inline void DeltaStep(float* s, const float* q, const float* k, const float* v, int64_t n, float decay,
                             float beta, float* out) {
  constexpr int kParts = 16 / kLanes;
  const F g = FSet(decay);
  F sum[4][kParts], delta[kParts];
  for (int u = 0; u < 4; u++) {
    for (int p = 0; p < kParts; p++) sum[u][p] = FSet(0);
  }
  for (int64_t i = 0; i < n; i += 4) {
    for (int u = 0; u < 4; u++) {
      const F key = FSet(k[i + u]);
      for (int p = 0; p < kParts; p++) sum[u][p] = Fma(FLoad(s + (i + u) * 16 + p * kLanes), key, sum[u][p]);
    }
  }
  for (int p = 0; p < kParts; p++) {
    const F known = FMul(FAdd(FAdd(sum[0][p], sum[1][p]), FAdd(sum[2][p], sum[3][p])), g);
    delta[p] = FMul(FSub(FLoad(v + p * kLanes), known), FSet(beta));
    for (int u = 0; u < 4; u++) sum[u][p] = FSet(0);
  }
  for (int64_t i = 0; i < n; i += 4) {
    for (int u = 0; u < 4; u++) {
      const F key = FSet(k[i + u]), query = FSet(q[i + u]);
      for (int p = 0; p < kParts; p++) {
        float* at = s + (i + u) * 16 + p * kLanes;
        const F next = Fma(key, delta[p], FMul(FLoad(at), g));
        FStore(at, next);
        sum[u][p] = Fma(next, query, sum[u][p]);
      }
    }
  }
  for (int p = 0; p < kParts; p++)
    FStore(out + p * kLanes, FAdd(FAdd(sum[0][p], sum[1][p]), FAdd(sum[2][p], sum[3][p])));
}

static void DeltaRule(const DeltaRuleArgs& a) {
  const int64_t n = a.key_dim;
  float *queries = a.scratch, *keys = a.scratch + kDeltaTokens * n;
  const float scale = 1.0f / sqrtf((float)n);
  for (int64_t t = 0; t < a.n_tokens; t++) {
    UnitLength(a.q + t * a.stride, n, a.eps, scale, queries + t * n);
    UnitLength(a.k + t * a.stride, n, a.eps, 1.0f, keys + t * n);
  }
  for (int64_t b = a.block_begin; b < a.block_end; b++) {
    for (int64_t t = 0; t < a.n_tokens; t++) {
      DeltaStep(a.state + b * n * 16, queries + t * n, keys + t * n, a.v + t * a.stride + b * 16, n, a.decay[t],
                a.beta[t], a.out + t * a.out_stride + b * 16);
    }
  }
}

}  // namespace RIDGE_ISA
