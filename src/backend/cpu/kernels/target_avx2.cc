// The avx2 target. Its flags are set in src/CMakeLists.txt.
#define RIDGE_ISA ridge_avx2
#if defined(__x86_64__)
#include "simd_avx2.h"

namespace RIDGE_ISA {
constexpr int kColumns = 2;    // vectors of rows of a tile
constexpr int kMaxTokens = 4;  // tokens of the largest tile: what the registers hold
}  // namespace RIDGE_ISA

#include "table-inl.h"

RIDGE_KERNEL_TABLE(kAvx2Kernels, "avx2")
#endif
