// IQ2_XXS: 2 bits, codebook of 256 rows of 8; layout at BlockIQ2_XXS.
#include "quant/codec.h"
#include "quant/iq2_tables.h"
#include "quant/signs.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockIQ2_XXS& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int s = 0; s < 8; ++s) {
    const uint32_t word = block.qs[4 * s + 2] | static_cast<uint32_t>(block.qs[4 * s + 3]) << 16;
    const float scale = d * (0.5f + static_cast<float>(word >> 28)) * 0.25f;
    for (int j = 0; j < 4; ++j) {
      const uint64_t row = kGridIQ2_XXS[block.qs[4 * s + j / 2] >> (8 * (j % 2)) & 0xff];
      const uint8_t signs = SignByte(word >> (7 * j) & 0x7f);
      for (int n = 0; n < 8; ++n) out[32 * s + 8 * j + n] = scale * Signed(GridValue(row, n), signs, n);
    }
  }
}

}  // namespace

constinit const Type kTypeIQ2_XXS = {
    TypeId::kIQ2_XXS, "IQ2_XXS", BlockIQ2_XXS::kElements, sizeof(BlockIQ2_XXS), DecodeBlocks<BlockIQ2_XXS, Decode>,
    nullptr};

}  // namespace ridge::quant
