// The 16 values of IQ4_NL and IQ4_XS.
//
//   float x = d * kIQ4Values[q];   // q < 16
//
// Guarantees: increasing. Source: kvalues_iq4nl of ggml's ggml-common.h.
#pragma once

#include <cstdint>

namespace ridge::quant {

inline constexpr int8_t kIQ4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

}  // namespace ridge::quant
