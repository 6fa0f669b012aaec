// Attention over paged KV, once for every target; kv-inl.h has what depends on the KV type.
//
// Many rows share a split: it is walked some tiles at a time, each widened to f32 once, by all tiles of rows.
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
  float* scores;   // [n_rows][kScoreStride]
  float* sums;     // [n_rows][head_dim], this split's sum of values
  float* wide;     // [kWideTiles][16 * head_dim]
  float* weights;
  int8_t* unpacked;  // [kKvSplit][head_dim]
};

static inline AttentionScratch ScratchOf(const AttentionArgs& a) {
  AttentionScratch s;
  s.queries = a.scratch;
  s.scores = s.queries + kMaxQueryRows * a.head_dim;
  s.sums = s.scores + kMaxQueryRows * kScoreStride;
  s.wide = s.sums + kMaxQueryRows * a.head_dim;
  s.weights = s.wide + kWideTiles * kKvTile * a.head_dim;
  s.unpacked = (int8_t*)(s.weights + ValueScratchFloats(a.head_dim));
  return s;
}
static_assert(ValueScratchFloats(128) <= 5 * kMaxTileRows * 80 && kWeightStride == 80 && kWideTiles == 2);

// The rows of a call are cut into `count` tiles, as equal as they can be.
struct Tiling {
  int64_t n_rows, count;
  int64_t begin(int64_t tile) const { return tile * n_rows / count; }
  int64_t rows(int64_t tile) const { return begin(tile + 1) - begin(tile); }
  bool wide() const { return count > 2; }  // tiles enough to pay for widening
};
static inline Tiling TilingOf(int64_t n_rows) { return {n_rows, (n_rows + kTileRows - 1) / kTileRows}; }

static inline void PrepareQueries(const AttentionArgs& a, const AttentionScratch& s, const Tiling& tiling) {
  for (int64_t i = 0; i < tiling.count; i++) {
    const int64_t row = tiling.begin(i);
    kKvOps[(int)a.k_kind].prepare(a.q + row, tiling.rows(i), a.head_dim, s.queries + row * a.head_dim);
  }
}

