// Panel matmul of many tokens: 256 columns of a tile's rows and their scales are unpacked once and used for up to 64 tokens, kM at a time;
// the sums of those tokens wait in the first cache meanwhile. The sums of quants with an offset begin with what takes it off.
//
//   MatMulMany<PanelKind::kQ4_K, /*kNarrow=*/false>(args);
//
// Numerics: those of matmul-inl.h. Integer sums are exact in any order, the multiply-adds of an output element come in increasing k.
#pragma once

#include "matmul-inl.h"

namespace RIDGE_ISA {

constexpr int kManyTokens = 64;  // share what is unpacked
constexpr int64_t kManyNarrow =
    9;  // tokens from which unpacking once pays for all kinds where unpacking takes ports from multiplies
constexpr int kUnpackColumns = 256;  // at a time
constexpr int kStreams = 4;          // panels that one token reads side by side where ports are narrow

template <class K>
static inline constexpr bool Blocks256() {
  return K::kScale != ScaleOf::kBlock32 && K::kScale != ScaleOf::kBlock16;
}
// Tokens of a tile where ports are narrow. A block of 32 columns ends in three float operations or more a sum, whose results stay in registers beside
// the sums of 6 tokens, not of 8.
template <class K>
static inline constexpr int NarrowTokens() {
  return Blocks256<K>() ? 8 : 6;
}
// Scales in 32 columns.
template <class K>
static inline constexpr int ScalesOf() {
  return K::kScale == ScaleOf::kInt16 || K::kScale == ScaleOf::kBlock16 ? 2 : 1;
}

// How the sums of a kind are made. Where integer scales are folded in, one instruction does it if the sums fit 16 bits, else three (kShortFold).
// Kinds with an offset begin their sums with it, so that they lie around zero; where ports are narrow it pays to let those of Q4_K begin so
// too and to add that back once in a block, and to fold half the columns at a time.
template <class K, bool kNarrow>
struct SumsOf {
  static constexpr bool kScaled = Blocks256<K>() && K::kScale != ScaleOf::kBlock256;
  static constexpr int kColumnsOfScale = 32 / ScalesOf<K>();
  static constexpr int Reach(int centre) { return K::kMax - centre > centre ? K::kMax - centre : centre; }
  static constexpr int kHalfWay = (K::kMax + 1) / 2;
  static constexpr bool kCentred =
      kNarrow && kScaled && K::kMin && !IsShort(K::kMax, kColumnsOfScale) && IsShort(Reach(kHalfWay), kColumnsOfScale);
  static constexpr int kCentre = kCentred ? kHalfWay : OffsetOf<K>();  // what a quant's byte is less
  // Whether a sum can begin with the centre's share: where it is one int32 a lane.
  static constexpr bool kStarts = kCentre != 0 && ShortGroups(255) >= 8;
  static constexpr bool kHalved = kNarrow && kScaled && ScalesOf<K>() == 1 && kStarts && !IsShort(Reach(kCentre), 32) &&
                                  IsShort(Reach(kCentre), 16);
  static constexpr int kParts = kHalved ? 2 : ScalesOf<K>();  // of 32 columns, each with a sum
  static constexpr bool kShort = kScaled && IsShort(kStarts ? Reach(kCentre) : K::kMax, 32 / kParts);
};

// A chunk of a tile's rows: 32 j + 4 g .. + 3 is w[8 j + g], scales and minima are by scale and [j].
template <class K>
struct Unpacked {
  B w[kUnpackColumns / 4][kColumns];
  I scale[16][kColumns],
      weights[8][kColumns],  // of blocks of 256: integers, and pairs that sums of quants are multiplied with
      centre[4][kColumns];   // pairs of scales times what the quants are less (kCentred)
  F d[16][kColumns], low[8][kColumns];
};

template <class K, int kGroup>
static inline void UnpackGroups(const typename K::Block* const* b, int block, int j, B (*w)[kColumns]) {
  if constexpr (kGroup < 8) {
    for (int v = 0; v < kColumns; v++) w[kGroup][v] = K::template Group<kGroup>(b[PanelOf(v)][block], j, LaneOf(v));
    UnpackGroups<K, kGroup + 1>(b, block, j, w);
  }
}

// blocks: of 32 columns, up to 8.
template <class K, bool kNarrow>
static inline void Unpack(const typename K::Block* const* b, int blocks, Unpacked<K>& u) {
  for (int j = 0; j < blocks; j++) UnpackGroups<K, 0>(b, Blocks256<K>() ? 0 : j, j, u.w + 8 * j);
  for (int v = 0; v < kColumns; v++) {
    const typename K::Block* at = b[PanelOf(v)];
    const int h = LaneOf(v);
    if constexpr (K::kScale == ScaleOf::kBlock16) {
      for (int i = 0; i < 2 * blocks; i++) u.d[i][v] = K::Scale(at[i / 2].d[i % 2] + h);
    } else if constexpr (K::kScale == ScaleOf::kBlock32) {
      for (int j = 0; j < blocks; j++) {
        u.d[j][v] = K::Scale(at[j].d + h);
        if constexpr (K::kMin) u.low[j][v] = FHalf(at[j].m + h);
      }
    } else {
      using Sums = SumsOf<K, kNarrow>;
      constexpr int kPairs = 4 * ScalesOf<K>();
      u.d[0][v] = K::Scale(at->d + h);
      if constexpr (K::kFactor != 1) u.d[0][v] = FMul(u.d[0][v], FSet(K::kFactor));
      if constexpr (K::kMin) u.low[0][v] = FSub(FSet(0), FHalf(at->dm + h));
      for (int i = 0; i < kPairs; i++) {
        if constexpr (K::kScale != ScaleOf::kBlock256) {
          const I pair = ILoadPairs(at->sc[i][h]);
          u.scale[2 * i][v] = ScaleLow<Sums::kShort>(pair);
          u.scale[2 * i + 1][v] = ScaleHigh<Sums::kShort>(pair);
          if constexpr (Sums::kCentred)
            u.centre[i][v] = IMul(pair, ISet(Sums::kCentre));  // scales of such kinds are positive
        }
        if constexpr (K::kMin || !Sums::kStarts) u.weights[i][v] = SumWeights<K>(*at, i, h);
      }
    }
  }
}

// What the sums of a token begin with, or have added: the sum of the part's quants times the centre.
template <class K, bool kNarrow>
static inline void FillStarts(const MatMulArgs& a, int64_t row, int64_t chunk, int blocks, int32_t* start) {
  constexpr int32_t kTimes = -SumsOf<K, kNarrow>::kCentre;
  const int32_t* sums = a.x.sums + row * ActSums(Blocks256<K>() ? ActKind::kQ8x256 : ActKind::kQ8x32, a.x.k);
  if constexpr (Blocks256<K>()) {
    const int16_t* of16 = (const int16_t*)sums + 16 * chunk;
    const int16_t* of32 = (const int16_t*)sums + a.x.k / 16 + 8 * chunk;
    if constexpr (SumsOf<K, kNarrow>::kParts == 2) {
      for (int i = 0; i < 16; i++) start[i] = kTimes * of16[i];
    } else {
      for (int i = 0; i < 8; i++) start[i] = kTimes * of32[i];
    }
  } else if constexpr (K::kScale == ScaleOf::kBlock32) {
    for (int j = 0; j < blocks; j++) start[j] = kTimes * sums[8 * chunk + j];
  } else {
    const int8_t* q = a.x.q + row * a.x.k + kUnpackColumns * chunk;
    for (int i = 0; i < 2 * blocks; i++) start[i] = kTimes * SumOf16(q + 16 * i);
  }
}

// The lines of the next chunk are asked for while this one is worked on.
template <class K>
struct NextChunk {
  const char* at[kPanelsOf<kColumns>];
  int64_t lines, per_step, step = 0;

