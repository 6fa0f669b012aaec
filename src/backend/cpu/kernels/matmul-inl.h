// Panel matmul, once for every target. A tile is kV vectors ("columns") of rows times kM tokens: the rows' bytes are unpacked once and used
// for kM tokens, a token's bytes are broadcast once and used for kV vectors.
//
// Numerics: inside a block the dot product and the folding of integer scales are exact in int32; across blocks every output element
// takes one fused multiply-add per block (two in blocks of 32 with a minimum or with a scale for 16 columns), in increasing k; in blocks
// of 256 a minimum is first merged with the scaled sum. kM, the lane count and the order of tiles change nothing.
#pragma once

#include "unpack-inl.h"

namespace RIDGE_ISA {

template <int kV>
constexpr int kPanelsOf = kV * kLanes / kPanelRows;  // of a tile with kV columns

constexpr int kOnePanel = kPanelRows / kLanes;  // the columns of one panel
static_assert(kColumns % kOnePanel == 0, "a tile is whole panels");

static inline int64_t RowOf(const MatMulArgs& a, int64_t t) { return a.in_rows ? a.in_rows[t] : t; }

// What a tile reads of its tokens.
template <int kM>
struct Tokens {
  const int8_t* q[kM];
  const float* d[kM];
  const int32_t* sums[kM];
};

// Tokens past the end repeat the last one: computed, not stored.
template <int kM>
static inline Tokens<kM> TokensAt(const MatMulArgs& a, int64_t t, ActKind act) {
  Tokens<kM> x;
  for (int m = 0; m < kM; m++) {
    const int64_t row = RowOf(a, t + m < a.token_end ? t + m : a.token_end - 1);
    x.q[m] = a.x.q + row * a.x.k;
    x.d[m] = a.x.d + row * ActScales(act, a.x.k);
    x.sums[m] = a.x.sums + row * ActSums(act, a.x.k);
  }
  return x;
}

// Where the lanes of a column lie.
static inline constexpr int PanelOf(int column) { return column * kLanes / kPanelRows; }
static inline constexpr int LaneOf(int column) { return column * kLanes % kPanelRows; }

// Where the panels of a tile are read ahead: kAhead blocks on, and behind the end of a panel in the panel that the next tile has in its
// place.
template <class Block, int kV>
struct ReadAhead {
  static constexpr int kAhead = sizeof(Block) < 1024 ? 8 : 2;
  const char* at[kPanelsOf<kV>];
  int64_t skip;

