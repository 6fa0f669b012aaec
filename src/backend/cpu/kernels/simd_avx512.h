// AVX-512 (F, BW, VL, DQ, VNNI): 16 lanes; the names are explained in simd_scalar.h.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "scalar_math.h"

namespace RIDGE_ISA {

constexpr int kLanes = 16;
constexpr int kWideOffset = 128;

using F = __m512;
using I = __m512i;
using B = __m512i;

static inline F FSet(float x) { return _mm512_set1_ps(x); }
static inline F FLoad(const float* p) { return _mm512_loadu_ps(p); }
static inline void FStore(float* p, F a) { _mm512_storeu_ps(p, a); }
static inline F FAdd(F a, F b) { return _mm512_add_ps(a, b); }
static inline F FSub(F a, F b) { return _mm512_sub_ps(a, b); }
static inline F FMul(F a, F b) { return _mm512_mul_ps(a, b); }
static inline F FDiv(F a, F b) { return _mm512_div_ps(a, b); }
static inline F FMax(F a, F b) { return _mm512_max_ps(a, b); }
static inline F FMin(F a, F b) { return _mm512_min_ps(a, b); }
static inline F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
static inline F FZeroBelow(F x, F bound, F value) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_NLT_UQ), value);
}
static inline F FHalf(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
static inline F FBf16(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
}
static inline void StoreHalf(uint16_t* p, F a) {
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline I ISet(int32_t x) { return _mm512_set1_epi32(x); }
static inline I IAdd(I a, I b) { return _mm512_add_epi32(a, b); }
static inline I ISub(I a, I b) { return _mm512_sub_epi32(a, b); }
static inline I IMul(I a, I b) { return _mm512_mullo_epi32(a, b); }
static inline I IMax(I a, I b) { return _mm512_max_epi32(a, b); }
static inline I IShl23(I a) { return _mm512_slli_epi32(a, 23); }
static inline I ILoadU8(const uint8_t* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)); }
static inline I ILoadS8(const int8_t* p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)); }
static inline F FFromI(I a) { return _mm512_cvtepi32_ps(a); }
static inline I IFromF(F a) { return _mm512_cvtps_epi32(a); }
static inline F FCast(I a) { return _mm512_castsi512_ps(a); }
static inline I IAbsBits(F a) { return _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff)); }
static inline int32_t IReduceMax(I a) { return _mm512_reduce_max_epi32(a); }
static inline int32_t IReduceAdd(I a) { return _mm512_reduce_add_epi32(a); }
static inline void IStoreS8(int8_t* p, I a) { _mm_storeu_si128((__m128i*)p, _mm512_cvtsepi32_epi8(a)); }

static inline B BLoad(const uint8_t* p) { return _mm512_loadu_si512(p); }
static inline B BLow4(B a) { return _mm512_and_si512(a, _mm512_set1_epi8(15)); }
static inline B BHigh4(B a) { return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(15)); }
static inline B BOr(B a, B b) { return _mm512_or_si512(a, b); }
template <int kBit>
static inline B BBitTo4(B a) {
  const B moved =
      kBit < 4 ? _mm512_slli_epi16(a, kBit < 4 ? 4 - kBit : 0) : _mm512_srli_epi16(a, kBit < 4 ? 0 : kBit - 4);
  return _mm512_and_si512(moved, _mm512_set1_epi8(0x10));
}
template <int kField>
static inline B BPairTo4(B a) {
  const B moved = kField < 2 ? _mm512_slli_epi16(a, kField < 2 ? 4 - 2 * kField : 0)
                             : _mm512_srli_epi16(a, kField < 2 ? 0 : 2 * kField - 4);
  return _mm512_and_si512(moved, _mm512_set1_epi8(0x30));
}
template <int kBit>
static inline B BBitTo2(B a) {
  const B moved =
      kBit < 2 ? _mm512_slli_epi16(a, kBit < 2 ? 2 - kBit : 0) : _mm512_srli_epi16(a, kBit < 2 ? 0 : kBit - 2);
  return _mm512_and_si512(moved, _mm512_set1_epi8(4));
}
template <int kField>
static inline B BField2(B a) {
  return _mm512_and_si512(kField == 0 ? a : _mm512_srli_epi16(a, 2 * kField), _mm512_set1_epi8(3));
}
static inline B BTable(const uint8_t* table, B index) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128((const __m128i*)table)), index);
}

template <int kGroup>
static inline I XQuad(const int8_t* x) {
  int32_t quad;
  memcpy(&quad, x + 4 * kGroup, 4);
  return ISet(quad);
}

using S = __m512i;  // sums of products: int32 at once
static inline constexpr int ShortGroups(int) { return 8; }
static inline S SZero() { return _mm512_setzero_si512(); }
static inline S SDot(S s, B w, I x) { return _mm512_dpbusd_epi32(s, w, x); }
static inline S SDotWide(S s, B w, I x) { return _mm512_dpbusd_epi32(s, w, x); }
static inline I SFold(S s) { return s; }
static inline I SScaleLow(I pairs) { return _mm512_srai_epi32(_mm512_slli_epi32(pairs, 16), 16); }
static inline I SScaleHigh(I pairs) { return _mm512_srai_epi32(pairs, 16); }
static inline I SFoldScaled(I acc, S s, I scale) { return _mm512_add_epi32(acc, _mm512_mullo_epi32(s, scale)); }
#define RIDGE_SHORT_FOLD
static inline I SShortLow(I pairs) { return _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff)); }
static inline I SShortHigh(I pairs) { return _mm512_srli_epi32(pairs, 16); }
static inline I SFoldShort(I acc, S s, I scale) { return _mm512_dpwssd_epi32(acc, s, scale); }
static inline I ILoadPairs(const int8_t* p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)p)); }
static inline I IDotPairs(I acc, I pairs, I x) { return _mm512_dpwssd_epi32(acc, pairs, x); }
static inline void Prefetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }
static inline void PrefetchL2(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T1); }
static inline void PrefetchForWrite(const void* p) { __builtin_prefetch(p, 1); }

}  // namespace RIDGE_ISA
