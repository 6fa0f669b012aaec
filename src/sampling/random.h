// Philox4x32-10: random numbers computed from a counter, so that a draw depends on its place and not on earlier draws.
//
//   const PhiloxBlock block = Philox(seed, position, request);
//   double u = Uniform(block[0], block[1]);  // in [0, 1)
//
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); constants and test
// vectors of the authors' Random123. Guarantees: pure functions of integers, the same on every machine.
#pragma once

#include <array>
#include <cstdint>

namespace ridge::sampling {

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock Philox(std::array<uint32_t, 2> key, PhiloxBlock counter) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

constexpr PhiloxBlock Philox(uint64_t seed, uint64_t position, uint64_t request) {
  return Philox({static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
                {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), static_cast<uint32_t>(request),
                 static_cast<uint32_t>(request >> 32)});
}

// 53 of the 64 bits as a fraction in [0, 1).
constexpr double Uniform(uint32_t high, uint32_t low) {
  return static_cast<double>(((uint64_t{high} << 32) | low) >> 11) * 0x1p-53;
}

}  // namespace ridge::sampling