  inline ReadAhead(const Block* const* b, int64_t panel_bytes) : skip((kPanelsOf<kV> - 1) * panel_bytes) {
    for (int p = 0; p < kPanelsOf<kV>; p++) at[p] = (const char*)(b[p] + kAhead);
  }
  // One piece in `pieces` of a block.
  inline void Piece(int piece, int pieces) const {
    for (int p = 0; p < kPanelsOf<kV>; p++) {
      for (unsigned line = 0; line < sizeof(Block) / pieces; line += 64) {
        Prefetch(at[p] + piece * (sizeof(Block) / pieces) + line);
      }
    }
  }
  inline void Next(int64_t blocks_left) {
    for (int p = 0; p < kPanelsOf<kV>; p++) at[p] += sizeof(Block) + (blocks_left == kAhead ? skip : 0);
  }
};

// ---------------------------------------------------------------- dot products of kCount groups from kFirst on

template <class K, int kV, int kM, int kFirst, int kCount>
static inline void DotGroups(const typename K::Block* const* b, int j, const Tokens<kM>& x, int64_t k, S (*s)[kM]) {
  if constexpr (kCount > 0) {
    B w[kV];
    for (int v = 0; v < kV; v++) w[v] = K::template Group<kFirst>(*b[PanelOf(v)], j, LaneOf(v));
    for (int m = 0; m < kM; m++) {
      const auto quad = XQuad<kFirst>(x.q[m] + k);
      for (int v = 0; v < kV; v++) s[v][m] = K::kWide ? SDotWide(s[v][m], w[v], quad) : SDot(s[v][m], w[v], quad);
    }
    DotGroups<K, kV, kM, kFirst + 1, kCount - 1>(b, j, x, k, s);
  }
}

// How many groups the short sums of a target can hold, as a divisor of `groups`.
template <class K>
static inline constexpr int Chunk(int groups) {
  int chunk = groups;
  while (chunk > 1 && chunk > ShortGroups(K::kMax)) chunk /= 2;
  return chunk;
}

// fn(v, m, sum) with the exact sums of groups kFirst .. kFirst + kCount, chunk by chunk.
template <class K, int kV, int kM, int kFirst, int kCount, class Fn>
static inline void ForSums(const typename K::Block* const* b, int j, const Tokens<kM>& x, int64_t k, Fn fn) {
  constexpr int kChunk = Chunk<K>(kCount);
  S s[kV][kM];
  for (int v = 0; v < kV; v++) {
    for (int m = 0; m < kM; m++) s[v][m] = SZero();
  }
  DotGroups<K, kV, kM, kFirst, kChunk>(b, j, x, k, s);
  for (int v = 0; v < kV; v++) {
    for (int m = 0; m < kM; m++) fn(v, m, s[v][m]);
  }
  if constexpr (kCount > kChunk) ForSums<K, kV, kM, kFirst + kChunk, kCount - kChunk>(b, j, x, k, fn);
}

// ---------------------------------------------------------------- integer scales

#if defined(RIDGE_SHORT_FOLD)
constexpr bool kShortFold = true;
#else
constexpr bool kShortFold = false;
static inline I SShortLow(I pairs) { return SScaleLow(pairs); }
static inline I SShortHigh(I pairs) { return SScaleHigh(pairs); }
static inline I SFoldShort(I acc, S s, I scale) { return SFoldScaled(acc, s, scale); }
#endif

// Whether the products of `columns` quants of at most `reach` with a token's always add up to 16 bits, on a target that gains by it.
static inline constexpr bool IsShort(int reach, int columns) { return kShortFold && reach * 127 * columns <= 32767; }

template <bool kShort>
static inline I ScaleLow(I pairs) {
  return kShort ? SShortLow(pairs) : SScaleLow(pairs);
}
template <bool kShort>
static inline I ScaleHigh(I pairs) {
  return kShort ? SShortHigh(pairs) : SScaleHigh(pairs);
}
template <bool kShort>
static inline I FoldScaled(I acc, S s, I scale) {
  return kShort ? SFoldShort(acc, s, scale) : SFoldScaled(acc, s, scale);
}

// ---------------------------------------------------------------- blocks of 32 columns

template <class K, int kV, int kM, int kFirst, int kCount>
static inline void IntegerSums(const typename K::Block* const* b, const Tokens<kM>& x, int64_t k, I (*t)[kM]) {
  constexpr bool kOne = Chunk<K>(kCount) == kCount;
  if constexpr (!kOne) {
    for (int v = 0; v < kV; v++) {
      for (int m = 0; m < kM; m++) t[v][m] = ISet(0);
    }
  }
  ForSums<K, kV, kM, kFirst, kCount>(b, 0, x, k,
                                     [&](int v, int m, S s) { t[v][m] = kOne ? SFold(s) : IAdd(t[v][m], SFold(s)); });
}

// The offset of a kind in integer sums: of wide kinds some targets take it off themselves.
template <class K>
static inline constexpr int OffsetOf() {
  return K::kWide ? kWideOffset : K::kOffset;
}

template <class K, int kV, int kM>
static inline void Accumulate32(const typename K::Block* const* panels, const Tokens<kM>& x, int64_t n_blocks,
                                int64_t panel_bytes, F (*acc)[kM]) {
  const typename K::Block* b[kPanelsOf<kV>];
  for (int p = 0; p < kPanelsOf<kV>; p++) b[p] = panels[p];
  ReadAhead<typename K::Block, kV> ahead(b, panel_bytes);
  for (int64_t kb = 0; kb < n_blocks; kb++) {
    ahead.Piece(0, 1);
    I t[kV][kM];
    IntegerSums<K, kV, kM, 0, 8>(b, x, 32 * kb, t);
    F d[kV];
    for (int v = 0; v < kV; v++) d[v] = K::Scale(b[PanelOf(v)]->d + LaneOf(v));
    for (int m = 0; m < kM; m++) {
      const F xd = FSet(x.d[m][kb]);
      for (int v = 0; v < kV; v++) {
        if constexpr (OffsetOf<K>() != 0) t[v][m] = IAdd(t[v][m], ISet(-OffsetOf<K>() * x.sums[m][kb]));
        acc[v][m] = Fma(FMul(d[v], xd), FFromI(t[v][m]), acc[v][m]);
      }
    }
    if constexpr (K::kMin) {
      F low[kV];
      for (int v = 0; v < kV; v++) low[v] = FHalf(b[PanelOf(v)]->m + LaneOf(v));
      for (int m = 0; m < kM; m++) {
        const F weighted = FSet(x.d[m][n_blocks + kb]);
        for (int v = 0; v < kV; v++) acc[v][m] = Fma(low[v], weighted, acc[v][m]);
      }
    }
    for (int p = 0; p < kPanelsOf<kV>; p++) b[p]++;
    ahead.Next(n_blocks - kb - 1);
  }
}

// The sum of 16 quants of a token.
static inline int32_t SumOf16(const int8_t* q) {
  int32_t sum = 0;
  for (int i = 0; i < 16; i++) sum += q[i];
  return sum;
}

template <class K, int kV, int kM, int kHalf>
static inline void AccumulateHalf(const typename K::Block* const* b, const Tokens<kM>& x, int64_t kb, F (*acc)[kM]) {
  I t[kV][kM];
  IntegerSums<K, kV, kM, 4 * kHalf, 4>(b, x, 32 * kb, t);
  F d[kV];
  for (int v = 0; v < kV; v++) d[v] = K::Scale(b[PanelOf(v)]->d[kHalf] + LaneOf(v));
  for (int m = 0; m < kM; m++) {
    const F xd = FSet(x.d[m][kb]);
    const I offset = ISet(-K::kOffset * SumOf16(x.q[m] + 32 * kb + 16 * kHalf));
    for (int v = 0; v < kV; v++) acc[v][m] = Fma(FMul(d[v], xd), FFromI(IAdd(t[v][m], offset)), acc[v][m]);
  }
}

template <class K, int kV, int kM>
static inline void Accumulate16(const typename K::Block* const* panels, const Tokens<kM>& x, int64_t n_blocks,
                                int64_t panel_bytes, F (*acc)[kM]) {
  const typename K::Block* b[kPanelsOf<kV>];
  for (int p = 0; p < kPanelsOf<kV>; p++) b[p] = panels[p];
  ReadAhead<typename K::Block, kV> ahead(b, panel_bytes);
  for (int64_t kb = 0; kb < n_blocks; kb++) {
    ahead.Piece(0, 1);
    AccumulateHalf<K, kV, kM, 0>(b, x, kb, acc);
    AccumulateHalf<K, kV, kM, 1>(b, x, kb, acc);
    for (int p = 0; p < kPanelsOf<kV>; p++) b[p]++;
    ahead.Next(n_blocks - kb - 1);
  }
}

// ---------------------------------------------------------------- blocks of 256 columns

// Groups kFirst .. kFirst + kCount of sub-block j, times the integer scale `sc`, added to `weighted`.
template <class K, int kV, int kM, int kFirst, int kCount>
static inline void AddScaled(const typename K::Block* const* b, int j, const Tokens<kM>& x, int64_t k, const I* sc,
                             I (*weighted)[kM]) {
  ForSums<K, kV, kM, kFirst, kCount>(b, j, x, k, [&](int v, int m, S s) {
    weighted[v][m] = K::kScale == ScaleOf::kBlock256
                         ? IAdd(weighted[v][m], SFold(s))
                         : FoldScaled<IsShort(K::kMax, 4 * kCount)>(weighted[v][m], s, sc[v]);
  });
}

template <class K, int kV, int kM>
static inline void AddSubBlock(const typename K::Block* const* b, int j, const Tokens<kM>& x, int64_t k,
                               I (*weighted)[kM]) {
  I sc[kV];
  if constexpr (K::kScale == ScaleOf::kInt16) {
    I pair[kV];
    for (int v = 0; v < kV; v++) pair[v] = ILoadPairs(b[PanelOf(v)]->sc[j][LaneOf(v)]);
    constexpr bool kShort = IsShort(K::kMax, 16);
    for (int v = 0; v < kV; v++) sc[v] = ScaleLow<kShort>(pair[v]);
    AddScaled<K, kV, kM, 0, 4>(b, j, x, k, sc, weighted);
    for (int v = 0; v < kV; v++) sc[v] = ScaleHigh<kShort>(pair[v]);
    AddScaled<K, kV, kM, 4, 4>(b, j, x, k, sc, weighted);
  } else {
    if constexpr (K::kScale == ScaleOf::kInt32) {
      constexpr bool kShort = IsShort(K::kMax, 32);
      for (int v = 0; v < kV; v++) {
        const I pair = ILoadPairs(b[PanelOf(v)]->sc[j / 2][LaneOf(v)]);
        sc[v] = j % 2 == 0 ? ScaleLow<kShort>(pair) : ScaleHigh<kShort>(pair);
      }
    }
    AddScaled<K, kV, kM, 0, 8>(b, j, x, k, sc, weighted);
  }
}

// Pair i of the integers that the sums of the quants are weighted with: minima, or scales where the quants have an offset.
template <class K>
static inline I SumWeights(const typename K::Block& b, int i, int h) {
  if constexpr (K::kScale == ScaleOf::kBlock256)
    return ISet(0x00010001);
  else if constexpr (K::kMin)
    return ILoadPairs(b.mn[i][h]);
  else
    return ILoadPairs(b.sc[i][h]);
}

template <class K, int kV, int kM>
static inline void Accumulate256(const typename K::Block* const* panels, const Tokens<kM>& x, int64_t n_blocks,
                                 int64_t panel_bytes, F (*acc)[kM]) {
  constexpr int kSumPairs = K::kScale == ScaleOf::kInt16 ? 8 : 4;  // of a block: sums of 16 quants, or of 32
  const typename K::Block* b[kPanelsOf<kV>];
  for (int p = 0; p < kPanelsOf<kV>; p++) b[p] = panels[p];
  ReadAhead<typename K::Block, kV> ahead(b, panel_bytes);
  for (int64_t kb = 0; kb < n_blocks; kb++) {
    I weighted[kV][kM];
    for (int v = 0; v < kV; v++) {
      for (int m = 0; m < kM; m++) weighted[v][m] = ISet(0);
    }
    for (int j = 0; j < 8; j++) {
      ahead.Piece(j, 8);
      AddSubBlock<K, kV, kM>(b, j, x, 256 * kb + 32 * j, weighted);
    }
    if constexpr (K::kMin || OffsetOf<K>() != 0) {
      const int64_t first = kSumPairs == 8 ? 8 * kb : 8 * n_blocks + 4 * kb;  // of the token's pairs of sums
      I sums[kV][kM];
      for (int v = 0; v < kV; v++) {
        for (int m = 0; m < kM; m++) sums[v][m] = ISet(0);
      }
      for (int i = 0; i < kSumPairs; i++) {
        I weights[kV];
        for (int v = 0; v < kV; v++) weights[v] = SumWeights<K>(*b[PanelOf(v)], i, LaneOf(v));
        for (int m = 0; m < kM; m++) {
          const I pair = ISet(x.sums[m][first + i]);
          for (int v = 0; v < kV; v++) sums[v][m] = IDotPairs(sums[v][m], weights[v], pair);
        }
      }
      if constexpr (!K::kMin) {
        const I offset = ISet(-OffsetOf<K>());
        for (int v = 0; v < kV; v++) {
          for (int m = 0; m < kM; m++) weighted[v][m] = IAdd(weighted[v][m], IMul(sums[v][m], offset));
        }
      } else {
        for (int v = 0; v < kV; v++) {
          const F d = FHalf(b[PanelOf(v)]->d + LaneOf(v)), dm = FSub(FSet(0), FHalf(b[PanelOf(v)]->dm + LaneOf(v)));
          for (int m = 0; m < kM; m++) {
            const F value = Fma(dm, FFromI(sums[v][m]), FMul(d, FFromI(weighted[v][m])));
            acc[v][m] = Fma(FSet(x.d[m][kb]), value, acc[v][m]);
          }
        }
      }
    }
    if constexpr (!K::kMin) {
      for (int v = 0; v < kV; v++) {
        F d = K::Scale(b[PanelOf(v)]->d + LaneOf(v));
        if constexpr (K::kFactor != 1) d = FMul(d, FSet(K::kFactor));
        for (int m = 0; m < kM; m++) acc[v][m] = Fma(FMul(d, FSet(x.d[m][kb])), FFromI(weighted[v][m]), acc[v][m]);
      }
    }
    for (int p = 0; p < kPanelsOf<kV>; p++) b[p]++;
    ahead.Next(n_blocks - kb - 1);
  }
}

// ---------------------------------------------------------------- tiles

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

// Panels past the end repeat the last one: computed, not stored.
template <PanelKind kind, int kV, int kM>
static inline void Tile(const MatMulArgs& a, int64_t panel, int64_t t) {
  using K = Kind<kind>;
  const typename K::Block* b[kPanelsOf<kV>];
  for (int p = 0; p < kPanelsOf<kV>; p++) {
    const int64_t at = panel + p < a.panel_end ? panel + p : a.panel_end - 1;
    b[p] = (const typename K::Block*)(a.panels + at * a.panel_bytes);
  }
  F acc[kV][kM];
  for (int v = 0; v < kV; v++) {
    for (int m = 0; m < kM; m++) acc[v][m] = FSet(0);
  }
  // The lines that the results go to are far apart: asked for now, they are there at the end.
  for (int m = 0; m < kM && t + m < a.token_end; m++) {
    for (int p = 0; p < kPanelsOf<kV>; p++) PrefetchForWrite(a.out + (t + m) * a.out_stride + (panel + p) * kPanelRows);
  }
  const Tokens<kM> x = TokensAt<kM>(a, t, ActOf(kind));
  if constexpr (K::kScale == ScaleOf::kBlock32)
    Accumulate32<K, kV, kM>(b, x, a.x.k / 32, a.panel_bytes, acc);
  else if constexpr (K::kScale == ScaleOf::kBlock16)
    Accumulate16<K, kV, kM>(b, x, a.x.k / 32, a.panel_bytes, acc);
  else
    Accumulate256<K, kV, kM>(b, x, a.x.k / 256, a.panel_bytes, acc);
  for (int v = 0; v < kV; v++) {
    if (panel + PanelOf(v) >= a.panel_end) break;
    for (int m = 0; m < kM && t + m < a.token_end; m++)
      StoreLanes(a, (panel + PanelOf(v)) * kPanelRows + LaneOf(v), t + m, acc[v][m]);
  }
}

}  // namespace RIDGE_ISA
