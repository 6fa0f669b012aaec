// IQ4_XS: 16 fixed values, 8 groups of 32 with a signed scale of 6 bits each; layout at BlockIQ4_XS.
#include "quant/codec.h"
#include "quant/iq4_tables.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockIQ4_XS& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int s = 0; s < 8; ++s) {
    const int low = block.scales_l[s / 2] >> (4 * (s % 2)) & 0xf;
    const int high = block.scales_h >> (2 * s) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    const uint8_t* qs = block.qs + 16 * s;
    for (int l = 0; l < 16; ++l) {
      out[32 * s + l] = scale * static_cast<float>(kIQ4Values[qs[l] & 0xf]);
      out[32 * s + l + 16] = scale * static_cast<float>(kIQ4Values[qs[l] >> 4]);
    }
  }
}

}  // namespace

constinit const Type kTypeIQ4_XS = {
    TypeId::kIQ4_XS, "IQ4_XS", BlockIQ4_XS::kElements, sizeof(BlockIQ4_XS), DecodeBlocks<BlockIQ4_XS, Decode>, nullptr};

}  // namespace ridge::quant
