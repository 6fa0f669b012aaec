// IQ2_XS: 2 bits, codebook of 512 rows of 8; layout at BlockIQ2_XS.
#include "quant/codec.h"
#include "quant/iq2_tables.h"
#include "quant/signs.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockIQ2_XS& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 32; ++i) {
    const float scale = d * (0.5f + static_cast<float>(block.scales[i / 4] >> (4 * (i / 2 % 2)) & 0xf)) * 0.25f;
    const uint64_t row = kGridIQ2_XS[block.qs[i] & 511];
    const uint8_t signs = SignByte(block.qs[i] >> 9);
    for (int n = 0; n < 8; ++n) out[8 * i + n] = scale * Signed(GridValue(row, n), signs, n);
  }
}

}  // namespace

constinit const Type kTypeIQ2_XS = {
    TypeId::kIQ2_XS, "IQ2_XS", BlockIQ2_XS::kElements, sizeof(BlockIQ2_XS), DecodeBlocks<BlockIQ2_XS, Decode>, nullptr};

}  // namespace ridge::quant
