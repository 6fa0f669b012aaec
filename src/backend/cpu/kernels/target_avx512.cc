// The avx512 target. Its flags are set in src/CMakeLists.txt.
#define RIDGE_ISA ridge_avx512
#if defined(__x86_64__)
#include "simd_avx512.h"

namespace RIDGE_ISA {
constexpr int kColumns = 2;    // vectors of rows of a tile
constexpr int kMaxTokens = 8;  // tokens of the largest tile: what the registers hold
}  // namespace RIDGE_ISA

#include "table-inl.h"

RIDGE_KERNEL_TABLE(kAvx512Kernels, "avx512")
#endif
