// Codebooks of the IQ3 types: which 4 values a grid index stands for.
//
//   uint8_t value = GridValue(kGridIQ3_XXS[index], n);   // n < 4
//
// Guarantees: constant-initialized; byte n of a row is value n, a magnitude from 1 to 62.
// Source: iq3xxs_grid, iq3s_grid of ggml's ggml-common.h (MIT licence), as the `gguf` Python package packs
// them.
#pragma once

#include <array>
#include <cstdint>

namespace ridge::quant {

extern const std::array<uint32_t, 256> kGridIQ3_XXS;  // IQ3_XXS
extern const std::array<uint32_t, 512> kGridIQ3_S;    // IQ3_S

inline uint8_t GridValue(uint32_t row, int n) { return static_cast<uint8_t>(row >> (8 * n)); }

}  // namespace ridge::quant
