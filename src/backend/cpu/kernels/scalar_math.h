// Scalar helpers of the kernels. Everything here has internal linkage: each target compiles its own copy with its own flags.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-function"

static inline float FloatOf(uint32_t bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
static inline uint32_t BitsOf(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}

// IEEE binary16 to binary32, as vcvtph2ps: subnormals exact, NaN made quiet.
static inline float HalfToFloat(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
  if (exponent == 31) return FloatOf(sign | 0x7f800000 | (mantissa << 13) | (mantissa ? 0x400000 : 0));
  if (exponent != 0) return FloatOf(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float tiny = (float)mantissa * 5.9604644775390625e-8f;  // mantissa * 2^-24, exact
  return FloatOf(sign | BitsOf(tiny));
}

static inline float Bf16ToFloat(uint16_t h) { return FloatOf((uint32_t)h << 16); }

// binary32 to binary16, round to nearest even, as vcvtps2ph.
static inline uint16_t FloatToHalf(float f) {
  const uint32_t bits = BitsOf(f), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00);  // 65520 and above
  if (magnitude < 0x38800000) {                                   // below 2^-14: the sum rounds to a multiple of 2^-24
    const float sum = FloatOf(magnitude) + 0.5f;
    return (uint16_t)(sign | (BitsOf(sum) & 0x7fff));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000;
  return (uint16_t)(sign | (rounded >> 13));
}

static inline uint16_t FloatToBf16(float f) {
  const uint32_t bits = BitsOf(f);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)((bits >> 16) | 0x40);
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// As cvtps2dq: nearest even; INT32_MIN for what does not fit, NaN included.
static inline int32_t RoundToInt(float f) {
  if (!(f >= -2147483648.0f && f < 2147483648.0f)) return INT32_MIN;
  if (f > 8388608.0f || f < -8388608.0f) return (int32_t)f;
  const float magic = f < 0 ? -8388608.0f : 8388608.0f;
  volatile float sum = f + magic;  // volatile: the sum must be rounded to float here
  return (int32_t)(sum - magic);
}

// Sum of 16 lane partials in one fixed order, whatever the vector width was.
static inline float SumLanes(const float* p) {
  float a[8], b[4];
  for (int i = 0; i < 8; i++) a[i] = p[i] + p[i + 8];
  for (int i = 0; i < 4; i++) b[i] = a[i] + a[i + 4];
  return (b[0] + b[2]) + (b[1] + b[3]);
}
