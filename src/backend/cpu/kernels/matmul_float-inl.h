// Matmul with float weights, once for every target: panels are [k][16] of T, every output takes one fused multiply-add per k.
#pragma once

#include "matmul-inl.h"

namespace RIDGE_ISA {

struct Float32 {
  using T = float;
  static inline F Load(const T* p) { return FLoad(p); }
};
struct Float16 {
  using T = uint16_t;
  static inline F Load(const T* p) { return FHalf(p); }
};
struct BFloat16 {
  using T = uint16_t;
  static inline F Load(const T* p) { return FBf16(p); }
};

// kP panels at once: enough independent chains to hide the latency of the multiply-add. Each is read ahead, behind its end where the next
// tile goes on.
template <class W, int kP, int kM>
static inline void FloatTile(const MatMulArgs& a, int64_t panel, int64_t t) {
  constexpr int64_t kRowBytes = kPanelRows * sizeof(typename W::T), kAheadRows = 4096 / kRowBytes;
  const float* x[kM];
  for (int m = 0; m < kM; m++) x[m] = a.x.f32 + RowOf(a, t + m) * a.x.f32_stride;
  const uint8_t* ahead[kP];
  for (int h = 0; h < kPanelRows; h += kLanes) {
    const typename W::T* w[kP];
    for (int p = 0; p < kP; p++) {
      const uint8_t* begin = a.panels + (panel + p) * a.panel_bytes;
      w[p] = (const typename W::T*)begin + h;
      ahead[p] = begin + kAheadRows * kRowBytes;
    }
    F acc[kP][kM];
    for (int p = 0; p < kP; p++) {
      for (int m = 0; m < kM; m++) acc[p][m] = FSet(0);
    }
    for (int64_t k = 0; k < a.x.k; k++) {
      const int64_t skip = a.x.k - k == kAheadRows ? (kP - 1) * a.panel_bytes : 0;
      for (int p = 0; p < kP; p++) {
        Prefetch(ahead[p]);
        ahead[p] += kRowBytes + skip;
        const F row = W::Load(w[p] + k * kPanelRows);
        for (int m = 0; m < kM; m++) acc[p][m] = Fma(row, FSet(x[m][k]), acc[p][m]);
      }
    }
    for (int p = 0; p < kP; p++) {
      for (int m = 0; m < kM; m++) StoreLanes(a, (panel + p) * kPanelRows + h, t + m, acc[p][m]);
    }
  }
}

template <class W, int kP, int kM>
static inline void FloatStrip(const MatMulArgs& a, int64_t t) {
  int64_t p = a.panel_begin;
  for (; p + kP <= a.panel_end; p += kP) FloatTile<W, kP, kM>(a, p, t);
  for (; p < a.panel_end; p++) FloatTile<W, 1, kM>(a, p, t);
}

template <class W>
static void FloatMatMul(const MatMulArgs& a) {
  int64_t t = a.token_begin;
  if constexpr (kMaxTokens >= 8) {
    for (; t + 8 <= a.token_end; t += 8) FloatStrip<W, 2, 8>(a, t);
  }
  for (; t + 4 <= a.token_end; t += 4) FloatStrip<W, 2, 4>(a, t);
  for (; t < a.token_end; t++) FloatStrip<W, 4, 1>(a, t);
}

}  // namespace RIDGE_ISA
