// The vector vocabulary of the kernels, spelled in plain C++: the reference that every other target must equal bit for bit.
// kLanes float or int32 lanes; B has 4 bytes per lane. See simd_avx512.h for the same names as instructions.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "scalar_math.h"

namespace RIDGE_ISA {

constexpr int kLanes = 4;
// SDotWide's result holds kWideOffset * (sum of x) too much: the quants are stored with 128 added.
constexpr int kWideOffset = 128;

struct F {
  float v[kLanes];
};
struct I {
  int32_t v[kLanes];
};
struct B {
  uint8_t v[4 * kLanes];
};

#define RIDGE_EACH for (int i = 0; i < kLanes; i++)

static inline F FSet(float x) {
  F r;
  RIDGE_EACH r.v[i] = x;
  return r;
}
static inline F FLoad(const float* p) {
  F r;
  memcpy(r.v, p, sizeof(r.v));
  return r;
}
static inline void FStore(float* p, F a) { memcpy(p, a.v, sizeof(a.v)); }
static inline F FAdd(F a, F b) {
  RIDGE_EACH a.v[i] += b.v[i];
  return a;
}
static inline F FSub(F a, F b) {
  RIDGE_EACH a.v[i] -= b.v[i];
  return a;
}
static inline F FMul(F a, F b) {
  RIDGE_EACH a.v[i] *= b.v[i];
  return a;
}
static inline F FDiv(F a, F b) {
  RIDGE_EACH a.v[i] /= b.v[i];
  return a;
}
static inline F FMax(F a, F b) {
  RIDGE_EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}
static inline F FMin(F a, F b) {
  RIDGE_EACH a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return a;
}
static inline F Fma(F a, F b, F c) {
  RIDGE_EACH c.v[i] = fmaf(a.v[i], b.v[i], c.v[i]);
  return c;
}
// x < bound ? 0 : value
static inline F FZeroBelow(F x, F bound, F value) {
  RIDGE_EACH value.v[i] = x.v[i] < bound.v[i] ? 0.0f : value.v[i];
  return value;
}
static inline F FHalf(const uint16_t* p) {
  F r;
  RIDGE_EACH r.v[i] = HalfToFloat(p[i]);
  return r;
}
static inline F FBf16(const uint16_t* p) {
  F r;
  RIDGE_EACH r.v[i] = Bf16ToFloat(p[i]);
  return r;
}
static inline void StoreHalf(uint16_t* p, F a) { RIDGE_EACH p[i] = FloatToHalf(a.v[i]); }

static inline I ISet(int32_t x) {
  I r;
  RIDGE_EACH r.v[i] = x;
  return r;
}
static inline I IAdd(I a, I b) {
  RIDGE_EACH a.v[i] = (int32_t)((uint32_t)a.v[i] + (uint32_t)b.v[i]);
  return a;
}
static inline I ISub(I a, I b) {
  RIDGE_EACH a.v[i] = (int32_t)((uint32_t)a.v[i] - (uint32_t)b.v[i]);
  return a;
}
static inline I IMul(I a, I b) {
  RIDGE_EACH a.v[i] = (int32_t)((uint32_t)a.v[i] * (uint32_t)b.v[i]);
  return a;
}
static inline I IMax(I a, I b) {
  RIDGE_EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}
static inline I IShl23(I a) {
  RIDGE_EACH a.v[i] = (int32_t)((uint32_t)a.v[i] << 23);
  return a;
}
static inline I ILoadU8(const uint8_t* p) {
  I r;
  RIDGE_EACH r.v[i] = p[i];
  return r;
}
static inline I ILoadS8(const int8_t* p) {
  I r;
  RIDGE_EACH r.v[i] = p[i];
  return r;
}
static inline F FFromI(I a) {
  F r;
  RIDGE_EACH r.v[i] = (float)a.v[i];
  return r;
}
static inline I IFromF(F a) {
  I r;
  RIDGE_EACH r.v[i] = RoundToInt(a.v[i]);
  return r;
}
static inline F FCast(I a) {
  F r;
  memcpy(r.v, a.v, sizeof(r.v));
  return r;
}
static inline I IAbsBits(F a) {
  I r;
  memcpy(r.v, a.v, sizeof(r.v));
  RIDGE_EACH r.v[i] &= 0x7fffffff;
  return r;
}
static inline int32_t IReduceMax(I a) {
  int32_t m = a.v[0];
  RIDGE_EACH m = m > a.v[i] ? m : a.v[i];
  return m;
}
static inline int32_t IReduceAdd(I a) {
  int32_t s = 0;
  RIDGE_EACH s += a.v[i];
  return s;
}
static inline void IStoreS8(int8_t* p, I a) {
  RIDGE_EACH p[i] = (int8_t)(a.v[i] > 127 ? 127 : a.v[i] < -128 ? -128 : a.v[i]);
}

static inline B BLoad(const uint8_t* p) {
  B r;
  memcpy(r.v, p, sizeof(r.v));
  return r;
}
#undef RIDGE_EACH
#define RIDGE_EACH for (int i = 0; i < 4 * kLanes; i++)
static inline B BLow4(B a) {
  RIDGE_EACH a.v[i] &= 15;
  return a;
}
static inline B BHigh4(B a) {
  RIDGE_EACH a.v[i] >>= 4;
  return a;
}
static inline B BOr(B a, B b) {
  RIDGE_EACH a.v[i] |= b.v[i];
  return a;
}
// Bit kBit of every byte, moved to bit 4.
template <int kBit>
static inline B BBitTo4(B a) {
  RIDGE_EACH a.v[i] = (uint8_t)(((a.v[i] >> kBit) & 1) << 4);
  return a;
}
// Bits 2 kField and 2 kField + 1 of every byte, moved to bits 4 and 5.
template <int kField>
static inline B BPairTo4(B a) {
  RIDGE_EACH a.v[i] = (uint8_t)(((a.v[i] >> (2 * kField)) & 3) << 4);
  return a;
}
// Bit kBit of every byte, moved to bit 2.
template <int kBit>
static inline B BBitTo2(B a) {
  RIDGE_EACH a.v[i] = (uint8_t)(((a.v[i] >> kBit) & 1) << 2);
  return a;
}
// Bits 2 kField and 2 kField + 1 of every byte.
template <int kField>
static inline B BField2(B a) {
  RIDGE_EACH a.v[i] = (a.v[i] >> (2 * kField)) & 3;
  return a;
}
// table[index], index below 16; table is 16-byte aligned.
static inline B BTable(const uint8_t* table, B index) {
  RIDGE_EACH index.v[i] = table[index.v[i] & 15];
  return index;
}
#undef RIDGE_EACH
#define RIDGE_EACH for (int i = 0; i < kLanes; i++)

// Group kGroup of a token, four quants, in every lane: what SDot and SDotWide multiply with.
template <int kGroup>
static inline I XQuad(const int8_t* x) {
  int32_t quad;
  memcpy(&quad, x + 4 * kGroup, 4);
  return ISet(quad);
}

// S: sums of products of bytes, as short as the target likes. It holds ShortGroups(max) groups of quants up to `max`; SFold makes
// int32 of it, SFoldScaled adds it times an integer scale, which SScaleLow or SScaleHigh takes out of a pair. Targets with RIDGE_SHORT_FOLD do
// the same in one instruction for sums that fit 16 bits: SFoldShort, SShortLow, SShortHigh.
using S = I;
static inline constexpr int ShortGroups(int) { return 8; }
static inline S SZero() { return ISet(0); }
// s[lane] += sum of the lane's 4 bytes w (unsigned) times the 4 bytes of x (signed, the same in all lanes).
static inline S SDot(S s, B w, I x) {
  RIDGE_EACH {
    int8_t y[4];
    memcpy(y, &x.v[i], 4);
    s.v[i] += w.v[4 * i] * y[0] + w.v[4 * i + 1] * y[1] + w.v[4 * i + 2] * y[2] + w.v[4 * i + 3] * y[3];
  }
  return s;
}
static inline S SDotWide(S s, B w, I x) { return SDot(s, w, x); }  // w up to 255
static inline I SFold(S s) { return s; }
static inline I SScaleLow(I pairs) {
  RIDGE_EACH pairs.v[i] = (int16_t)pairs.v[i];
  return pairs;
}
static inline I SScaleHigh(I pairs) {
  RIDGE_EACH pairs.v[i] = pairs.v[i] >> 16;
  return pairs;
}
static inline I SFoldScaled(I acc, S s, I scale) { return IAdd(acc, IMul(s, scale)); }
// Two signed bytes a lane as 16-bit halves, the first in the lower one.
static inline I ILoadPairs(const int8_t* p) {
  I r;
  RIDGE_EACH r.v[i] = (int32_t)((uint32_t)(uint16_t)p[2 * i] | (uint32_t)(uint16_t)p[2 * i + 1] << 16);
  return r;
}
// acc[lane] += the two 16-bit halves of pairs times those of x.
static inline I IDotPairs(I acc, I pairs, I x) {
  RIDGE_EACH acc.v[i] += (int16_t)pairs.v[i] * (int16_t)x.v[i] + (pairs.v[i] >> 16) * (x.v[i] >> 16);
  return acc;
}
#undef RIDGE_EACH
static inline void Prefetch(const void*) {}
static inline void PrefetchL2(const void*) {}
static inline void PrefetchForWrite(const void*) {}

}  // namespace RIDGE_ISA
