// Codebooks of the IQ2 types: which 8 values a grid index stands for.
//
//   uint8_t value = GridValue(kGridIQ2_XXS[index], n);   // n < 8
//
// Guarantees: constant-initialized; byte n of a row is value n, a magnitude of 8, 25 or 43.
// Source: iq2xxs_grid, iq2xs_grid, iq2s_grid of ggml's ggml-common.h (MIT licence), as the `gguf` Python package packs
// them.
#pragma once

#include <array>
#include <cstdint>

namespace ridge::quant {

extern const std::array<uint64_t, 256> kGridIQ2_XXS;  // IQ2_XXS
extern const std::array<uint64_t, 512> kGridIQ2_XS;   // IQ2_XS
extern const std::array<uint64_t, 1024> kGridIQ2_S;   // IQ2_S

inline uint8_t GridValue(uint64_t row, int n) { return static_cast<uint8_t>(row >> (8 * n)); }

}  // namespace ridge::quant