  inline void Step() {
    for (int64_t i = step * per_step; i < (step + 1) * per_step && i < lines; i++) {
      for (int p = 0; p < kPanelsOf<kColumns>; p++) Prefetch(at[p] + 64 * i);
    }
    step++;
  }
};

template <class K, int kM, int kFirst, int kCount>
static inline void DotUnpacked(const B (*w)[kColumns], const Tokens<kM>& x, int64_t k, S (*s)[kM]) {
  if constexpr (kCount > 0) {
    B row[kColumns];
    for (int v = 0; v < kColumns; v++) row[v] = w[kFirst][v];
    for (int m = 0; m < kM; m++) {
      const auto quad = XQuad<kFirst>(x.q[m] + k);
      for (int v = 0; v < kColumns; v++)
        s[v][m] = K::kWide ? SDotWide(s[v][m], row[v], quad) : SDot(s[v][m], row[v], quad);
    }
    DotUnpacked<K, kM, kFirst + 1, kCount - 1>(w, x, k, s);
  }
}

// fn(v, m, sum) with the sums of groups kFirst .. kFirst + kCount, in as many pieces as they need; `part` is where they begin in `start`.
template <class K, bool kNarrow, int kM, int kFirst, int kCount, class Fn>
static inline void ForUnpacked(const B (*w)[kColumns], const Tokens<kM>& x, int64_t k, const int32_t (*start)[16],
                               int part, Fn fn) {
  constexpr int kAtOnce = Chunk<K>(kCount);
  S s[kColumns][kM];
  for (int m = 0; m < kM; m++) {
    for (int v = 0; v < kColumns; v++) {
      if constexpr (SumsOf<K, kNarrow>::kStarts)
        s[v][m] = ISet(start[m][part]);
      else
        s[v][m] = SZero();
    }
  }
  DotUnpacked<K, kM, kFirst, kAtOnce>(w, x, k, s);
  for (int v = 0; v < kColumns; v++) {
    for (int m = 0; m < kM; m++) fn(v, m, s[v][m]);
  }
  if constexpr (kCount > kAtOnce)
    ForUnpacked<K, kNarrow, kM, kFirst + kAtOnce, kCount - kAtOnce>(w, x, k, start, part, fn);
}

// Part kPart of block j of 32 columns, which has a half-precision scale.
template <class K, bool kNarrow, int kM, int kPart>
static inline void AddPart(const Unpacked<K>& u, const Tokens<kM>& x, int64_t block, int j, const int32_t (*start)[16],
                           F (*acc)[kM]) {
  constexpr int kGroups = 8 / ScalesOf<K>();
  const int part = ScalesOf<K>() * j + kPart;
  I t[kColumns][kM];
  constexpr bool kOne = Chunk<K>(kGroups) == kGroups;
  if constexpr (!kOne) {
    for (int v = 0; v < kColumns; v++) {
      for (int m = 0; m < kM; m++) t[v][m] = ISet(0);
    }
  }
  ForUnpacked<K, kNarrow, kM, kGroups * kPart, kGroups>(
      u.w + 8 * j, x, 32 * block, start, part,
      [&](int v, int m, S s) { t[v][m] = kOne ? SFold(s) : IAdd(t[v][m], SFold(s)); });
  for (int m = 0; m < kM; m++) {
    const F xd = FSet(x.d[m][block]);
    for (int v = 0; v < kColumns; v++) {
      if constexpr (OffsetOf<K>() != 0 && !SumsOf<K, kNarrow>::kStarts) t[v][m] = IAdd(t[v][m], ISet(start[m][part]));
      acc[v][m] = Fma(FMul(u.d[part][v], xd), FFromI(t[v][m]), acc[v][m]);
    }
  }
}

template <class K, bool kNarrow, int kM>
static inline void Chunk32(const Unpacked<K>& u, const Tokens<kM>& x, int64_t chunk, int blocks, int64_t n_blocks,
                           const int32_t (*start)[16], NextChunk<K>& next, F (*acc)[kM]) {
  for (int j = 0; j < blocks; j++) {
    next.Step();
    const int64_t block = 8 * chunk + j;
    AddPart<K, kNarrow, kM, 0>(u, x, block, j, start, acc);
    if constexpr (ScalesOf<K>() == 2) AddPart<K, kNarrow, kM, 1>(u, x, block, j, start, acc);
    if constexpr (K::kMin) {
      for (int m = 0; m < kM; m++) {
        const F weighted = FSet(x.d[m][n_blocks + block]);
        for (int v = 0; v < kColumns; v++) acc[v][m] = Fma(u.low[j][v], weighted, acc[v][m]);
      }
    }
  }
}

// Part kPart of sub-block j, times its integer scale.
template <class K, bool kNarrow, int kM, int kPart>
static inline void AddScaledPart(const Unpacked<K>& u, const Tokens<kM>& x, int64_t k, int j,
                                 const int32_t (*start)[16], I (*weighted)[kM]) {
  using Sums = SumsOf<K, kNarrow>;
  constexpr int kGroups = 8 / Sums::kParts;
  const int part = Sums::kParts * j + kPart;
  I scale[kColumns];
  for (int v = 0; v < kColumns; v++) scale[v] = u.scale[Sums::kHalved ? j : part][v];
  ForUnpacked<K, kNarrow, kM, kGroups * kPart, kGroups>(u.w + 8 * j, x, k, start, part, [&](int v, int m, S s) {
    weighted[v][m] = K::kScale == ScaleOf::kBlock256 ? IAdd(weighted[v][m], SFold(s))
                                                     : FoldScaled<Sums::kShort>(weighted[v][m], s, scale[v]);
  });
}

template <class K, bool kNarrow, int kM>
static inline void Chunk256(const Unpacked<K>& u, const Tokens<kM>& x, int64_t chunk, int64_t n_blocks,
                            const int32_t (*start)[16], NextChunk<K>& next, F (*acc)[kM]) {
  using Sums = SumsOf<K, kNarrow>;
  I weighted[kColumns][kM];
  for (int v = 0; v < kColumns; v++) {
    for (int m = 0; m < kM; m++) weighted[v][m] = ISet(0);
  }
  for (int j = 0; j < 8; j++) {
    next.Step();
    AddScaledPart<K, kNarrow, kM, 0>(u, x, kUnpackColumns * chunk + 32 * j, j, start, weighted);
    if constexpr (Sums::kParts == 2)
      AddScaledPart<K, kNarrow, kM, 1>(u, x, kUnpackColumns * chunk + 32 * j, j, start, weighted);
  }
  constexpr bool kSums = K::kMin || (OffsetOf<K>() != 0 && !Sums::kStarts);
  I sums[kColumns][kM];
  if constexpr (kSums) {
    constexpr int kPairs = 4 * ScalesOf<K>();
    const int64_t first = ScalesOf<K>() == 2 ? 8 * chunk : 8 * n_blocks + 4 * chunk;  // of the token's pairs of sums
    for (int v = 0; v < kColumns; v++) {
      for (int m = 0; m < kM; m++) sums[v][m] = ISet(0);
    }
    for (int i = 0; i < kPairs; i++) {
      for (int m = 0; m < kM; m++) {
        const I pair = ISet(x.sums[m][first + i]);
        for (int v = 0; v < kColumns; v++) {
          sums[v][m] = IDotPairs(sums[v][m], u.weights[i][v], pair);
          if constexpr (Sums::kCentred) weighted[v][m] = IDotPairs(weighted[v][m], u.centre[i][v], pair);
        }
      }
    }
  }
  for (int m = 0; m < kM; m++) {
    const F xd = FSet(x.d[m][chunk]);
    for (int v = 0; v < kColumns; v++) {
      if constexpr (K::kMin) {
        const F value = Fma(u.low[0][v], FFromI(sums[v][m]), FMul(u.d[0][v], FFromI(weighted[v][m])));
        acc[v][m] = Fma(xd, value, acc[v][m]);
      } else {
        I sum = weighted[v][m];
        if constexpr (kSums) sum = IAdd(sum, IMul(sums[v][m], ISet(-OffsetOf<K>())));
        acc[v][m] = Fma(FMul(u.d[0][v], xd), FFromI(sum), acc[v][m]);
      }
    }
  }
}

// The sums of tokens t .. t + kM over a chunk, added to acc.
template <class K, bool kNarrow, int kM>
static inline void AddChunk(const MatMulArgs& a, const Unpacked<K>& u, int64_t t, ActKind act, int64_t chunk,
                            int blocks, int64_t n_blocks, const int32_t (*start)[16], NextChunk<K>& next,
                            F (*acc)[kM]) {
  const Tokens<kM> x = TokensAt<kM>(a, t, act);
  if constexpr (Blocks256<K>())
    Chunk256<K, kNarrow, kM>(u, x, chunk, n_blocks, start, next, acc);
  else
    Chunk32<K, kNarrow, kM>(u, x, chunk, blocks, n_blocks, start, next, acc);
}

template <int kM>
static inline void StoreTile(const MatMulArgs& a, int64_t panel, int64_t t, int64_t end, const F (*acc)[kM]) {
  for (int v = 0; v < kColumns; v++) {
    if (panel + PanelOf(v) >= a.panel_end) break;
    for (int m = 0; m < kM && t + m < end; m++)
      StoreLanes(a, (panel + PanelOf(v)) * kPanelRows + LaneOf(v), t + m, acc[v][m]);
  }
}

// kNarrow: for MatMulArgs::narrow_ports. Tiles of kM tokens; what is left over takes a smaller one where it fits.
template <PanelKind kind, bool kNarrow>
static void MatMulMany(const MatMulArgs& a) {
  using K = Kind<kind>;
  constexpr int kM = kNarrow ? NarrowTokens<K>() : 4, kRest = 4;
  constexpr int kPanels = kPanelsOf<kColumns>;
  constexpr int kBlocks = Blocks256<K>() ? 1 : 8;  // of the file's, in a chunk
  const int64_t n_blocks = a.x.k / (kUnpackColumns / kBlocks), chunks = (n_blocks + kBlocks - 1) / kBlocks;
  Unpacked<K> u;
  int32_t start[kManyTokens][16];
  F acc[kManyTokens / kM][kColumns][kM], rest[kColumns][kRest];
  for (int64_t begin = a.token_begin; begin < a.token_end; begin += kManyTokens) {
    const int64_t end = begin + kManyTokens < a.token_end ? begin + kManyTokens : a.token_end;
    const bool small = kM > kRest && (end - begin + kM - 1) % kM < kRest;  // the last tile
    const int64_t tiles = (end - begin + kM - 1) / kM, full = small ? tiles - 1 : tiles;
    for (int64_t panel = a.panel_begin; panel < a.panel_end; panel += kPanels) {
      const typename K::Block* b[kPanels];
      for (int p = 0; p < kPanels; p++) {
        const int64_t at = panel + p < a.panel_end ? panel + p : a.panel_end - 1;
        b[p] = (const typename K::Block*)(a.panels + at * a.panel_bytes);
      }
      for (int v = 0; v < kColumns; v++) {
        for (int64_t i = 0; i < full; i++) {
          for (int m = 0; m < kM; m++) acc[i][v][m] = FSet(0);
        }
        for (int m = 0; m < kRest; m++) rest[v][m] = FSet(0);
      }
      for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const int64_t left = n_blocks - chunk * kBlocks;
        const int blocks = Blocks256<K>() || left > 8 ? 8 : (int)left;
        Unpack<K, kNarrow>(b, blocks, u);
        const bool last = chunk + 1 == chunks;
        NextChunk<K> next;
        for (int p = 0; p < kPanels; p++) {
          b[p] += Blocks256<K>() ? 1 : blocks;
          next.at[p] = (const char*)b[p] + (last ? (kPanels - 1) * a.panel_bytes : 0);
        }
        next.lines = (int64_t)(kBlocks * sizeof(typename K::Block) + 63) / 64;
        next.per_step = (next.lines + 8 * tiles - 1) / (8 * tiles);
        using Sums = SumsOf<K, kNarrow>;
        if constexpr (Sums::kCentre != 0 && (Sums::kStarts || !Blocks256<K>())) {
          for (int64_t i = 0; i < kM * full + (small ? kRest : 0); i++) {
            const int64_t t = begin + i < end ? begin + i : end - 1;
            FillStarts<K, kNarrow>(a, RowOf(a, t), chunk, blocks, start[i]);
          }
        }
        for (int64_t i = 0; i < tiles; i++) {
          const int64_t t = begin + kM * i;
          if (last) {
            for (int m = 0; m < kM && t + m < end; m++) {
              for (int p = 0; p < kPanels; p++)
                PrefetchForWrite(a.out + (t + m) * a.out_stride + (panel + p) * kPanelRows);
            }
          }
          if (i < full)
            AddChunk<K, kNarrow, kM>(a, u, t, ActOf(kind), chunk, blocks, n_blocks, start + kM * i, next, acc[i]);
          else if constexpr (kM > kRest)
            AddChunk<K, kNarrow, kRest>(a, u, t, ActOf(kind), chunk, blocks, n_blocks, start + kM * i, next, rest);
        }
      }
      for (int64_t i = 0; i < full; i++) StoreTile<kM>(a, panel, begin + kM * i, end, acc[i]);
      if (small) StoreTile<kRest>(a, panel, begin + kM * full, end, rest);
    }
  }
}

