// KV cache formats, once for every target: how a row is stored, and the two products that attention takes with 16 tokens at a time.
//
// A tile is 16 consecutive tokens of one KV head (kernels.h draws it). In tiles of K tokens lie along the lanes, in tiles of V channels:
// no sum ever crosses lanes.
//
// Numerics: a score takes one fused multiply-add per channel (float types) or per block of 32 channels, whose products are summed exactly
// (8-bit queries), in increasing channel order. A value takes one fused multiply-add per token, in increasing order. How many rows, tiles
// or channels are computed at once changes nothing.
#pragma once

#include "dot-inl.h"
#include "elementwise-inl.h"

#define RIDGE_UNROLL _Pragma("GCC unroll 16")

namespace RIDGE_ISA {

constexpr int kHalves = 16 / kLanes;                               // vectors that 16 tokens take
constexpr int kTileRows = kLanes >= 16 ? 8 : kLanes >= 8 ? 6 : 4;  // query rows whose accumulators fit the registers
constexpr int64_t kScoreStride =
    kKvSplit + 16;  // floats between the scores of two rows: not a power of two, for the L1's sake
constexpr int64_t kSplitTiles = kKvSplit / kKvTile;  // tiles of one split
constexpr int64_t kAhead = 4;                        // tiles between what is computed and what is prefetched
constexpr int64_t kValueTiles = 4;                   // tiles of V whose channels are walked in turn: they stay in L1
constexpr int64_t kWeightStride = 16 * kValueTiles + 16;
constexpr int64_t kWideTiles = 2;  // tiles that are widened to f32 at once, for many rows: they stay in L1

// ---------------------------------------------------------------- types

// What is not inlined of a type would be a weak symbol, which the linker could take for all targets: tests/python/kernel_objects_test.py.

struct KvF16 {
  using T = uint16_t;
  static constexpr int kBlockBytes = 0;
  [[gnu::always_inline]] static inline F Load(const T* p) { return FHalf(p); }
  static inline T Store(float x) { return FloatToHalf(x); }
};
struct KvBF16 {
  using T = uint16_t;
  static constexpr int kBlockBytes = 0;
  [[gnu::always_inline]] static inline F Load(const T* p) { return FBf16(p); }
  static inline T Store(float x) { return FloatToBf16(x); }
};
struct KvF32 {
  using T = float;
  static constexpr int kBlockBytes = 0;
  [[gnu::always_inline]] static inline F Load(const T* p) { return FLoad(p); }
  static inline T Store(float x) { return x; }
};
// Tiles of any type, widened to f32 in scratch.
struct KvWide : KvF32 {};

// What is read ahead is stored in so many bytes a value. Two and more stream too much for L1, where they would push out what is being
// computed; what is widened is read once for many rows.
template <class T>
constexpr int64_t kStoredBytes = sizeof(typename T::T);
template <>
constexpr int64_t kStoredBytes<KvWide> = 2;
template <class T>
static inline void PrefetchStored(const uint8_t* p) {
  kStoredBytes<T> > 1 ? PrefetchL2(p) : Prefetch(p);
}
template <>
inline void PrefetchStored<KvWide>(const uint8_t* p) {
  Prefetch(p);
}

// kBlockBytes: of 16 tokens times 32 channels of K, without scales; 0 for types without blocks.
struct KvQ8_0 {
  static constexpr int kBlockBytes = 512;
};
struct KvQ4_0 {
  static constexpr int kBlockBytes = 256;
};

// ---------------------------------------------------------------- storing one token

template <class T>
static void StoreK(const float* x, int64_t head_dim, uint8_t* tile, int64_t slot) {
  typename T::T* to = (typename T::T*)tile + slot;
  for (int64_t c = 0; c < head_dim; c++) to[c * kKvTile] = T::Store(x[c]);
}
template <class T>
static void StoreV(const float* x, int64_t head_dim, uint8_t* tile, int64_t slot) {
  typename T::T* to = (typename T::T*)tile + slot * head_dim;
  for (int64_t c = 0; c < head_dim; c++) to[c] = T::Store(x[c]);
}
// Whole vectors where the target converts them: head sizes are multiples of 16.
static inline void HalfRow(const float* x, int64_t n, uint16_t* to) {
  for (int64_t c = 0; c < n; c += kLanes) StoreHalf(to + c, FLoad(x + c));
}
template <>
void StoreV<KvF16>(const float* x, int64_t head_dim, uint8_t* tile, int64_t slot) {
  HalfRow(x, head_dim, (uint16_t*)tile + slot * head_dim);
}
template <>
void StoreK<KvF16>(const float* x, int64_t head_dim, uint8_t* tile, int64_t slot) {
  uint16_t* to = (uint16_t*)tile + slot;
  for (int64_t c = 0; c < head_dim; c += 16) {
    uint16_t row[16];
    HalfRow(x + c, 16, row);
    for (int i = 0; i < 16; i++) to[(c + i) * kKvTile] = row[i];
  }
}

static inline uint32_t LargestBits(const float* x) {
  I largest = ISet(0);
  for (int i = 0; i < 32; i += kLanes) largest = IMax(largest, IAbsBits(FLoad(x + i)));
  return (uint32_t)IReduceMax(largest);
}
static inline void ScaledTo8(const float* x, float factor, int8_t* q) {
  for (int i = 0; i < 32; i += kLanes) IStoreS8(q + i, IFromF(FMul(FLoad(x + i), FSet(factor))));
}

// 32 channels to int8 and a half-precision scale d = max|x| / 127. The quants are rounded against the scale as it is stored.
// An infinity or NaN makes the scale NaN, and so does a block too large for it.
static inline uint16_t QuantizeBlock8(const float* x, int8_t* q) {
  const uint32_t bits = LargestBits(x);
  const uint16_t d = bits >= 0x7f800000 ? 0x7e00 : FloatToHalf(FloatOf(bits) / 127.0f);
  if (d == 0 || d >= 0x7c00) {
    memset(q, 0, 32);
    return d == 0 ? 0 : 0x7e00;
  }
  ScaledTo8(x, 1.0f / HalfToFloat(d), q);
  return d;
}

// To 4 bits with 8 added: the value largest in magnitude becomes -8, so d has the other sign.
static inline uint16_t QuantizeBlock4(const float* x, int8_t* q) {
  const uint32_t bits = LargestBits(x);
  float top = 0;
  for (int i = 31; i >= 0; i--) {
    if ((BitsOf(x[i]) & 0x7fffffff) == bits) top = x[i];
  }
  const uint16_t d = bits >= 0x7f800000 ? 0x7e00 : FloatToHalf(top / -8.0f);
  if ((d & 0x7fff) == 0 || (d & 0x7fff) >= 0x7c00) {
    memset(q, 8, 32);
    return (d & 0x7fff) == 0 ? 0 : 0x7e00;
  }
  ScaledTo8(x, 1.0f / HalfToFloat(d), q);
  for (int i = 0; i < 32; i++) q[i] = (int8_t)((q[i] < -8 ? -8 : q[i] > 7 ? 7 : q[i]) + 8);
  return d;
}

template <>
void StoreK<KvQ8_0>(const float* x, int64_t head_dim, uint8_t* tile, int64_t slot) {
  uint16_t* scales = (uint16_t*)(tile + kKvTile * head_dim);
  for (int64_t b = 0; b < head_dim / 32; b++) {
    int8_t q[32];
    scales[b * kKvTile + slot] = QuantizeBlock8(x + 32 * b, q);
    for (int i = 0; i < 8; i++) {
      uint32_t quad;
      memcpy(&quad, q + 4 * i, 4);
      quad ^= 0x80808080;  // DotWide's 128 added
      memcpy(tile + ((b * 8 + i) * kKvTile + slot) * 4, &quad, 4);
    }
  }
}
template <>
void StoreV<KvQ8_0>(const float* x, int64_t head_dim, uint8_t* tile, int64_t slot) {
  uint16_t* scales = (uint16_t*)(tile + kKvTile * head_dim);
  for (int64_t b = 0; b < head_dim / 32; b++)
    scales[b * kKvTile + slot] = QuantizeBlock8(x + 32 * b, (int8_t*)tile + slot * head_dim + 32 * b);
}
template <>
void StoreK<KvQ4_0>(const float* x, int64_t head_dim, uint8_t* tile, int64_t slot) {
  uint16_t* scales = (uint16_t*)(tile + kKvTile * head_dim / 2);
  for (int64_t b = 0; b < head_dim / 32; b++) {
    int8_t q[32];
    scales[b * kKvTile + slot] = QuantizeBlock4(x + 32 * b, q);
    for (int i = 0; i < 16; i++)
      tile[((b * 4 + i / 4) * kKvTile + slot) * 4 + i % 4] = (uint8_t)(q[i] | q[16 + i] << 4);
  }
}
template <>
void StoreV<KvQ4_0>(const float* x, int64_t head_dim, uint8_t* tile, int64_t slot) {
  uint16_t* scales = (uint16_t*)(tile + kKvTile * head_dim / 2);
  uint8_t* to = tile + slot * head_dim / 2;
  for (int64_t b = 0; b < head_dim / 32; b++) {
    int8_t q[32];
    scales[b * kKvTile + slot] = QuantizeBlock4(x + 32 * b, q);
    for (int i = 0; i < 16; i++) to[16 * b + i] = (uint8_t)(q[i] | q[16 + i] << 4);
  }
}

// ---------------------------------------------------------------- scores

// Queries of kM rows side by side, so that one pointer walks them: [head_dim][kM] float, or [head_dim / 4][kM] quads of int8 with
// [head_dim / 32][kM] scales and sums behind.
struct QueryBlocks {
  const int32_t* quads;
  const float* d;
  const int32_t* sums;
};
static inline QueryBlocks BlocksAt(const float* q, int64_t head_dim, int64_t rows) {
  const int32_t* quads = (const int32_t*)q;
  const float* d = q + head_dim / 4 * rows;
  return {quads, d, (const int32_t*)(d + head_dim / 32 * rows)};
}

static void PrepareFloat(const float* const* rows, int64_t n, int64_t head_dim, float* out) {
  for (int64_t m = 0; m < n; m++) {
    for (int64_t c = 0; c < head_dim; c++) out[c * n + m] = rows[m][c];
  }
}
static void PrepareQ8(const float* const* rows, int64_t n, int64_t head_dim, float* out) {
  int32_t* quads = (int32_t*)out;
  float* d = out + head_dim / 4 * n;
  int32_t* sums = (int32_t*)(d + head_dim / 32 * n);
  for (int64_t m = 0; m < n; m++) {
    for (int64_t b = 0; b < head_dim / 32; b++) {
      int8_t q[32];
      d[b * n + m] = QuantizeBlock<32, 32>(rows[m] + 32 * b, q, [&](int32_t sum, int) { sums[b * n + m] = sum; });
      for (int64_t i = 0; i < 8; i++) memcpy(quads + (8 * b + i) * n + m, q + 4 * i, 4);
    }
  }
}

// scores[m][16 g + i] = q[m] . K of token i of tile g, unscaled; `ahead` are the tiles to prefetch meanwhile.
template <class K, int kM, int kG>
static inline void FloatScores(const uint8_t* const* tiles, const uint8_t* const* ahead, const float* q,
                               int64_t head_dim, float* scores) {
  using T = typename K::T;
  F acc[kM][kG * kHalves];
  RIDGE_UNROLL for (int m = 0; m < kM; m++) { RIDGE_UNROLL for (int g = 0; g < kG * kHalves; g++) acc[m][g] = FSet(0); }
  for (int64_t c = 0; c < head_dim; c++) {
    F k[kG * kHalves];
    RIDGE_UNROLL for (int g = 0; g < kG; g++) {
      RIDGE_UNROLL for (int h = 0; h < kHalves; h++) k[g * kHalves + h] =
          K::Load((const T*)tiles[g] + c * kKvTile + h * kLanes);
      PrefetchStored<K>(ahead[g] + c * kKvTile * kStoredBytes<K>);
    }
    RIDGE_UNROLL for (int m = 0; m < kM; m++) {
      const F x = FSet(q[c * kM + m]);
      RIDGE_UNROLL for (int g = 0; g < kG * kHalves; g++) acc[m][g] = Fma(k[g], x, acc[m][g]);
    }
  }
  RIDGE_UNROLL for (int m = 0; m < kM; m++) {
    RIDGE_UNROLL for (int g = 0; g < kG * kHalves; g++) FStore(scores + m * kScoreStride + g * kLanes, acc[m][g]);
  }
}

// Exact dot products of one block of 32 channels.
template <int kM, int kG>
static inline void DotKeys(KvQ8_0, const uint8_t* const* tiles, int64_t b, const QueryBlocks& x, I (*s)[kG * kHalves]) {
  RIDGE_UNROLL for (int m = 0; m < kM; m++) {
    const I start = ISet(-kWideOffset * x.sums[b * kM + m]);
    RIDGE_UNROLL for (int g = 0; g < kG * kHalves; g++) s[m][g] = start;
  }
  for (int i = 0; i < 8; i++) {
    B k[kG * kHalves];
    RIDGE_UNROLL for (int g = 0; g < kG * kHalves; g++) k[g] =
        BLoad(tiles[g / kHalves] + (b * 8 + i) * 64 + 4 * kLanes * (g % kHalves));
    RIDGE_UNROLL for (int m = 0; m < kM; m++) {
      const int32_t quad = x.quads[(b * 8 + i) * kM + m];
      RIDGE_UNROLL for (int g = 0; g < kG * kHalves; g++) s[m][g] = DotWide(s[m][g], k[g], quad);
    }
  }
}
template <int kM, int kG>
static inline void DotKeys(KvQ4_0, const uint8_t* const* tiles, int64_t b, const QueryBlocks& x, I (*s)[kG * kHalves]) {
  RIDGE_UNROLL for (int m = 0; m < kM; m++) {
    const I start = ISet(-8 * x.sums[b * kM + m]);
    RIDGE_UNROLL for (int g = 0; g < kG * kHalves; g++) s[m][g] = start;
  }
  for (int i = 0; i < 4; i++) {
    B low[kG * kHalves], high[kG * kHalves];
    RIDGE_UNROLL for (int g = 0; g < kG * kHalves; g++) {
      const B v = BLoad(tiles[g / kHalves] + (b * 4 + i) * 64 + 4 * kLanes * (g % kHalves));
      low[g] = BLow4(v), high[g] = BHigh4(v);
    }
    RIDGE_UNROLL for (int m = 0; m < kM; m++) {
      const int32_t first = x.quads[(b * 8 + i) * kM + m], second = x.quads[(b * 8 + 4 + i) * kM + m];
      RIDGE_UNROLL for (int g = 0; g < kG * kHalves; g++) s[m][g] = Dot(Dot(s[m][g], low[g], first), high[g], second);
    }
  }
}

template <class K, int kM, int kG>
static inline void BlockScores(const uint8_t* const* tiles, const uint8_t* const* ahead, const float* q,
                               int64_t head_dim, float* scores) {
  constexpr int kBlockBytes = K::kBlockBytes;
  const QueryBlocks x = BlocksAt(q, head_dim, kM);
  const int64_t blocks = head_dim / 32;
  F acc[kM][kG * kHalves];
  RIDGE_UNROLL for (int m = 0; m < kM; m++) { RIDGE_UNROLL for (int g = 0; g < kG * kHalves; g++) acc[m][g] = FSet(0); }
  for (int64_t b = 0; b < blocks; b++) {
    RIDGE_UNROLL for (int g = 0; g < kG; g++) {
      for (int line = 0; line < kBlockBytes; line += 64) Prefetch(ahead[g] + b * kBlockBytes + line);
    }
    I s[kM][kG * kHalves];
    DotKeys<kM, kG>(K{}, tiles, b, x, s);
    F d[kG * kHalves];
    RIDGE_UNROLL for (int g = 0; g < kG * kHalves; g++) d[g] =
        FHalf((const uint16_t*)(tiles[g / kHalves] + blocks * kBlockBytes) + b * kKvTile + kLanes * (g % kHalves));
    RIDGE_UNROLL for (int m = 0; m < kM; m++) {
      const F scale = FSet(x.d[b * kM + m]);
      RIDGE_UNROLL for (int g = 0; g < kG * kHalves; g++) acc[m][g] =
          Fma(FMul(d[g], scale), FFromI(s[m][g]), acc[m][g]);
    }
  }
  RIDGE_UNROLL for (int m = 0; m < kM; m++) {
    RIDGE_UNROLL for (int g = 0; g < kG * kHalves; g++) FStore(scores + m * kScoreStride + g * kLanes, acc[m][g]);
  }
}

template <class K, int kM, int kG>
static inline void ScoreTiles(const uint8_t* const* tiles, const uint8_t* const* ahead, const float* q,
                              int64_t head_dim, float* scores) {
  if constexpr (K::kBlockBytes > 0)
    BlockScores<K, kM, kG>(tiles, ahead, q, head_dim, scores);
  else
    FloatScores<K, kM, kG>(tiles, ahead, q, head_dim, scores);
}

// Tiles at once: enough independent chains to hide the latency of a multiply-add, few enough for the registers.
constexpr int TilesAtOnce(int rows) {
  return kLanes >= 16 ? (rows == 1 ? 8 : rows <= 4 ? 4 : 2) : rows == 1 ? 4 : rows <= 3 ? 2 : 1;
}

// Scores of n_tiles tiles; list[n_tiles ...] goes on with what will be needed next, kAhead tiles at least.
template <class K, int kM>
static void Scores(const uint8_t* const* list, int64_t n_tiles, const float* q, int64_t head_dim, float* scores) {
  constexpr int kG = TilesAtOnce(kM);
  int64_t t = 0;
  for (; t + kG <= n_tiles; t += kG)
    ScoreTiles<K, kM, kG>(list + t, list + t + kAhead, q, head_dim, scores + t * kKvTile);
  for (; t < n_tiles; t++) ScoreTiles<K, kM, 1>(list + t, list + t + kAhead, q, head_dim, scores + t * kKvTile);
}

// ---------------------------------------------------------------- values

// out[m][c] += sum over tokens [begin, end) of p[m][token] * V[token][c]; tokens count from list[0]'s first.
struct ValueArgs {
  const uint8_t* const* list;    // tiles of V (of 4 bits: unpacked), going on beyond what is used by kAhead
  const uint8_t* const* scales;  // block types: [tile] -> [head_dim / 32][16] half
  int64_t begin, end;
  int64_t head_dim;
  const float* p;  // [kM], kScoreStride apart
  float* out;      // [kM][head_dim]
  float* scratch;  // ValueScratchFloats(head_dim)
};
constexpr int64_t ValueScratchFloats(int64_t head_dim) { return (head_dim / 32 + 1) * kTileRows * kWeightStride; }

// kC vectors of channels from c on, over tokens [begin, end) of at most kValueTiles tiles. p[b][m * p_stride + i]: the weight of token
// p_begin + i for the b-th kPer of these vectors.
template <class V, int kM, int kC, int kPer>
static inline void ValueColumns(const ValueArgs& a, int64_t begin, int64_t end, int64_t c, const float* const* p,
                                int64_t p_stride, int64_t p_begin) {
  using T = typename V::T;
  F acc[kM][kC];
  RIDGE_UNROLL for (int m = 0; m < kM; m++) {
    RIDGE_UNROLL for (int j = 0; j < kC; j++) acc[m][j] = FLoad(a.out + m * a.head_dim + c + j * kLanes);
  }
  for (int64_t t = begin; t < end;) {
    const int64_t tile = t / kKvTile, stop = (tile + 1) * kKvTile < end ? (tile + 1) * kKvTile : end;
    const int64_t offset = (t % kKvTile) * a.head_dim + c;
    const uint8_t *row = a.list[tile] + offset * (int64_t)sizeof(T),
                  *ahead = a.list[tile + kAhead] + offset * kStoredBytes<V>;
    for (; t < stop; t++, row += a.head_dim * (int64_t)sizeof(T), ahead += a.head_dim * kStoredBytes<V>) {
      F v[kC];
      RIDGE_UNROLL for (int j = 0; j < kC; j++) v[j] = V::Load((const T*)row + j * kLanes);
      for (int line = 0; line < kC * kLanes * (int)kStoredBytes<V>; line += 64) {
        PrefetchStored<V>(ahead + line);
      }
      RIDGE_UNROLL for (int b = 0; b < kC / kPer; b++) {
        RIDGE_UNROLL for (int m = 0; m < kM; m++) {
          const F w = FSet(p[b][m * p_stride + t - p_begin]);
          RIDGE_UNROLL for (int j = b * kPer; j < (b + 1) * kPer; j++) acc[m][j] = Fma(w, v[j], acc[m][j]);
        }
      }
    }
  }
  RIDGE_UNROLL for (int m = 0; m < kM; m++) {
    RIDGE_UNROLL for (int j = 0; j < kC; j++) FStore(a.out + m * a.head_dim + c + j * kLanes, acc[m][j]);
  }
}

// Channel vectors at once.
constexpr int ColumnsAtOnce(int rows) {
  return kLanes >= 16 ? (rows <= 2 ? 8 : rows <= 6 ? 4 : 2) : rows == 1 ? 8 : rows <= 3 ? 4 : 2;
}

template <class V, int kM>
static void Values(const ValueArgs& a) {
  constexpr int kC = ColumnsAtOnce(kM);
  for (int64_t t = a.begin; t < a.end;) {
    int64_t stop = (t / kKvTile + kValueTiles) * kKvTile;
    stop = stop < a.end ? stop : a.end;
    int64_t c = 0;
    for (; c + kC * kLanes <= a.head_dim; c += kC * kLanes)
      ValueColumns<V, kM, kC, kC>(a, t, stop, c, &a.p, kScoreStride, 0);
    for (; c < a.head_dim; c += kLanes) ValueColumns<V, kM, 1, 1>(a, t, stop, c, &a.p, kScoreStride, 0);
    t = stop;
  }
}

struct Int8 {
  using T = int8_t;
  [[gnu::always_inline]] static inline F Load(const T* p) { return FFromI(ILoadS8(p)); }
};

// Block types: the weight of a token is p * d, computed once per block for kValueTiles tiles.
template <class V, int kM>
static void BlockValues(const ValueArgs& a) {
  constexpr int kC = ColumnsAtOnce(kM), kBlock = 32 / kLanes;           // vectors of one block
  constexpr int kPer = kC < kBlock ? kC : kBlock, kBlocks = kC / kPer;  // blocks of kC vectors
  const int64_t blocks = a.head_dim / 32;
  for (int64_t t = a.begin; t < a.end;) {
    const int64_t first = t / kKvTile, tile_end = first + kValueTiles;
    const int64_t stop = tile_end * kKvTile < a.end ? tile_end * kKvTile : a.end;
    for (int64_t tile = first; tile * kKvTile < stop; tile++) {
      const uint16_t* d = (const uint16_t*)a.scales[tile];
      for (int64_t b = 0; b < blocks; b++) {
        float* to = a.scratch + b * kM * kWeightStride + (tile - first) * kKvTile;
        const float* p = a.p + tile * kKvTile;
        RIDGE_UNROLL for (int h = 0; h < 16; h += kLanes) {
          const F scale = FHalf(d + b * kKvTile + h);
          RIDGE_UNROLL for (int m = 0; m < kM; m++)
              FStore(to + m * kWeightStride + h, FMul(FLoad(p + m * kScoreStride + h), scale));
        }
      }
    }
    int64_t c = 0;
    for (; c + kC * kLanes <= a.head_dim; c += kC * kLanes) {
      const float* w[kBlocks];
      for (int b = 0; b < kBlocks; b++) w[b] = a.scratch + (c / 32 + b) * kM * kWeightStride;
      ValueColumns<V, kM, kC, kPer>(a, t, stop, c, w, kWeightStride, first * kKvTile);
    }
    for (; c < a.head_dim; c += kLanes) {
      const float* w = a.scratch + c / 32 * kM * kWeightStride;
      ValueColumns<V, kM, 1, 1>(a, t, stop, c, &w, kWeightStride, first * kKvTile);
    }
    t = stop;
  }
}

// A tile of 4 bits to int8: [16][head_dim / 2] to [16][head_dim].
static inline void Unpack4(const uint8_t* __restrict tile, int64_t head_dim, int8_t* __restrict out) {
  for (int64_t b = 0; b < head_dim / 2; b++, tile += 16, out += 32) {
    for (int i = 0; i < 16; i++) {
      out[i] = (int8_t)((tile[i] & 15) - 8);
      out[16 + i] = (int8_t)((tile[i] >> 4) - 8);
    }
  }
}

// A tile to f32, in the same order.
template <class T>
static void Widen(const uint8_t* tile, int64_t head_dim, float* out) {
  for (int64_t i = 0; i < kKvTile * head_dim; i += kLanes) FStore(out + i, T::Load((const typename T::T*)tile + i));
}

// ---------------------------------------------------------------- what attention needs of a type

using ScoresOf = void (*)(const uint8_t* const* list, int64_t n_tiles, const float* q, int64_t head_dim, float* scores);
using ValuesOf = void (*)(const ValueArgs& a);
using WidenTile = void (*)(const uint8_t* tile, int64_t head_dim, float* out);

struct KvOps {
  bool blocks, packed;
  void (*prepare)(const float* const* rows, int64_t n, int64_t head_dim, float* out);
  ScoresOf scores[8];
  ValuesOf values[8];  // both by rows - 1; no more than kTileRows are asked for
  // For many rows: tiles of K and V are widened once, and what reads them then. Not for block types' K, whose products are of integers.
  WidenTile widen_k, widen_v;
  ValuesOf wide_values[8];
};

#define RIDGE_BY_ROWS(function)     \
  {function(1),                     \
   function(2),                     \
   function(3),                     \
   function(4),                     \
   function(kTileRows < 5 ? 4 : 5), \
   function(kTileRows < 6 ? 4 : 6), \
   function(kTileRows < 7 ? 4 : 7), \
   function(kTileRows)}
#define RIDGE_WIDE_SCORES(m) Scores<KvWide, m>
constexpr ScoresOf kWideScores[] = RIDGE_BY_ROWS(RIDGE_WIDE_SCORES);

template <class T>
constexpr KvOps FloatOps() {
#define RIDGE_SCORES(m) Scores<T, m>
#define RIDGE_VALUES(m) Values<T, m>
#define RIDGE_WIDE_VALUES(m) Values<KvWide, m>
  return {false,
          false,
          PrepareFloat,
          RIDGE_BY_ROWS(RIDGE_SCORES),
          RIDGE_BY_ROWS(RIDGE_VALUES),
          Widen<T>,
          Widen<T>,
          RIDGE_BY_ROWS(RIDGE_WIDE_VALUES)};
}
template <class T, bool kPacked>
constexpr KvOps BlockOps() {
#define RIDGE_BLOCK_VALUES(m) BlockValues<Int8, m>
#define RIDGE_WIDE_BLOCK_VALUES(m) BlockValues<KvWide, m>
  return {true,
          kPacked,
          PrepareQ8,
          RIDGE_BY_ROWS(RIDGE_SCORES),
          RIDGE_BY_ROWS(RIDGE_BLOCK_VALUES),
          nullptr,
          Widen<Int8>,
          RIDGE_BY_ROWS(RIDGE_WIDE_BLOCK_VALUES)};
}
constexpr KvOps kKvOps[] = {FloatOps<KvF16>(), FloatOps<KvBF16>(), FloatOps<KvF32>(), BlockOps<KvQ8_0, false>(),
                            BlockOps<KvQ4_0, true>()};
static_assert(sizeof(kKvOps) / sizeof(kKvOps[0]) == (int)KvKind::kCount);

}  // namespace RIDGE_ISA
