// Attention over paged KV, once for every target. Tokens lie along the lanes of K (a page of K is [head_dim][page_tokens]), channels
// along the lanes of V ([page_tokens][head_dim]): no sum ever crosses lanes, except the softmax's, whose order is fixed.
//
// Numerics: the KV is walked in splits of kKvSplit tokens at absolute positions. In a split all scores are computed (increasing
// channel), exponentiated against the split's maximum and summed in 16 interleaved partials; values are added in increasing token.
// Splits are combined in order. Page size, query tiling and chunking change nothing.
#pragma once

#include "elementwise-inl.h"

namespace RIDGE_ISA {

struct KvF16 {
  using T = uint16_t;
  static inline F Load(const T* p) { return FHalf(p); }
  static inline T Store(float x) { return FloatToHalf(x); }
};
struct KvBF16 {
  using T = uint16_t;
  static inline F Load(const T* p) { return FBf16(p); }
  static inline T Store(float x) { return FloatToBf16(x); }
};
struct KvF32 {
  using T = float;
  static inline F Load(const T* p) { return FLoad(p); }
  static inline T Store(float x) { return x; }
};

// scores[m][i] for the 16 tokens at page slot `slot`: sum over channels of q[m][c] * K[c][slot + i].
template <class K, int kM>
static inline void Scores16(const typename K::T* page, int64_t page_tokens, int64_t head_dim, const float* const* q,
                            float* const* scores) {
  for (int h = 0; h < 16; h += kLanes) {
    F acc[kM];
    for (int m = 0; m < kM; m++) acc[m] = FSet(0);
    const typename K::T* column = page + h;
    for (int64_t c = 0; c < head_dim; c++, column += page_tokens) {
      const F k = K::Load(column);
      for (int m = 0; m < kM; m++) acc[m] = Fma(k, FSet(q[m][c]), acc[m]);
    }
    for (int m = 0; m < kM; m++) FStore(scores[m] + h, acc[m]);
  }
}

// out[m][c .. c + 16) += sum over `n` tokens of p[m][i] * V[i][c ..]
template <class V, int kM>
static inline void Values16(const typename V::T* v, int64_t head_dim, int64_t n, const float* const* p,
                            float* const* out) {
  for (int h = 0; h < 16; h += kLanes) {
    F acc[kM];
    for (int m = 0; m < kM; m++) acc[m] = FLoad(out[m] + h);
    const typename V::T* row = v + h;
    for (int64_t i = 0; i < n; i++, row += head_dim) {
      const F value = V::Load(row);
      for (int m = 0; m < kM; m++) acc[m] = Fma(FSet(p[m][i]), value, acc[m]);
    }
    for (int m = 0; m < kM; m++) FStore(out[m] + h, acc[m]);
  }
}

template <class K, class V, int kM>
static void AttentionRows(const AttentionArgs& a) {
  float* scores = a.scratch;                           // [kM][kKvSplit]
  float* partial = scores + kMaxQueryRows * kKvSplit;  // [kM][head_dim], this split's sum of values
  float max[kM], sum[kM];
  bool started[kM] = {};
  int64_t lo = a.lo[0], hi = a.hi[0];
  for (int m = 1; m < kM; m++) {
    lo = a.lo[m] < lo ? a.lo[m] : lo;
    hi = a.hi[m] > hi ? a.hi[m] : hi;
  }
  for (int64_t split = lo / kKvSplit * kKvSplit; split < hi; split += kKvSplit) {
    const int64_t begin = (split > lo ? split : lo) / 16 * 16, end = split + kKvSplit < hi ? split + kKvSplit : hi;
    for (int64_t t = begin; t < end; t += 16) {
      const int64_t slot = t % a.page_tokens;
      const uint8_t* page = a.k + a.pages[t / a.page_tokens] * a.k_page_bytes;
      float* at[kM];
      for (int m = 0; m < kM; m++) at[m] = scores + m * kKvSplit + (t - split);
      Scores16<K, kM>((const typename K::T*)page + slot, a.page_tokens, a.head_dim, a.q, at);
    }
    float split_max[kM], split_sum[kM];
    const int64_t padded = (end - begin + 15) / 16 * 16;
    for (int m = 0; m < kM; m++) {
      float* s = scores + m * kKvSplit + (begin - split);
      float largest = -INFINITY;
      for (int64_t i = 0; i < padded; i++) {
        const int64_t t = begin + i;
        s[i] = t >= a.lo[m] && t < a.hi[m] ? s[i] * a.scale : -INFINITY;
        largest = s[i] > largest ? s[i] : largest;
      }
      float lanes[16] = {};
      split_max[m] = largest;
      if (a.lo[m] < end && a.hi[m] > begin)
        ExpSum(s, padded, largest, lanes);
      else
        memset(s, 0, (size_t)padded * sizeof(float));
      split_sum[m] = SumLanes(lanes);
      memset(partial + m * a.head_dim, 0, (size_t)a.head_dim * sizeof(float));
    }
    for (int64_t t = begin; t < end;) {
      const int64_t slot = t % a.page_tokens;
      int64_t n = a.page_tokens - slot;
      n = n < end - t ? n : end - t;
      const typename V::T* v =
          (const typename V::T*)(a.v + a.pages[t / a.page_tokens] * a.v_page_bytes) + slot * a.head_dim;
      const float* p[kM];
      for (int m = 0; m < kM; m++) p[m] = scores + m * kKvSplit + (t - split);
      for (int64_t c = 0; c < a.head_dim; c += 16) {
        float* out[kM];
        for (int m = 0; m < kM; m++) out[m] = partial + m * a.head_dim + c;
        Values16<V, kM>(v + c, a.head_dim, n, p, out);
      }
      t += n;
    }
    for (int m = 0; m < kM; m++) {
      if (a.lo[m] >= end || a.hi[m] <= begin) continue;
      const float* from = partial + m * a.head_dim;
      float* out = a.out[m];
      if (!started[m]) {
        started[m] = true;
        max[m] = split_max[m];
        sum[m] = split_sum[m];
        memcpy(out, from, (size_t)a.head_dim * sizeof(float));
        continue;
      }
      const float top = max[m] > split_max[m] ? max[m] : split_max[m];
      float factors[kLanes] = {};
      factors[0] = max[m] - top;
      factors[1] = split_max[m] - top;
      FStore(factors, Exp(FLoad(factors)));
      const float old = factors[0], fresh = factors[1];
      for (int64_t c = 0; c < a.head_dim; c++) out[c] = fmaf(from[c], fresh, out[c] * old);
      sum[m] = fmaf(split_sum[m], fresh, sum[m] * old);
      max[m] = top;
    }
  }
  for (int m = 0; m < kM; m++) {
    for (int64_t c = 0; c < a.head_dim; c++) a.out[m][c] = a.out[m][c] / sum[m];
  }
}

template <class K, class V>
static void Attention(const AttentionArgs& a) {
  switch (a.n_rows) {
    case 1: return AttentionRows<K, V, 1>(a);
    case 2: return AttentionRows<K, V, 2>(a);
    case 3: return AttentionRows<K, V, 3>(a);
    case 4: return AttentionRows<K, V, 4>(a);
    case 5: return AttentionRows<K, V, 5>(a);
    case 6: return AttentionRows<K, V, 6>(a);
    case 7: return AttentionRows<K, V, 7>(a);
    default: return AttentionRows<K, V, 8>(a);
  }
}

template <class T>
static void StoreKv(const float* x, int64_t n, uint8_t* out, int64_t stride) {
  typename T::T* to = (typename T::T*)out;
  for (int64_t i = 0; i < n; i++) to[i * stride] = T::Store(x[i]);
}

}  // namespace RIDGE_ISA
