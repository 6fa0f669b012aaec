// Panel matmul, once for every target. A tile is one panel (16 rows) times kM tokens: a panel is unpacked once and used for kM tokens.
//
// Numerics: inside a block the dot product and the folding of integer scales are exact in int32; across blocks every output element
// takes one fused multiply-add per block (two where the format has a minimum), in increasing k. kM, the lane count and the order of
// tiles change nothing.
#pragma once

#include "kernels.h"

namespace RIDGE_ISA {

using namespace ridge::cpu;

constexpr int kPanelStrip = 4;  // panels that share a token tile while it is in L1
constexpr int kPrefetchAheadBytes = 2 * 2368;

// What a tile reads of its tokens.
template <int kM>
struct Tokens {
  const int8_t* q[kM];
  const float* d[kM];
  const int32_t* sums[kM];
};

static inline int32_t Quad(const int8_t* p) {
  int32_t x;
  memcpy(&x, p, 4);
  return x;
}

static inline int64_t RowOf(const MatMulArgs& a, int64_t t) { return a.in_rows ? a.in_rows[t] : t; }

template <int kM>
static inline Tokens<kM> TokensAt(const MatMulArgs& a, int64_t t, int block, int sum_block) {
  Tokens<kM> x;
  for (int m = 0; m < kM; m++) {
    const int64_t row = RowOf(a, t + m);
    x.q[m] = a.x.q + row * a.x.k;
    x.d[m] = a.x.d + row * (a.x.k / block);
    x.sums[m] = a.x.sums + row * (a.x.k / sum_block);
  }
  return x;
}

// ---------------------------------------------------------------- blocks of 32 columns

// For each kind: s[m] = exact integer dot product of the block's quants with token m, offset removed.
template <int kM>
static inline void DotBlock(const PanelQ4_0& b, int h, const Tokens<kM>& x, int64_t kb, I* s) {
  for (int m = 0; m < kM; m++) s[m] = ISet(-8 * x.sums[m][kb]);
  for (int i = 0; i < 4; i++) {
    const B v = BLoad(b.q[i] + 4 * h), low = BLow4(v), high = BHigh4(v);
    for (int m = 0; m < kM; m++) {
      s[m] = Dot(s[m], low, Quad(x.q[m] + 32 * kb + 4 * i));
      s[m] = Dot(s[m], high, Quad(x.q[m] + 32 * kb + 16 + 4 * i));
    }
  }
}

template <int kM>
static inline void DotBlock(const PanelQ4_1& b, int h, const Tokens<kM>& x, int64_t kb, I* s) {
  for (int m = 0; m < kM; m++) s[m] = ISet(0);
  for (int i = 0; i < 4; i++) {
    const B v = BLoad(b.q[i] + 4 * h), low = BLow4(v), high = BHigh4(v);
    for (int m = 0; m < kM; m++) {
      s[m] = Dot(s[m], low, Quad(x.q[m] + 32 * kb + 4 * i));
      s[m] = Dot(s[m], high, Quad(x.q[m] + 32 * kb + 16 + 4 * i));
    }
  }
}

template <int kM, int kGroup>
static inline void DotGroup5(const uint8_t (*q)[64], B bits, int h, const Tokens<kM>& x, int64_t k, I* s) {
  const B v = BLoad(q[kGroup] + 4 * h);
  const B low = BOr(BLow4(v), BBitTo4<kGroup>(bits)), high = BOr(BHigh4(v), BBitTo4<kGroup + 4>(bits));
  for (int m = 0; m < kM; m++) {
    s[m] = Dot(s[m], low, Quad(x.q[m] + k + 4 * kGroup));
    s[m] = Dot(s[m], high, Quad(x.q[m] + k + 16 + 4 * kGroup));
  }
}

template <int kM>
static inline void Dot5(const uint8_t (*q)[64], const uint8_t* high_bits, int h, const Tokens<kM>& x, int64_t k, I* s) {
  const B bits = BLoad(high_bits + 4 * h);
  DotGroup5<kM, 0>(q, bits, h, x, k, s);
  DotGroup5<kM, 1>(q, bits, h, x, k, s);
  DotGroup5<kM, 2>(q, bits, h, x, k, s);
  DotGroup5<kM, 3>(q, bits, h, x, k, s);
}

template <int kM>
static inline void DotBlock(const PanelQ5_0& b, int h, const Tokens<kM>& x, int64_t kb, I* s) {
  for (int m = 0; m < kM; m++) s[m] = ISet(-16 * x.sums[m][kb]);
  Dot5<kM>(b.q, b.h, h, x, 32 * kb, s);
}

template <int kM>
static inline void DotBlock(const PanelQ5_1& b, int h, const Tokens<kM>& x, int64_t kb, I* s) {
  for (int m = 0; m < kM; m++) s[m] = ISet(0);
  Dot5<kM>(b.q, b.h, h, x, 32 * kb, s);
}

template <int kM>
static inline void DotBlock(const PanelQ8_0& b, int h, const Tokens<kM>& x, int64_t kb, I* s) {
  for (int m = 0; m < kM; m++) s[m] = ISet(-kWideOffset * x.sums[m][kb]);
  for (int i = 0; i < 8; i++) {
    const B v = BLoad(b.q[i] + 4 * h);
    for (int m = 0; m < kM; m++) s[m] = DotWide(s[m], v, Quad(x.q[m] + 32 * kb + 4 * i));
  }
}

template <class Panel>
struct HasMinimum {
  static constexpr bool value = false;
};
template <>
struct HasMinimum<PanelQ4_1> {
  static constexpr bool value = true;
};
template <>
struct HasMinimum<PanelQ5_1> {
  static constexpr bool value = true;
};

template <class Panel, int kM>
static inline void Accumulate32(const Panel* b, int h, const Tokens<kM>& x, int64_t n_blocks, F* acc) {
  for (int64_t kb = 0; kb < n_blocks; kb++) {
    if (h == 0) {
      for (unsigned line = 0; line < sizeof(Panel); line += 64)
        Prefetch((const char*)(b + kb) + line + kPrefetchAheadBytes);
    }
    I s[kM];
    DotBlock<kM>(b[kb], h, x, kb, s);
    const F d = FHalf(b[kb].d + h);
    for (int m = 0; m < kM; m++) acc[m] = Fma(FMul(d, FSet(x.d[m][kb])), FFromI(s[m]), acc[m]);
    if constexpr (HasMinimum<Panel>::value) {
      const F low = FHalf(b[kb].m + h);
      for (int m = 0; m < kM; m++) acc[m] = Fma(FMul(low, FSet(x.d[m][kb])), FSet((float)x.sums[m][kb]), acc[m]);
    }
  }
}

// ---------------------------------------------------------------- blocks of 256 columns

// t[m] = dot product of sub-block j (32 columns) with token m.
template <int kM>
static inline void DotSub(const PanelQ4_K& b, int j, int h, const Tokens<kM>& x, int64_t k, I* t) {
  for (int i = 0; i < 4; i++) {
    const B v = BLoad(b.q[j][i] + 4 * h), low = BLow4(v), high = BHigh4(v);
    for (int m = 0; m < kM; m++) {
      t[m] = Dot(t[m], low, Quad(x.q[m] + k + 4 * i));
      t[m] = Dot(t[m], high, Quad(x.q[m] + k + 16 + 4 * i));
    }
  }
}

template <int kM>
static inline void DotSub(const PanelQ5_K& b, int j, int h, const Tokens<kM>& x, int64_t k, I* t) {
  Dot5<kM>(b.q[j], b.h[j], h, x, k, t);
}

template <class Panel, int kM>
static inline void AccumulateMin256(const Panel* b, int h, const Tokens<kM>& x, int64_t n_blocks, F* acc) {
  for (int64_t kb = 0; kb < n_blocks; kb++, b++) {
    I weighted[kM], minima[kM];
    for (int m = 0; m < kM; m++) weighted[m] = minima[m] = ISet(0);
    for (int j = 0; j < 8; j++) {
      if (h == 0) {
        for (unsigned line = 0; line < sizeof(Panel) / 8; line += 64) {
          Prefetch((const char*)b + j * (sizeof(Panel) / 8) + line + kPrefetchAheadBytes);
        }
      }
      I t[kM];
      for (int m = 0; m < kM; m++) t[m] = ISet(0);
      DotSub<kM>(*b, j, h, x, 256 * kb + 32 * j, t);
      const I sc = ILoadU8(b->sc[j] + h), mn = ILoadU8(b->mn[j] + h);
      for (int m = 0; m < kM; m++) {
        const int32_t* sums = x.sums[m] + 16 * kb + 2 * j;
        weighted[m] = IAdd(weighted[m], IMul(t[m], sc));
        minima[m] = IAdd(minima[m], IMul(ISet(sums[0] + sums[1]), mn));
      }
    }
    const F d = FHalf(b->d + h), dm = FHalf(b->dm + h);
    for (int m = 0; m < kM; m++) {
      const float xd = x.d[m][kb];
      acc[m] = Fma(FMul(d, FSet(xd)), FFromI(weighted[m]), acc[m]);
      acc[m] = Fma(FMul(dm, FSet(-xd)), FFromI(minima[m]), acc[m]);
    }
  }
}

template <int kM, int kField>
static inline void DotGroup6(const PanelQ6_K& b, int j, B low_bits, B high_bits, int h, const Tokens<kM>& x, int64_t k,
                             I* t0, I* t1) {
  const B v = BLoad(b.q[j][kField] + 4 * h);
  const B low = BOr(BLow4(v), BPairTo4<kField>(low_bits)), high = BOr(BHigh4(v), BPairTo4<kField>(high_bits));
  for (int m = 0; m < kM; m++) {
    t0[m] = Dot(t0[m], low, Quad(x.q[m] + k + 4 * kField));
    t1[m] = Dot(t1[m], high, Quad(x.q[m] + k + 16 + 4 * kField));
  }
}

template <int kM>
static inline void AccumulateQ6_K(const PanelQ6_K* b, int h, const Tokens<kM>& x, int64_t n_blocks, F* acc) {
  for (int64_t kb = 0; kb < n_blocks; kb++, b++) {
    I weighted[kM];
    for (int m = 0; m < kM; m++) weighted[m] = ISet(0);
    for (int j = 0; j < 8; j++) {
      if (h == 0) {
        for (unsigned line = 0; line < sizeof(PanelQ6_K) / 8; line += 64) {
          Prefetch((const char*)b + j * (sizeof(PanelQ6_K) / 8) + line + kPrefetchAheadBytes);
        }
      }
      const int64_t k = 256 * kb + 32 * j;
      I t0[kM], t1[kM];
      for (int m = 0; m < kM; m++) {
        const int32_t* sums = x.sums[m] + 16 * kb + 2 * j;
        t0[m] = ISet(-32 * sums[0]);
        t1[m] = ISet(-32 * sums[1]);
      }
      const B low_bits = BLoad(b->h[j][0] + 4 * h), high_bits = BLoad(b->h[j][1] + 4 * h);
      DotGroup6<kM, 0>(*b, j, low_bits, high_bits, h, x, k, t0, t1);
      DotGroup6<kM, 1>(*b, j, low_bits, high_bits, h, x, k, t0, t1);
      DotGroup6<kM, 2>(*b, j, low_bits, high_bits, h, x, k, t0, t1);
      DotGroup6<kM, 3>(*b, j, low_bits, high_bits, h, x, k, t0, t1);
      const I sc0 = ILoadS8(b->sc[2 * j] + h), sc1 = ILoadS8(b->sc[2 * j + 1] + h);
      for (int m = 0; m < kM; m++) weighted[m] = IAdd(weighted[m], IAdd(IMul(t0[m], sc0), IMul(t1[m], sc1)));
    }
    const F d = FHalf(b->d + h);
    for (int m = 0; m < kM; m++) acc[m] = Fma(FMul(d, FSet(x.d[m][kb])), FFromI(weighted[m]), acc[m]);
  }
}

// ---------------------------------------------------------------- tiles

template <class Panel, int kM>
static inline void AccumulateBlocks(const MatMulArgs& a, const uint8_t* panel, int h, int64_t t, F* acc) {
  const Panel* b = (const Panel*)panel;
  if constexpr (sizeof(Panel) <= sizeof(PanelQ8_0)) {
    Accumulate32<Panel, kM>(b, h, TokensAt<kM>(a, t, 32, 32), a.x.k / 32, acc);
  } else if constexpr (sizeof(Panel) == sizeof(PanelQ6_K)) {
    AccumulateQ6_K<kM>(b, h, TokensAt<kM>(a, t, 256, 16), a.x.k / 256, acc);
  } else {
    AccumulateMin256<Panel, kM>(b, h, TokensAt<kM>(a, t, 256, 16), a.x.k / 256, acc);
  }
}

// Bias and residual are added in this order: the same roundings as a product with a bias and an addition after it.
static inline void StoreLanes(const MatMulArgs& a, int64_t row, int64_t t, F acc) {
  if (row >= a.n_rows) return;
  const int64_t at = t * a.out_stride + row;
  if (row + kLanes <= a.n_rows) {
    if (a.bias) acc = FAdd(acc, FLoad(a.bias + row));
    if (a.residual) acc = FAdd(FLoad(a.residual + at), acc);
    FStore(a.out + at, acc);
    return;
  }
  float lanes[kLanes];
  FStore(lanes, acc);
  for (int i = 0; row + i < a.n_rows; i++) {
    const float x = a.bias ? lanes[i] + a.bias[row + i] : lanes[i];
    a.out[at + i] = a.residual ? a.residual[at + i] + x : x;
  }
}

template <class Panel, int kM>
static inline void Tile(const MatMulArgs& a, int64_t panel, int64_t t) {
  for (int h = 0; h < kPanelRows; h += kLanes) {
    F acc[kM];
    for (int m = 0; m < kM; m++) acc[m] = FSet(0);
    AccumulateBlocks<Panel, kM>(a, a.panels + panel * a.panel_bytes, h, t, acc);
    for (int m = 0; m < kM; m++) StoreLanes(a, panel * kPanelRows + h, t + m, acc[m]);
  }
}

template <class Panel, int kM>
static inline void Strip(const MatMulArgs& a, int64_t panel, int64_t n_panels, int64_t t) {
  for (int64_t p = panel; p < panel + n_panels; p++) Tile<Panel, kM>(a, p, t);
}

template <class Panel>
static void MatMul(const MatMulArgs& a) {
  for (int64_t p = a.panel_begin; p < a.panel_end; p += kPanelStrip) {
    const int64_t n = a.panel_end - p < kPanelStrip ? a.panel_end - p : kPanelStrip;
    int64_t t = a.token_begin;
    if constexpr (kMaxTokens >= 8) {
      for (; t + 8 <= a.token_end; t += 8) Strip<Panel, 8>(a, p, n, t);
    }
    for (; t + 4 <= a.token_end; t += 4) Strip<Panel, 4>(a, p, n, t);
    for (; t + 2 <= a.token_end; t += 2) Strip<Panel, 2>(a, p, n, t);
    for (; t < a.token_end; t++) Strip<Panel, 1>(a, p, n, t);
  }
}

// ---------------------------------------------------------------- float weights: [k][16] of T, one fused multiply-add per k

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

// kP panels at once where there are few tokens: enough independent chains to hide the latency of the multiply-add.
template <class W, int kP, int kM>
static inline void FloatTile(const MatMulArgs& a, int64_t panel, int64_t t) {
  const float* x[kM];
  for (int m = 0; m < kM; m++) x[m] = a.x.f32 + RowOf(a, t + m) * a.x.f32_stride;
  for (int h = 0; h < kPanelRows; h += kLanes) {
    const typename W::T* w[kP];
    for (int p = 0; p < kP; p++) w[p] = (const typename W::T*)(a.panels + (panel + p) * a.panel_bytes) + h;
    F acc[kP][kM];
    for (int p = 0; p < kP; p++) {
      for (int m = 0; m < kM; m++) acc[p][m] = FSet(0);
    }
    for (int64_t k = 0; k < a.x.k; k++) {
      for (int p = 0; p < kP; p++) {
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
    for (; t + 8 <= a.token_end; t += 8) FloatStrip<W, 1, 8>(a, t);
  }
  for (; t + 4 <= a.token_end; t += 4) FloatStrip<W, 2, 4>(a, t);
  for (; t < a.token_end; t++) FloatStrip<W, 4, 1>(a, t);
}

}  // namespace RIDGE_ISA
