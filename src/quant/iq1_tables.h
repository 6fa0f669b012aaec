// Codebooks of the IQ1 types: which 8 values a grid index stands for.
//
//   int8_t value = TernaryValue(kGridIQ1[index], n);   // n < 8
//
// Guarantees: constant-initialized; byte n of a row is value n, -1, 0 or 1.
// Source: iq1s_grid of ggml's ggml-common.h (MIT licence), as the `gguf` Python package packs
// them.
#pragma once

#include <array>
#include <cstdint>

namespace ridge::quant {

extern const std::array<uint64_t, 2048> kGridIQ1;  // IQ1_S and IQ1_M

inline constexpr float kIQ1Offset = 0.125f;  // added to or taken from every value of a row

inline int8_t TernaryValue(uint64_t row, int n) { return static_cast<int8_t>(row >> (8 * n)); }

}  // namespace ridge::quant
