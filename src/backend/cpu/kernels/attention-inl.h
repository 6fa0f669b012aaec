// Attention over paged KV, once for every target; kv-inl.h has what depends on the KV type.
//
// Numerics: the KV is walked in splits of kKvSplit tokens at absolute positions. In a split all scores are computed (increasing
// channel), exponentiated against the split's maximum and summed in 16 interleaved partials; values are added in increasing token.
// Splits are combined in order. Page size, query tiling, chunking and who computes which split change nothing. A token that a row does
// not see is never multiplied for it, so nothing that its slot holds, NaN or infinity, can reach the row. A NaN result is the quiet one.
#pragma once

#include "kv-inl.h"

namespace RIDGE_ISA {

// Tiles of one split, each list going on with what is needed next.
struct SplitTiles {
  static constexpr int64_t kRoom = kSplitTiles + kAhead + 8;
  int64_t begin, end;  // tokens: begin is a multiple of 16
  int64_t n;           // tiles
  const uint8_t* k[kRoom];
  const uint8_t* v[kRoom];
  const uint8_t* unpacked[kRoom];  // V of 4 bits as int8
  const uint8_t* scales[kSplitTiles];
};

struct AttentionScratch {
  float* queries;  // [n_rows][head_dim], each tile's rows as its K type wants them
  float* scores;   // [kMaxTileRows][kScoreStride]
  float* sums;     // [kMaxTileRows][head_dim], this split's sum of values
  float* weights;
  int8_t* unpacked;  // [kKvSplit][head_dim]
};

static inline AttentionScratch ScratchOf(const AttentionArgs& a) {
  AttentionScratch s;
  s.queries = a.scratch;
  s.scores = s.queries + kMaxQueryRows * a.head_dim;
  s.sums = s.scores + kMaxTileRows * kScoreStride;
  s.weights = s.sums + kMaxTileRows * a.head_dim;
  s.unpacked = (int8_t*)(s.weights + ValueScratchFloats(a.head_dim));
  return s;
}
static_assert(ValueScratchFloats(128) <= 5 * kMaxTileRows * 80 && kWeightStride == 80);

// Rows of a call are cut into tiles of nearly equal size.
struct Tiling {
  int64_t count, rows;
};
static inline Tiling TilingOf(int64_t n_rows) {
  const int64_t count = (n_rows + kTileRows - 1) / kTileRows;
  return {count, (n_rows + count - 1) / count};
}

static inline void PrepareQueries(const AttentionArgs& a, const AttentionScratch& s) {
  const Tiling tiling = TilingOf(a.n_rows);
  for (int64_t r = 0; r < a.n_rows; r += tiling.rows) {
    const int64_t rows = a.n_rows - r < tiling.rows ? a.n_rows - r : tiling.rows;
    kKvOps[(int)a.k_kind].prepare(a.q + r, rows, a.head_dim, s.queries + r * a.head_dim);
  }
}

// lo and hi: what any row sees.
static inline void FindTiles(const AttentionArgs& a, const AttentionScratch& s, int64_t split, int64_t lo, int64_t hi,
                             SplitTiles* t) {
  const int64_t k_tile = KvTileBytes(a.k_kind, a.head_dim), v_tile = KvTileBytes(a.v_kind, a.head_dim);
  const auto k_at = [&](int64_t token) {
    return a.k + a.pages[token / a.page_tokens] * a.k_page_bytes + token % a.page_tokens / kKvTile * k_tile;
  };
  t->begin = (split > lo ? split : lo) / kKvTile * kKvTile;
  t->end = split + kKvSplit < hi ? split + kKvSplit : hi;
  t->n = (t->end - t->begin + kKvTile - 1) / kKvTile;
  for (int64_t i = 0; i < t->n; i++) {
    const int64_t token = t->begin + i * kKvTile;
    t->k[i] = k_at(token);
    t->v[i] = a.v + a.pages[token / a.page_tokens] * a.v_page_bytes + token % a.page_tokens / kKvTile * v_tile;
  }
  for (int64_t i = 0; i < kAhead + 8; i++) {
    const int64_t next = t->end + i * kKvTile;
    t->k[t->n + i] = t->v[i < t->n ? i : t->n - 1];
    t->v[t->n + i] = next < hi ? k_at(next) : t->v[t->n - 1];
  }
  const KvOps& v = kKvOps[(int)a.v_kind];
  if (!v.blocks) return;
  for (int64_t i = 0; i < t->n; i++) t->scales[i] = t->v[i] + (v.packed ? 8 : 16) * a.head_dim;
  if (!v.packed) return;
  for (int64_t i = 0; i < t->n; i++) {
    int8_t* to = s.unpacked + i * kKvTile * a.head_dim;
    Unpack4(t->v[i], a.head_dim, to);
    t->unpacked[i] = (const uint8_t*)to;
  }
  for (int64_t i = t->n; i < t->n + kAhead + 8; i++) t->unpacked[i] = t->v[i];
}

// Scales the scores of one row, hides what it does not see, and returns the largest that is a number; -infinity where there is none.
static inline float ScaleAndMask(float* s, int64_t begin, int64_t n_tiles, int64_t lo, int64_t hi, float scale) {
  F largest = FSet(-INFINITY);
  float rest = -INFINITY;
  for (int64_t i = 0; i < n_tiles; i++, s += kKvTile) {
    const int64_t t = begin + i * kKvTile;
    if (t >= lo && t + kKvTile <= hi) {
      for (int h = 0; h < kKvTile; h += kLanes) {
        const F x = FMul(FLoad(s + h), FSet(scale));
        FStore(s + h, x);
        largest = FMax(x, largest);  // of a NaN and another the second is taken
      }
      continue;
    }
    for (int j = 0; j < kKvTile; j++) {
      s[j] = t + j >= lo && t + j < hi ? s[j] * scale : -INFINITY;
      rest = s[j] > rest ? s[j] : rest;
    }
  }
  float lanes[kLanes];
  FStore(lanes, largest);
  for (int j = 0; j < kLanes; j++) rest = lanes[j] > rest ? lanes[j] : rest;
  return rest;
}

// sums[m] = sum of p * V over the tokens of the split that row m sees, for rows [row, row + rows).
static inline void SplitValues(const AttentionArgs& a, const AttentionScratch& s, const SplitTiles& t, int64_t row,
                               int64_t rows) {
  const KvOps& ops = kKvOps[(int)a.v_kind];
  ValueArgs v = {ops.packed ? t.unpacked : t.v, t.scales, 0, 0, a.head_dim, s.scores, s.sums, s.weights};
  int64_t first[kMaxTileRows], last[kMaxTileRows], all_first = 0, all_last = t.end - t.begin;
  for (int64_t m = 0; m < rows; m++) {
    first[m] = (a.lo[row + m] > t.begin ? a.lo[row + m] : t.begin) - t.begin;
    last[m] = (a.hi[row + m] < t.end ? a.hi[row + m] : t.end) - t.begin;
    all_first = first[m] > all_first ? first[m] : all_first;
    all_last = last[m] < all_last ? last[m] : all_last;
  }
  memset(s.sums, 0, (size_t)(rows * a.head_dim) * sizeof(float));
  const auto alone = [&](int64_t m, int64_t begin, int64_t end) {
    if (begin >= end) return;
    ValueArgs one = v;
    one.begin = begin, one.end = end;
    one.p += m * kScoreStride, one.out += m * a.head_dim;
    ops.values[0](one);
  };
  const bool shared = all_first < all_last;
  for (int64_t m = 0; m < rows; m++) alone(m, first[m], shared ? all_first : last[m]);
  if (!shared) return;
  v.begin = all_first, v.end = all_last;
  ops.values[rows - 1](v);
  for (int64_t m = 0; m < rows; m++) alone(m, all_last, last[m]);
}

struct RowState {
  float max, sum;
  bool started;
};

// Takes another split's sum of values, maximum and sum of weights into a row.
static inline void Fold(RowState* row, const float* values, float max, float sum, int64_t head_dim, float* out) {
  if (!row->started) {
    *row = {max, sum, true};
    memcpy(out, values, (size_t)head_dim * sizeof(float));
    return;
  }
  const float top = row->max > max ? row->max : max;
  float factors[kLanes] = {};
  factors[0] = row->max - top;
  factors[1] = max - top;
  FStore(factors, Exp(FLoad(factors)));
  const float old = factors[0], fresh = factors[1];
  for (int64_t c = 0; c < head_dim; c++) out[c] = fmaf(values[c], fresh, out[c] * old);
  row->sum = fmaf(sum, fresh, row->sum * old);
  row->max = top;
}

// One NaN for all targets: which one an operation passes on is up to the compiler.
static inline void Finish(float* out, const float* values, float sum, int64_t head_dim) {
  const float nan = FloatOf(0x7fc00000);
  for (int64_t c = 0; c < head_dim; c++) {
    const float x = values[c] / sum;
    out[c] = x == x ? x : nan;
  }
}

static inline void Range(const AttentionArgs& a, int64_t* lo, int64_t* hi) {
  *lo = a.lo[0], *hi = a.hi[0];
  for (int64_t m = 1; m < a.n_rows; m++) {
    *lo = a.lo[m] < *lo ? a.lo[m] : *lo;
    *hi = a.hi[m] > *hi ? a.hi[m] : *hi;
  }
}

static inline bool Sees(const AttentionArgs& a, int64_t row, const SplitTiles& t) {
  return a.lo[row] < t.end && a.hi[row] > t.begin;
}

static void AttentionInFull(const AttentionArgs& a);

static void Attention(const AttentionArgs& a) {
  if (a.full != nullptr) return AttentionInFull(a);
  const AttentionScratch s = ScratchOf(a);
  const Tiling tiling = TilingOf(a.n_rows);
  PrepareQueries(a, s);
  RowState state[kMaxQueryRows];
  for (int64_t r = 0; r < a.n_rows; r++) state[r].started = false;
  int64_t lo, hi;
  Range(a, &lo, &hi);
  int64_t begin = lo / kKvSplit, end = (hi + kKvSplit - 1) / kKvSplit;
  if (a.parts != nullptr) begin = a.split_begin, end = a.split_end;
  for (int64_t split = begin; split < end; split++) {
    SplitTiles t;
    FindTiles(a, s, split * kKvSplit, lo, hi, &t);
    for (int64_t row = 0; row < a.n_rows; row += tiling.rows) {
      const int64_t rows = a.n_rows - row < tiling.rows ? a.n_rows - row : tiling.rows;
      bool any = false;
      for (int64_t m = 0; m < rows; m++) any = any || Sees(a, row + m, t);
      float* parts =
          a.parts == nullptr ? nullptr : a.parts + ((split - begin) * a.n_rows + row) * AttentionPartFloats(a.head_dim);
      float max[kMaxTileRows], sum[kMaxTileRows];
      if (any) {
        kKvOps[(int)a.k_kind].scores[rows - 1](t.k, t.n, s.queries + row * a.head_dim, a.head_dim, s.scores);
        for (int64_t m = 0; m < rows; m++) {
          if (!Sees(a, row + m, t)) continue;
          float *p = s.scores + m * kScoreStride, lanes[16] = {};
          max[m] = ScaleAndMask(p, t.begin, t.n, a.lo[row + m], a.hi[row + m], a.scale);
          ExpSum(p, t.n * kKvTile, max[m], lanes);
          sum[m] = SumLanes(lanes);
        }
        SplitValues(a, s, t, row, rows);
      }
      for (int64_t m = 0; m < rows; m++) {
        const bool sees = Sees(a, row + m, t);
        const float* values = s.sums + m * a.head_dim;
        if (parts == nullptr) {
          if (sees) Fold(&state[row + m], values, max[m], sum[m], a.head_dim, a.out[row + m]);
          continue;
        }
        float* part = parts + m * AttentionPartFloats(a.head_dim);
        part[a.head_dim + 2] = sees ? 1 : 0;
        if (!sees) continue;
        memcpy(part, values, (size_t)a.head_dim * sizeof(float));
        part[a.head_dim] = max[m], part[a.head_dim + 1] = sum[m];
      }
    }
  }
  if (a.parts != nullptr) return;
  for (int64_t r = 0; r < a.n_rows; r++) Finish(a.out[r], a.out[r], state[r].sum, a.head_dim);
}

static void CombineAttention(const float* parts, int64_t n, int64_t stride, int64_t head_dim, float* out) {
  RowState state;
  state.started = false;
  for (int64_t i = 0; i < n; i++, parts += stride) {
    if (parts[head_dim + 2] != 0) Fold(&state, parts, parts[head_dim], parts[head_dim + 1], head_dim, out);
  }
  Finish(out, out, state.sum, head_dim);
}

// Without splits: all scores of a tile's rows, one softmax over each, then the values. Another order of sums, so other bits.
static void AttentionInFull(const AttentionArgs& a) {
  const AttentionScratch s = ScratchOf(a);
  const Tiling tiling = TilingOf(a.n_rows);
  PrepareQueries(a, s);
  int64_t lo, hi;
  Range(a, &lo, &hi);
  const int64_t base = lo / kKvTile * kKvTile;
  SplitTiles t;
  for (int64_t row = 0; row < a.n_rows; row += tiling.rows) {
    const int64_t rows = a.n_rows - row < tiling.rows ? a.n_rows - row : tiling.rows;
    float max[kMaxTileRows], sum[kMaxTileRows];
    for (int64_t m = 0; m < rows; m++) max[m] = -INFINITY;
    for (int64_t split = lo / kKvSplit * kKvSplit; split < hi; split += kKvSplit) {
      FindTiles(a, s, split, lo, hi, &t);
      kKvOps[(int)a.k_kind].scores[rows - 1](t.k, t.n, s.queries + row * a.head_dim, a.head_dim, s.scores);
      for (int64_t m = 0; m < rows; m++) {
        float* p = s.scores + m * kScoreStride;
        const float top = ScaleAndMask(p, t.begin, t.n, a.lo[row + m], a.hi[row + m], a.scale);
        max[m] = top > max[m] ? top : max[m];
        memcpy(a.full + m * a.full_stride + t.begin - base, p, (size_t)(t.n * kKvTile) * sizeof(float));
      }
    }
    for (int64_t m = 0; m < rows; m++) {
      float lanes[16] = {};
      ExpSum(a.full + m * a.full_stride, (hi - base + kKvTile - 1) / kKvTile * kKvTile, max[m], lanes);
      sum[m] = SumLanes(lanes);
      memset(a.out[row + m], 0, (size_t)a.head_dim * sizeof(float));
    }
    for (int64_t split = lo / kKvSplit * kKvSplit; split < hi; split += kKvSplit) {
      FindTiles(a, s, split, lo, hi, &t);
      for (int64_t m = 0; m < rows; m++)
        memcpy(s.scores + m * kScoreStride, a.full + m * a.full_stride + t.begin - base,
               (size_t)(t.n * kKvTile) * sizeof(float));
      SplitValues(a, s, t, row, rows);
      for (int64_t m = 0; m < rows; m++) {
        for (int64_t c = 0; c < a.head_dim; c++) a.out[row + m][c] += s.sums[m * a.head_dim + c];
      }
    }
    for (int64_t m = 0; m < rows; m++) Finish(a.out[row + m], a.out[row + m], sum[m], a.head_dim);
  }
}

}  // namespace RIDGE_ISA
