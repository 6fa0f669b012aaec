// Arm NEON with the 8-bit dot product (Armv8.2): 4 lanes, so a panel is read in four passes; the names are explained in simd_scalar.h.
// target_neon_i8mm.cc defines RIDGE_I8MM: usdot takes unsigned weights as they are, where sdot needs the 128 taken off.
#pragma once

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#include "scalar_math.h"

namespace RIDGE_ISA {

constexpr int kLanes = 4;
#if defined(RIDGE_I8MM)
constexpr int kWideOffset = 128;
#else
constexpr int kWideOffset = 0;  // SDotWide takes the 128 off itself: sdot's weights are signed
#endif

using F = float32x4_t;
using I = int32x4_t;
using B = uint8x16_t;

static inline F FSet(float x) { return vdupq_n_f32(x); }
static inline F FLoad(const float* p) { return vld1q_f32(p); }
static inline void FStore(float* p, F a) { vst1q_f32(p, a); }
static inline F FAdd(F a, F b) { return vaddq_f32(a, b); }
static inline F FSub(F a, F b) { return vsubq_f32(a, b); }
static inline F FMul(F a, F b) { return vmulq_f32(a, b); }
static inline F FDiv(F a, F b) { return vdivq_f32(a, b); }
// Not fmax and fmin: those prefer the number to a NaN and +0 to -0; the contract is a > b ? a : b.
static inline F FMax(F a, F b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
static inline F FMin(F a, F b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
static inline F Fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
static inline F FZeroBelow(F x, F bound, F value) {
  return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(value), vcltq_f32(x, bound)));
}
static inline F FHalf(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
static inline F FBf16(const uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
static inline void StoreHalf(uint16_t* p, F a) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a))); }

static inline I ISet(int32_t x) { return vdupq_n_s32(x); }
static inline I IAdd(I a, I b) { return vaddq_s32(a, b); }
static inline I ISub(I a, I b) { return vsubq_s32(a, b); }
static inline I IMul(I a, I b) { return vmulq_s32(a, b); }
static inline I IMax(I a, I b) { return vmaxq_s32(a, b); }
static inline I IShl23(I a) { return vshlq_n_s32(a, 23); }
static inline uint32_t Word(const void* p) {
  uint32_t x;
  memcpy(&x, p, 4);
  return x;
}
static inline I ILoadU8(const uint8_t* p) {
  const uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(Word(p))));
  return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(wide)));
}
static inline I ILoadS8(const int8_t* p) {
  return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(Word(p))))));
}
static inline F FFromI(I a) { return vcvtq_f32_s32(a); }
// fcvtns saturates and makes 0 of a NaN; the contract is x86's INT32_MIN for all that does not fit.
static inline I IFromF(F a) {
  return vbslq_s32(vcltq_f32(a, vdupq_n_f32(2147483648.0f)), vcvtnq_s32_f32(a), vdupq_n_s32(INT32_MIN));
}
static inline F FCast(I a) { return vreinterpretq_f32_s32(a); }
static inline I IAbsBits(F a) { return vandq_s32(vreinterpretq_s32_f32(a), vdupq_n_s32(0x7fffffff)); }
static inline int32_t IReduceMax(I a) { return vmaxvq_s32(a); }
static inline int32_t IReduceAdd(I a) { return vaddvq_s32(a); }
static inline void IStoreS8(int8_t* p, I a) {
  const int16x4_t half = vqmovn_s32(a);
  const uint32_t bytes = vget_lane_u32(vreinterpret_u32_s8(vqmovn_s16(vcombine_s16(half, half))), 0);
  memcpy(p, &bytes, 4);
}