// One token: one panel after the other, a single stream from memory; with narrow ports four panels side by side, since there a core has only as
// many reads under way as its prefetchers follow streams. Up to 32 tokens: the largest tile, which reads a panel once for all.
// More: the panels come out of the cache, and the small tile needs fewer registers. What costs much to unpack is unpacked once.
template <PanelKind kind>
static void MatMul(const MatMulArgs& a) {
  using K = Kind<kind>;
  const int64_t tokens = a.token_end - a.token_begin;
  if (tokens == 1) {
    int64_t p = a.panel_begin;
    if constexpr (kMaxTokens >= 8) {
      if (a.narrow_ports) {
        for (; p + kStreams <= a.panel_end; p += kStreams) Tile<kind, kStreams * kOnePanel, 1>(a, p, a.token_begin);
      }
    }
    for (; p < a.panel_end; p++) Tile<kind, kOnePanel, 1>(a, p, a.token_begin);
    return;
  }
  if constexpr (kMaxTokens >= 8) {
    if (a.narrow_ports && tokens >= kManyNarrow) return MatMulMany<kind, true>(a);
  }
  if constexpr (K::kMany != INT64_MAX) {
    if (tokens >= K::kMany) return MatMulMany<kind, false>(a);
  }
  [[maybe_unused]] const bool large = tokens <= 32;
  for (int64_t p = a.panel_begin; p < a.panel_end; p += kPanelsOf<kColumns>) {
    for (int64_t t = a.token_begin; t < a.token_end;) {
      if constexpr (TileTokens(kind, kMaxTokens) >= 8) {
        if (large && a.token_end - t > 4) {
          Tile<kind, kColumns, 8>(a, p, t);
          t += 8;
          continue;
        }
      }
      Tile<kind, kColumns, 4>(a, p, t);
      t += 4;
    }
  }
}

}  // namespace RIDGE_ISA
