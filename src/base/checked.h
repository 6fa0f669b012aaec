// Arithmetic on sizes that come from a file: no result wraps around.
//
//   std::optional<uint64_t> bytes = CheckedMul(rows, row_bytes);
//   if (!bytes) return Fail(Code::kInvalidData, "tensor is too large");
//
// Guarantees: std::nullopt exactly where the true result does not fit 64 bits.
#pragma once

#include <cstdint>
#include <optional>

namespace ridge {

inline std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline std::optional<uint64_t> CheckedMul(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// The smallest multiple of `unit` (not 0) that is not below `value`.
inline std::optional<uint64_t> CheckedRoundUp(uint64_t value, uint64_t unit) {
  const uint64_t rest = value % unit;
  return rest == 0 ? std::optional<uint64_t>(value) : CheckedAdd(value, unit - rest);
}

}  // namespace ridge
