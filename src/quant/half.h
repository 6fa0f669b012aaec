// Half and bfloat16 bits to float and back, in integer arithmetic: the same bits on every machine, with or without
// F16C.
//
//   float d = quant::HalfToFloat(block.d);
//   uint16_t bits = quant::FloatToHalf(0.1f);  // 0x2e66
//
// Guarantees: to float exact, NaN payload included (numpy's bits; F16C would make a NaN quiet). To 16 bits round to
// nearest even, overflow becomes infinity, a NaN stays a NaN and becomes quiet. Thread-safe.
#pragma once

#include <cstdint>

namespace ridge::quant {

inline float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7fff;
  uint32_t result;
  if (magnitude >= 0x7c00) {  // infinity, NaN
    result = 0x7f800000 | (magnitude & 0x3ff) << 13;
  } else if (magnitude >= 0x0400) {
    result = (magnitude << 13) + 0x38000000;  // exponent bias 15 -> 127
  } else {                                    // subnormal: a whole number of 2^-24
    result = __builtin_bit_cast(uint32_t, static_cast<float>(magnitude) * 0x1p-24f);
  }
  return __builtin_bit_cast(float, sign | result);
}

inline uint16_t FloatToHalf(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t result;
  if (magnitude > 0x7f800000) {
    result = 0x7e00 | (magnitude >> 13 & 0x3ff);
  } else if (magnitude >= 0x477ff000) {  // 65520, from where the nearest half is infinity
    result = 0x7c00;
  } else if (magnitude >= 0x38800000) {  // 2^-14, the smallest normal half
    const uint32_t rebased = magnitude - 0x38000000;
    result = (rebased + 0xfff + (rebased >> 13 & 1)) >> 13;
  } else {  // one unit in the last place of [0.5, 1) is 2^-24, a half's subnormal step: the addition rounds
    result = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, magnitude) + 0.5f) - 0x3f000000;
  }
  return static_cast<uint16_t>(sign | result);
}

inline float Bf16ToFloat(uint16_t bits) { return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16); }

inline uint16_t FloatToBf16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace ridge::quant
