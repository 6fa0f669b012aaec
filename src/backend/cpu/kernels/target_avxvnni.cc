// The avxvnni target: AVX2 with the 8-bit dot product of AVX-VNNI. Its flags are set in src/CMakeLists.txt.
#define RIDGE_ISA ridge_avxvnni
#if defined(__x86_64__)
#include "dot_avxvnni.h"

namespace RIDGE_ISA {
constexpr int kColumns = 2;    // vectors of rows of a tile
constexpr int kMaxTokens = 4;  // tokens of the largest tile: what the registers hold
}  // namespace RIDGE_ISA

#include "table-inl.h"

RIDGE_KERNEL_TABLE(kAvxVnniKernels, "avxvnni")
#endif
