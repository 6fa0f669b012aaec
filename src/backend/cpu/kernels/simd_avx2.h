// AVX2 with FMA and F16C: 8 lanes, so a panel is read in two passes; the names are explained in simd_scalar.h.
// target_avxvnni.cc defines RIDGE_AVX_VNNI: the same vocabulary but for the dot products.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "scalar_math.h"

namespace RIDGE_ISA {

constexpr int kLanes = 8;
using F = __m256;
using I = __m256i;
struct B {
  __m256i v;
};

static inline F FSet(float x) { return _mm256_set1_ps(x); }
static inline F FLoad(const float* p) { return _mm256_loadu_ps(p); }
static inline void FStore(float* p, F a) { _mm256_storeu_ps(p, a); }
static inline F FAdd(F a, F b) { return _mm256_add_ps(a, b); }
static inline F FSub(F a, F b) { return _mm256_sub_ps(a, b); }
static inline F FMul(F a, F b) { return _mm256_mul_ps(a, b); }
static inline F FDiv(F a, F b) { return _mm256_div_ps(a, b); }
static inline F FMax(F a, F b) { return _mm256_max_ps(a, b); }
static inline F FMin(F a, F b) { return _mm256_min_ps(a, b); }
static inline F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
static inline F FZeroBelow(F x, F bound, F value) {
  return _mm256_andnot_ps(_mm256_cmp_ps(x, bound, _CMP_LT_OQ), value);
}
static inline F FHalf(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
static inline F FBf16(const uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)p)), 16));
}
static inline void StoreHalf(uint16_t* p, F a) {
  _mm_storeu_si128((__m128i*)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline I ISet(int32_t x) { return _mm256_set1_epi32(x); }
static inline I IAdd(I a, I b) { return _mm256_add_epi32(a, b); }
static inline I ISub(I a, I b) { return _mm256_sub_epi32(a, b); }
static inline I IMul(I a, I b) { return _mm256_mullo_epi32(a, b); }
static inline I IMax(I a, I b) { return _mm256_max_epi32(a, b); }
static inline I IShl23(I a) { return _mm256_slli_epi32(a, 23); }
static inline I ILoadU8(const uint8_t* p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)); }
static inline I ILoadS8(const int8_t* p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)); }
static inline F FFromI(I a) { return _mm256_cvtepi32_ps(a); }
static inline I IFromF(F a) { return _mm256_cvtps_epi32(a); }
static inline F FCast(I a) { return _mm256_castsi256_ps(a); }
static inline I IAbsBits(F a) { return _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7fffffff)); }
static inline int32_t IReduceMax(I a) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}
static inline int32_t IReduceAdd(I a) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
static inline void IStoreS8(int8_t* p, I a) {
  const __m128i w = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  _mm_storel_epi64((__m128i*)p, _mm_packs_epi16(w, w));
}

static inline B BLoad(const uint8_t* p) { return {_mm256_loadu_si256((const __m256i*)p)}; }
static inline B BLow4(B a) { return {_mm256_and_si256(a.v, _mm256_set1_epi8(15))}; }
static inline B BHigh4(B a) { return {_mm256_and_si256(_mm256_srli_epi16(a.v, 4), _mm256_set1_epi8(15))}; }
static inline B BOr(B a, B b) { return {_mm256_or_si256(a.v, b.v)}; }
template <int kBit>
static inline B BBitTo4(B a) {
  const __m256i moved =
      kBit < 4 ? _mm256_slli_epi16(a.v, kBit < 4 ? 4 - kBit : 0) : _mm256_srli_epi16(a.v, kBit < 4 ? 0 : kBit - 4);
  return {_mm256_and_si256(moved, _mm256_set1_epi8(0x10))};
}
template <int kField>
static inline B BPairTo4(B a) {
  const __m256i moved = kField < 2 ? _mm256_slli_epi16(a.v, kField < 2 ? 4 - 2 * kField : 0)
                                   : _mm256_srli_epi16(a.v, kField < 2 ? 0 : 2 * kField - 4);
  return {_mm256_and_si256(moved, _mm256_set1_epi8(0x30))};
}
template <int kBit>
static inline B BBitTo2(B a) {
  const __m256i moved =
      kBit < 2 ? _mm256_slli_epi16(a.v, kBit < 2 ? 2 - kBit : 0) : _mm256_srli_epi16(a.v, kBit < 2 ? 0 : kBit - 2);
  return {_mm256_and_si256(moved, _mm256_set1_epi8(4))};
}
template <int kField>
static inline B BField2(B a) {
  return {_mm256_and_si256(kField == 0 ? a.v : _mm256_srli_epi16(a.v, 2 * kField), _mm256_set1_epi8(3))};
}
static inline B BTable(const uint8_t* table, B index) {
  return {_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128((const __m128i*)table)), index.v)};
}

template <int kGroup>
static inline I XQuad(const int8_t* x) {
  int32_t quad;
  memcpy(&quad, x + 4 * kGroup, 4);
  return ISet(quad);
}

#if !defined(RIDGE_AVX_VNNI)    // else dot_avxvnni.h has these
constexpr int kWideOffset = 0;  // SDotWide takes the 128 off itself: vpmaddubsw would saturate

// 16-bit sums, two a lane: a group adds at most 2 * 127 * kMax to each.
struct S {
  __m256i v;
};
static inline constexpr int ShortGroups(int max) { return max >= 128 ? 1 : 32767 / (2 * 127 * max); }
static inline S SZero() { return {_mm256_setzero_si256()}; }
// The products are to be added as they come: GCC would first make all of them and add them in a tree, for which there are no registers.
static inline S SAdd(S s, __m256i products) {
  s.v = _mm256_add_epi16(s.v, products);
  asm volatile("" : "+x"(s.v));
  return s;
}
static inline S SDot(S s, B w, I x) { return SAdd(s, _mm256_maddubs_epi16(w.v, x)); }
// |w| * (x with w's sign): 128 * 127 * 2 still fits 16 bits, since activations are never -128.
static inline S SDotWide(S s, B w, I x) {
  const __m256i value = _mm256_xor_si256(w.v, _mm256_set1_epi8((char)0x80));
  return SAdd(s, _mm256_maddubs_epi16(_mm256_abs_epi8(value), _mm256_sign_epi8(x, value)));
}
static inline I SFold(S s) { return _mm256_madd_epi16(s.v, _mm256_set1_epi16(1)); }
// A scale for SFoldScaled: in both halves of the lane.
static inline I SScaleLow(I pairs) {
  return _mm256_or_si256(_mm256_and_si256(pairs, _mm256_set1_epi32(0xffff)), _mm256_slli_epi32(pairs, 16));
}
static inline I SScaleHigh(I pairs) {
  return _mm256_or_si256(_mm256_srli_epi32(pairs, 16), _mm256_andnot_si256(_mm256_set1_epi32(0xffff), pairs));
}
static inline I SFoldScaled(I acc, S s, I scale) { return _mm256_add_epi32(acc, _mm256_madd_epi16(s.v, scale)); }
static inline I ILoadPairs(const int8_t* p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)p)); }
static inline I IDotPairs(I acc, I pairs, I x) { return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, x)); }
#endif
static inline void Prefetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }
static inline void PrefetchL2(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T1); }
static inline void PrefetchForWrite(const void* p) { __builtin_prefetch(p, 1); }

}  // namespace RIDGE_ISA
