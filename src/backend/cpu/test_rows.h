// Random weight rows of any tensor type, for tests.
//
//   std::vector<std::byte> rows = TestRows(quant::Get(quant::TypeId::kIQ2_XS), 16 * 512, 7);
//
// Guarantee: the same seed gives the same bytes; scales are finite, so that no value is. Types without an encoder (I types) get random
// quants and a scale of ordinary size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "quant/quant.h"

namespace ridge::cpu {

inline std::vector<std::byte> TestRows(const quant::Type& type, size_t n_values, uint32_t seed) {
  std::mt19937 rng(seed);
  const size_t n_blocks = n_values / type.block_elements;
  std::vector<std::byte> rows(n_blocks * type.block_bytes);
  if (type.encode != nullptr) {
    std::normal_distribution<float> normal(0, 0.05f);
    std::vector<float> values(n_values);
    for (float& v : values) v = normal(rng);
    type.encode(values.data(), rows.data(), n_blocks);
    return rows;
  }
  for (std::byte& b : rows) b = static_cast<std::byte>(rng());
  for (size_t i = 0; i < n_blocks; i++) {
    std::byte* block = rows.data() + i * type.block_bytes;
    const uint16_t d = static_cast<uint16_t>(0x1400 + (rng() & 0x3ff));  // 2^-10 .. 2^-9
    if (type.id != quant::TypeId::kIQ1_M) {
      std::memcpy(block, &d, sizeof d);
      continue;
    }
    for (int k = 0; k < 4; k++) {  // d in the upper nibbles of the four words of scales
      std::byte& upper = block[49 + 2 * k];
      upper = (upper & std::byte{0x0f}) | static_cast<std::byte>((d >> (4 * k) & 15) << 4);
    }
  }
  return rows;
}

}  // namespace ridge::cpu
