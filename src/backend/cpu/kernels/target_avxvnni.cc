// The avxvnni target: AVX2 with the 8-bit dot product of AVX-VNNI. Its flags are set in src/CMakeLists.txt.
#define RIDGE_ISA ridge_avxvnni
#if defined(__x86_64__)
#define RIDGE_AVX_VNNI
#include "simd_avx2.h"

namespace RIDGE_ISA {
constexpr int kMaxTokens = 4;  // tokens of the largest tile: what the registers hold
}

#include "table-inl.h"

RIDGE_KERNEL_TABLE(kAvxVnniKernels, "avxvnni")
#endif
