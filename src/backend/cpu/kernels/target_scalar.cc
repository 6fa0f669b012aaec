// The scalar target. Its flags are set in src/CMakeLists.txt.
#define RIDGE_ISA ridge_scalar

#include "simd_scalar.h"

namespace RIDGE_ISA {
constexpr int kColumns = 4;    // vectors of rows of a tile
constexpr int kMaxTokens = 4;  // tokens of the largest tile: what the registers hold
}  // namespace RIDGE_ISA

#include "table-inl.h"

RIDGE_KERNEL_TABLE(kScalarKernels, "scalar")
