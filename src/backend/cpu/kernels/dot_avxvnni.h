// AVX-VNNI's dot products for the vocabulary of simd_avx2.h: one instruction where AVX2 needs two or four, and no 16-bit sums.
#pragma once

#define RIDGE_AVX_VNNI
#include "simd_avx2.h"

#if defined( \
    RIDGE_AVX_VNNI_AS_EVEX)  // tests only: the same instructions in the coding of AVX-512 VNNI + VL, for CPUs that have only that
#define RIDGE_DPBUSD _mm256_dpbusd_epi32
#define RIDGE_DPWSSD _mm256_dpwssd_epi32
#else
#define RIDGE_DPBUSD _mm256_dpbusd_avx_epi32
#define RIDGE_DPWSSD _mm256_dpwssd_avx_epi32
#endif

namespace RIDGE_ISA {

constexpr int kWideOffset = 128;

using S = __m256i;  // sums of products: int32 at once
static inline constexpr int ShortGroups(int) { return 8; }
static inline S SZero() { return _mm256_setzero_si256(); }
static inline S SDot(S s, B w, I x) { return RIDGE_DPBUSD(s, w.v, x); }
static inline S SDotWide(S s, B w, I x) { return RIDGE_DPBUSD(s, w.v, x); }
static inline I SFold(S s) { return s; }
static inline I SScaleLow(I pairs) { return _mm256_srai_epi32(_mm256_slli_epi32(pairs, 16), 16); }
static inline I SScaleHigh(I pairs) { return _mm256_srai_epi32(pairs, 16); }
static inline I SFoldScaled(I acc, S s, I scale) { return _mm256_add_epi32(acc, _mm256_mullo_epi32(s, scale)); }
#define RIDGE_SHORT_FOLD
static inline I SShortLow(I pairs) { return _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff)); }
static inline I SShortHigh(I pairs) { return _mm256_srli_epi32(pairs, 16); }
static inline I SFoldShort(I acc, S s, I scale) { return RIDGE_DPWSSD(acc, s, scale); }
static inline I ILoadPairs(const int8_t* p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)p)); }
static inline I IDotPairs(I acc, I pairs, I x) { return RIDGE_DPWSSD(acc, pairs, x); }

}  // namespace RIDGE_ISA
