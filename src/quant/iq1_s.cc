// IQ1_S: ternary codebook of 2048 rows of 8 with an offset; layout at BlockIQ1_S.
#include "quant/codec.h"
#include "quant/iq1_tables.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockIQ1_S& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int s = 0; s < 8; ++s) {
    const int qh = block.qh[s];
    const float scale = d * static_cast<float>(1 + 2 * (qh >> 12 & 7));
    const float offset = (qh & 0x8000) != 0 ? -kIQ1Offset : kIQ1Offset;
    for (int j = 0; j < 4; ++j) {
      const uint64_t row = kGridIQ1[block.qs[4 * s + j] | (qh >> (3 * j) & 7) << 8];
      for (int n = 0; n < 8; ++n) out[32 * s + 8 * j + n] = scale * (static_cast<float>(TernaryValue(row, n)) + offset);
    }
  }
}

}  // namespace

constinit const Type kTypeIQ1_S = {
    TypeId::kIQ1_S, "IQ1_S", BlockIQ1_S::kElements, sizeof(BlockIQ1_S), DecodeBlocks<BlockIQ1_S, Decode>, nullptr};

}  // namespace ridge::quant
