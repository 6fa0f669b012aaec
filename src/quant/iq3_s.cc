// IQ3_S: 3 bits, codebook of 512 rows of 4; layout at BlockIQ3_S.
#include "quant/codec.h"
#include "quant/iq3_tables.h"
#include "quant/signs.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockIQ3_S& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 64; ++i) {
    const int stored_scale = block.scales[i / 16] >> (4 * (i / 8 % 2)) & 0xf;
    const float scale = d * static_cast<float>(1 + 2 * stored_scale);
    const uint32_t row = kGridIQ3_S[block.qs[i] | (block.qh[i / 8] >> (i % 8) & 1) << 8];
    for (int n = 0; n < 4; ++n) out[4 * i + n] = scale * Signed(GridValue(row, n), block.signs[i / 2], 4 * (i % 2) + n);
  }
}

}  // namespace

constinit const Type kTypeIQ3_S = {
    TypeId::kIQ3_S, "IQ3_S", BlockIQ3_S::kElements, sizeof(BlockIQ3_S), DecodeBlocks<BlockIQ3_S, Decode>, nullptr};

}  // namespace ridge::quant
