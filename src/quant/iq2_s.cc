// IQ2_S: 2 bits, codebook of 1024 rows of 8; layout at BlockIQ2_S.
#include "quant/codec.h"
#include "quant/iq2_tables.h"
#include "quant/signs.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockIQ2_S& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 32; ++i) {
    const float scale = d * (0.5f + static_cast<float>(block.scales[i / 4] >> (4 * (i / 2 % 2)) & 0xf)) * 0.25f;
    const uint64_t row = kGridIQ2_S[block.qs[i] | (block.qh[i / 4] >> (2 * (i % 4)) & 3) << 8];
    for (int n = 0; n < 8; ++n) out[8 * i + n] = scale * Signed(GridValue(row, n), block.signs[i], n);
  }
}

}  // namespace

constinit const Type kTypeIQ2_S = {
    TypeId::kIQ2_S, "IQ2_S", BlockIQ2_S::kElements, sizeof(BlockIQ2_S), DecodeBlocks<BlockIQ2_S, Decode>, nullptr};

}  // namespace ridge::quant