// lo and hi: what any row sees.
static inline void FindTiles(const AttentionArgs& a, const AttentionScratch& s, int64_t split, int64_t lo, int64_t hi,
                             SplitTiles* t) {
  const int64_t k_tile = KvTileBytes(a.k_kind, a.head_dim), v_tile = KvTileBytes(a.v_kind, a.head_dim);
  const auto k_at = [&](int64_t token) {
    return a.k + a.groups.At(a.pages[token / a.page_tokens], a.k_page_bytes) + token % a.page_tokens / kKvTile * k_tile;
  };
  t->begin = (split > lo ? split : lo) / kKvTile * kKvTile;
  t->end = split + kKvSplit < hi ? split + kKvSplit : hi;
  t->n = (t->end - t->begin + kKvTile - 1) / kKvTile;
  for (int64_t i = 0; i < t->n; i++) {
    const int64_t token = t->begin + i * kKvTile;
    t->k[i] = k_at(token);
    t->v[i] =
        a.v + a.groups.At(a.pages[token / a.page_tokens], a.v_page_bytes) + token % a.page_tokens / kKvTile * v_tile;
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

static inline float Largest(F x) {
  float lanes[kLanes];
  FStore(lanes, x);
  RIDGE_UNROLL for (int width = kLanes / 2; width > 0; width /= 2) {
    RIDGE_UNROLL for (int i = 0; i < width; i++) lanes[i] = lanes[i] > lanes[i + width] ? lanes[i] : lanes[i + width];
  }
  return lanes[0];
}

// Scales the scores of one row, hides what it does not see, and returns the largest that is a number; -infinity where there is none.
static inline float ScaleAndMask(float* s, int64_t begin, int64_t n_tiles, int64_t lo, int64_t hi, float scale) {
  constexpr int kChains = 4;
  const int64_t whole_begin = lo > begin ? (lo - begin + kKvTile - 1) / kKvTile : 0;  // tiles of which it sees all
  const int64_t whole_end = hi < begin + n_tiles * kKvTile ? (hi - begin) / kKvTile : n_tiles;
  float rest = -INFINITY;
  const auto edge = [&](int64_t from, int64_t to) {
    for (int64_t j = from * kKvTile; j < to * kKvTile; j++) {
      s[j] = begin + j >= lo && begin + j < hi ? s[j] * scale : -INFINITY;
      rest = s[j] > rest ? s[j] : rest;
    }
  };
  if (whole_begin >= whole_end) {
    edge(0, n_tiles);
    return rest;
  }
  edge(0, whole_begin);
  edge(whole_end, n_tiles);
  F largest[kChains];
  RIDGE_UNROLL for (int c = 0; c < kChains; c++) largest[c] = FSet(-INFINITY);
  const auto scaled = [&](float* x, F* top) {
    const F y = FMul(FLoad(x), FSet(scale));
    FStore(x, y);
    *top = FMax(y, *top);  // of a NaN and another the second is taken
  };
  float *x = s + whole_begin * kKvTile, *end = s + whole_end * kKvTile;
  for (; x + kChains * kLanes <= end; x += kChains * kLanes) {
    RIDGE_UNROLL for (int c = 0; c < kChains; c++) scaled(x + c * kLanes, &largest[c]);
  }
  for (; x < end; x += kLanes) scaled(x, &largest[0]);
  const float top = Largest(FMax(FMax(largest[0], largest[1]), FMax(largest[2], largest[3])));
  return top > rest ? top : rest;
}

static inline bool Sees(const AttentionArgs& a, int64_t row, const SplitTiles& t) {
  return a.lo[row] < t.end && a.hi[row] > t.begin;
}
static inline bool AnySees(const AttentionArgs& a, int64_t row, int64_t rows, const SplitTiles& t) {
  for (int64_t m = 0; m < rows; m++) {
    if (Sees(a, row + m, t)) return true;
  }
  return false;
}

// Scores of all rows with the tiles of a split.
static inline void SplitScores(const AttentionArgs& a, const AttentionScratch& s, const SplitTiles& t,
                               const Tiling& tiling) {
  const KvOps& ops = kKvOps[(int)a.k_kind];
  const bool wide = tiling.wide() && ops.widen_k != nullptr;
  const int64_t step = wide ? kWideTiles : t.n;
  for (int64_t tile = 0; tile < t.n; tile += step) {
    const int64_t n = t.n - tile < step ? t.n - tile : step;
    const uint8_t* widened[kWideTiles + kAhead];
    for (int64_t i = 0; wide && i < n; i++) {
      float* to = s.wide + i * kKvTile * a.head_dim;
      ops.widen_k(t.k[tile + i], a.head_dim, to);
      widened[i] = (const uint8_t*)to, widened[i + kAhead] = t.k[tile + i + kWideTiles];
    }
    for (int64_t i = 0; i < tiling.count; i++) {
      const int64_t row = tiling.begin(i), rows = tiling.rows(i);
      if (!AnySees(a, row, rows, t)) continue;
      (wide ? kWideScores : ops.scores)[rows - 1](wide ? widened : t.k + tile, n, s.queries + row * a.head_dim,
                                                  a.head_dim, s.scores + row * kScoreStride + tile * kKvTile);
    }
  }
}

// Adds the values of the tokens [v.begin, v.end) of the split, each row those that it sees, for rows [row, row + rows).
static inline void AddValues(const AttentionArgs& a, const SplitTiles& t, const ValuesOf* values, ValueArgs v,
                             int64_t row, int64_t rows) {
  const int64_t begin = v.begin, end = v.end;
  int64_t first[kMaxTileRows], last[kMaxTileRows], all_first = begin, all_last = end;
  for (int64_t m = 0; m < rows; m++) {
    first[m] = a.lo[row + m] > t.begin + begin ? a.lo[row + m] - t.begin : begin;
    last[m] = a.hi[row + m] < t.begin + end ? a.hi[row + m] - t.begin : end;
    all_first = first[m] > all_first ? first[m] : all_first;
    all_last = last[m] < all_last ? last[m] : all_last;
  }
  const auto alone = [&](int64_t m, int64_t from, int64_t to) {
    if (from >= to) return;
    ValueArgs one = v;
    one.begin = from, one.end = to;
    one.p += m * kScoreStride, one.out += m * a.head_dim;
    values[0](one);
  };
  const bool shared = all_first < all_last;
  for (int64_t m = 0; m < rows; m++) alone(m, first[m], shared ? all_first : last[m]);
  if (!shared) return;
  v.begin = all_first, v.end = all_last;
  values[rows - 1](v);
  for (int64_t m = 0; m < rows; m++) alone(m, all_last, last[m]);
}

// sums[m] = sum of p * V over the tokens of the split that row m sees.
static inline void SplitValues(const AttentionArgs& a, const AttentionScratch& s, const SplitTiles& t,
                               const Tiling& tiling) {
  const KvOps& ops = kKvOps[(int)a.v_kind];
  const uint8_t* const* list = ops.packed ? t.unpacked : t.v;
  const bool wide = tiling.wide();
  const int64_t step = wide ? kWideTiles : t.n, tokens = t.end - t.begin;
  memset(s.sums, 0, (size_t)(tiling.n_rows * a.head_dim) * sizeof(float));
  for (int64_t tile = 0; tile < t.n; tile += step) {
    const uint8_t* widened[SplitTiles::kRoom];
    for (int64_t i = tile; wide && i < tile + step && i < t.n; i++) {
      float* to = s.wide + (i - tile) * kKvTile * a.head_dim;
      ops.widen_v(list[i], a.head_dim, to);
      widened[i] = (const uint8_t*)to, widened[i + kAhead] = list[i + kWideTiles];
    }
    const int64_t end = (tile + step) * kKvTile;
    ValueArgs v = {wide ? widened : list,
                   t.scales,
                   tile * kKvTile,
                   end < tokens ? end : tokens,
                   a.head_dim,
                   nullptr,
                   nullptr,
                   s.weights};
    for (int64_t i = 0; i < tiling.count; i++) {
      const int64_t row = tiling.begin(i);
      v.p = s.scores + row * kScoreStride, v.out = s.sums + row * a.head_dim;
      AddValues(a, t, wide ? ops.wide_values : ops.values, v, row, tiling.rows(i));
    }
  }
}

struct RowState {
  float max, sum;
  bool started;
};

// By how much a row's sums and another split's shrink where their maxima meet: e^(its maximum - the larger), for n rows.
struct Meeting {
  float old[kMaxQueryRows], fresh[kMaxQueryRows];
};
static inline void Meet(const RowState* rows, const float* max, int64_t n, Meeting* m) {
  for (int64_t r = 0; r < n; r++) {
    const float top = rows[r].max > max[r] ? rows[r].max : max[r];
    m->old[r] = rows[r].max - top, m->fresh[r] = max[r] - top;
  }
  for (int64_t r = 0; r < n; r += kLanes) {
    FStore(m->old + r, Exp(FLoad(m->old + r)));
    FStore(m->fresh + r, Exp(FLoad(m->fresh + r)));
  }
}

// Takes another split's sum of values, maximum and sum of weights into a row.
static inline void Fold(RowState* row, const float* values, float max, float sum, float old, float fresh,
                        int64_t head_dim, float* out) {
  if (!row->started) {
    *row = {max, sum, true};
    memcpy(out, values, (size_t)head_dim * sizeof(float));
    return;
  }
  for (int64_t c = 0; c < head_dim; c++) out[c] = fmaf(values[c], fresh, out[c] * old);
  row->sum = fmaf(sum, fresh, row->sum * old);
  row->max = row->max > max ? row->max : max;
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

static void AttentionInFull(const AttentionArgs& a);

static void Attention(const AttentionArgs& a) {
  if (a.full != nullptr) return AttentionInFull(a);
  const AttentionScratch s = ScratchOf(a);
  const Tiling tiling = TilingOf(a.n_rows);
  PrepareQueries(a, s, tiling);
  RowState state[kMaxQueryRows];
  for (int64_t r = 0; r < a.n_rows; r++) state[r] = {};
  int64_t lo, hi;
  Range(a, &lo, &hi);
  int64_t begin = lo / kKvSplit, end = (hi + kKvSplit - 1) / kKvSplit;
  if (a.parts != nullptr) begin = a.split_begin, end = a.split_end;
  for (int64_t split = begin; split < end; split++) {
    SplitTiles t;
    FindTiles(a, s, split * kKvSplit, lo, hi, &t);
    float max[kMaxQueryRows] = {}, sum[kMaxQueryRows];
    SplitScores(a, s, t, tiling);
    for (int64_t r = 0; r < a.n_rows; r++) {
      if (!Sees(a, r, t)) continue;
      float *p = s.scores + r * kScoreStride, lanes[16] = {};
      max[r] = ScaleAndMask(p, t.begin, t.n, a.lo[r], a.hi[r], a.scale);
      ExpSum(p, t.n * kKvTile, max[r], lanes);
      sum[r] = SumLanes(lanes);
    }
    SplitValues(a, s, t, tiling);
    Meeting meeting;
    if (a.parts == nullptr) Meet(state, max, a.n_rows, &meeting);
    for (int64_t r = 0; r < a.n_rows; r++) {
      const bool sees = Sees(a, r, t);
      const float* values = s.sums + r * a.head_dim;
      if (a.parts == nullptr) {
        if (sees) Fold(&state[r], values, max[r], sum[r], meeting.old[r], meeting.fresh[r], a.head_dim, a.out[r]);
        continue;
      }
      float* part = a.parts + ((split - begin) * a.n_rows + r) * AttentionPartFloats(a.head_dim);
      part[a.head_dim + 2] = sees ? 1 : 0;
      if (!sees) continue;
      memcpy(part, values, (size_t)a.head_dim * sizeof(float));
      part[a.head_dim] = max[r], part[a.head_dim + 1] = sum[r];
    }
  }
  if (a.parts != nullptr) return;
  for (int64_t r = 0; r < a.n_rows; r++) Finish(a.out[r], a.out[r], state[r].sum, a.head_dim);
}

static void CombineAttention(const float* parts, int64_t n, int64_t stride, int64_t head_dim, float* out) {
  RowState state = {};
  Meeting meeting;
  for (int64_t i = 0; i < n; i++, parts += stride) {
    if (parts[head_dim + 2] == 0) continue;
    Meet(&state, parts + head_dim, 1, &meeting);
    Fold(&state, parts, parts[head_dim], parts[head_dim + 1], meeting.old[0], meeting.fresh[0], head_dim, out);
  }
  Finish(out, out, state.sum, head_dim);
}

// Without splits: all scores of a tile's rows, one softmax over each, then the values. Another order of sums, so other bits.
static void TileInFull(const AttentionArgs& a) {
  const AttentionScratch s = ScratchOf(a);
  const Tiling tiling = {a.n_rows, 1};
  PrepareQueries(a, s, tiling);
  int64_t lo, hi;
  Range(a, &lo, &hi);
  const int64_t base = lo / kKvTile * kKvTile;
  SplitTiles t;
  float max[kMaxTileRows], sum[kMaxTileRows];
  for (int64_t m = 0; m < a.n_rows; m++) max[m] = -INFINITY;
  for (int64_t split = lo / kKvSplit * kKvSplit; split < hi; split += kKvSplit) {
    FindTiles(a, s, split, lo, hi, &t);
    SplitScores(a, s, t, tiling);
    for (int64_t m = 0; m < a.n_rows; m++) {
      float* p = s.scores + m * kScoreStride;
      const float top = ScaleAndMask(p, t.begin, t.n, a.lo[m], a.hi[m], a.scale);
      max[m] = top > max[m] ? top : max[m];
      memcpy(a.full + m * a.full_stride + t.begin - base, p, (size_t)(t.n * kKvTile) * sizeof(float));
    }
  }
  for (int64_t m = 0; m < a.n_rows; m++) {
    float lanes[16] = {};
    ExpSum(a.full + m * a.full_stride, (hi - base + kKvTile - 1) / kKvTile * kKvTile, max[m], lanes);
    sum[m] = SumLanes(lanes);
    memset(a.out[m], 0, (size_t)a.head_dim * sizeof(float));
  }
  for (int64_t split = lo / kKvSplit * kKvSplit; split < hi; split += kKvSplit) {
    FindTiles(a, s, split, lo, hi, &t);
    for (int64_t m = 0; m < a.n_rows; m++)
      memcpy(s.scores + m * kScoreStride, a.full + m * a.full_stride + t.begin - base,
             (size_t)(t.n * kKvTile) * sizeof(float));
    SplitValues(a, s, t, tiling);
    for (int64_t m = 0; m < a.n_rows; m++) {
      for (int64_t c = 0; c < a.head_dim; c++) a.out[m][c] += s.sums[m * a.head_dim + c];
    }
  }
  for (int64_t m = 0; m < a.n_rows; m++) Finish(a.out[m], a.out[m], sum[m], a.head_dim);
}
static void AttentionInFull(const AttentionArgs& a) {
  const Tiling tiling = TilingOf(a.n_rows);
  for (int64_t i = 0; i < tiling.count; i++) {
    const int64_t row = tiling.begin(i);
    AttentionArgs tile = a;
    tile.n_rows = tiling.rows(i);
    tile.q += row, tile.out += row, tile.lo += row, tile.hi += row;
    TileInFull(tile);
  }
}

}  // namespace RIDGE_ISA
