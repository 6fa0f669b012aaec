// The neon-i8mm target: Arm NEON with I8MM, whose usdot multiplies unsigned weights by signed activations. Its flags are set in src/CMakeLists.txt.
#define RIDGE_ISA ridge_neon_i8mm
#if defined(__aarch64__)
#define RIDGE_I8MM
#include "simd_neon.h"

namespace RIDGE_ISA {
constexpr int kColumns = 4;    // vectors of rows of a tile
constexpr int kMaxTokens = 4;  // tokens of the largest tile: what the registers hold
}  // namespace RIDGE_ISA

#include "table-inl.h"

RIDGE_KERNEL_TABLE(kNeonI8mmKernels, "neon-i8mm")
#endif