static inline B BLoad(const uint8_t* p) { return vld1q_u8(p); }
static inline B BLow4(B a) { return vandq_u8(a, vdupq_n_u8(15)); }
static inline B BHigh4(B a) { return vshrq_n_u8(a, 4); }
static inline B BOr(B a, B b) { return vorrq_u8(a, b); }
template <int kBit>
static inline B BBitTo4(B a) {
  if constexpr (kBit < 4)
    return vandq_u8(vshlq_n_u8(a, 4 - kBit), vdupq_n_u8(0x10));
  else if constexpr (kBit > 4)
    return vandq_u8(vshrq_n_u8(a, kBit - 4), vdupq_n_u8(0x10));
  else
    return vandq_u8(a, vdupq_n_u8(0x10));
}
template <int kField>
static inline B BPairTo4(B a) {
  if constexpr (kField < 2)
    return vandq_u8(vshlq_n_u8(a, 4 - 2 * kField), vdupq_n_u8(0x30));
  else if constexpr (kField > 2)
    return vandq_u8(vshrq_n_u8(a, 2), vdupq_n_u8(0x30));
  else
    return vandq_u8(a, vdupq_n_u8(0x30));
}
template <int kBit>
static inline B BBitTo2(B a) {
  if constexpr (kBit < 2)
    return vandq_u8(vshlq_n_u8(a, 2 - kBit), vdupq_n_u8(4));
  else if constexpr (kBit > 2)
    return vandq_u8(vshrq_n_u8(a, kBit - 2), vdupq_n_u8(4));
  else
    return vandq_u8(a, vdupq_n_u8(4));
}
template <int kField>
static inline B BField2(B a) {
  if constexpr (kField == 0)
    return vandq_u8(a, vdupq_n_u8(3));
  else if constexpr (kField == 3)
    return vshrq_n_u8(a, 6);
  else
    return vandq_u8(vshrq_n_u8(a, 2 * kField), vdupq_n_u8(3));
}
static inline B BTable(const uint8_t* table, B index) { return vqtbl1q_u8(vld1q_u8(table), index); }

using S = int32x4_t;  // sums of products: int32 at once
static inline constexpr int ShortGroups(int) { return 8; }
static inline S SZero() { return vdupq_n_s32(0); }
// Four groups of a token in one register, of which a dot product names one: no broadcast.
template <int kGroup>
struct X {
  int8x16_t v;
};
template <int kGroup>
static inline X<kGroup> XQuad(const int8_t* x) {
  return {vld1q_s8(x + 16 * (kGroup / 4))};
}
#if defined(RIDGE_I8MM)
static inline S SDot(S s, B w, I x) { return vusdotq_s32(s, w, vreinterpretq_s8_s32(x)); }
static inline S SDotWide(S s, B w, I x) { return SDot(s, w, x); }
template <int kGroup>
static inline S SDot(S s, B w, X<kGroup> x) {
  return vusdotq_laneq_s32(s, w, x.v, kGroup % 4);
}
template <int kGroup>
static inline S SDotWide(S s, B w, X<kGroup> x) {
  return SDot(s, w, x);
}
#else
static inline S SDot(S s, B w, I x) { return vdotq_s32(s, vreinterpretq_s8_u8(w), vreinterpretq_s8_s32(x)); }
static inline S SDotWide(S s, B w, I x) { return SDot(s, veorq_u8(w, vdupq_n_u8(0x80)), x); }
template <int kGroup>
static inline S SDot(S s, B w, X<kGroup> x) {
  return vdotq_laneq_s32(s, vreinterpretq_s8_u8(w), x.v, kGroup % 4);
}
template <int kGroup>
static inline S SDotWide(S s, B w, X<kGroup> x) {
  return SDot(s, veorq_u8(w, vdupq_n_u8(0x80)), x);
}
#endif
static inline I SFold(S s) { return s; }
static inline I SScaleLow(I pairs) { return vshrq_n_s32(vshlq_n_s32(pairs, 16), 16); }
static inline I SScaleHigh(I pairs) { return vshrq_n_s32(pairs, 16); }
static inline I SFoldScaled(I acc, S s, I scale) { return vmlaq_s32(acc, s, scale); }
static inline I ILoadPairs(const int8_t* p) { return vreinterpretq_s32_s16(vmovl_s8(vld1_s8(p))); }
// NEON has no multiply-add of neighbouring 16-bit pairs: two long products, added pairwise.
static inline I IDotPairs(I acc, I pairs, I x) {
  const int16x8_t a = vreinterpretq_s16_s32(pairs), b = vreinterpretq_s16_s32(x);
  const int32x4_t low = vmull_s16(vget_low_s16(a), vget_low_s16(b)), high = vmull_high_s16(a, b);
  return vaddq_s32(acc, vpaddq_s32(low, high));
}

static inline void Prefetch(const void* p) { __builtin_prefetch(p); }
static inline void PrefetchL2(const void* p) { __builtin_prefetch(p, 0, 2); }
static inline void PrefetchForWrite(const void* p) { __builtin_prefetch(p, 1); }

}  // namespace RIDGE_ISA
