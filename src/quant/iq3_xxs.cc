// IQ3_XXS: 3 bits, codebook of 256 rows of 4; layout at BlockIQ3_XXS.
#include "quant/codec.h"
#include "quant/iq3_tables.h"
#include "quant/signs.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockIQ3_XXS& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int s = 0; s < 8; ++s) {
    uint32_t word;
    std::memcpy(&word, block.scales_signs + 4 * s, sizeof(word));
    const float scale = d * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
    for (int i = 0; i < 8; ++i) {
      const uint32_t row = kGridIQ3_XXS[block.qs[8 * s + i]];
      const uint8_t signs = SignByte(word >> (7 * (i / 2)) & 0x7f);
      for (int n = 0; n < 4; ++n) {
        out[32 * s + 4 * i + n] = scale * Signed(GridValue(row, n), signs, 4 * (i % 2) + n);
      }
    }
  }
}

}  // namespace

constinit const Type kTypeIQ3_XXS = {
    TypeId::kIQ3_XXS, "IQ3_XXS", BlockIQ3_XXS::kElements, sizeof(BlockIQ3_XXS), DecodeBlocks<BlockIQ3_XXS, Decode>,
    nullptr};

}  // namespace ridge::quant
