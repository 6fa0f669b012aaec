// The neon target: Armv8.2 with the 8-bit dot product (sdot). Its flags are set in src/CMakeLists.txt.
#define RIDGE_ISA ridge_neon
#if defined(__aarch64__)
#include "simd_neon.h"

namespace RIDGE_ISA {
constexpr int kColumns = 4;    // vectors of rows of a tile
constexpr int kMaxTokens = 4;  // tokens of the largest tile: what the registers hold
}  // namespace RIDGE_ISA

#include "table-inl.h"

RIDGE_KERNEL_TABLE(kNeonKernels, "neon")
#endif
