// Signs of a codebook group: one bit an element, set for negative.
//
//   uint8_t signs = SignByte(bits);                    // of the 7 stored bits
//   out[n] = scale * Signed(value, signs, n);
//
// Guarantees: every table of the IQ2_XXS, IQ2_XS and IQ3_XXS signs is this parity rule (ksigns in ggml-common.h).
#pragma once

#include <bit>
#include <cstdint>

namespace ridge::quant {

// Bit 7 makes the number of negatives even.
inline uint8_t SignByte(uint32_t seven_bits) {
  return static_cast<uint8_t>(seven_bits | (std::popcount(seven_bits) & 1u) << 7);
}

inline float Signed(int value, uint8_t signs, int n) {
  return static_cast<float>((signs >> n & 1) != 0 ? -value : value);
}

}  // namespace ridge::quant
