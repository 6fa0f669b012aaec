// Q2_K: 2 bits, 16 groups of 16 with a scale and a minimum of 4 bits each; layout at BlockQ2_K.
#include "quant/codec.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockQ2_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  for (int s = 0; s < 16; ++s) {
    const float scale = d * static_cast<float>(block.scales[s] & 0xf);
    const float minimum = dmin * static_cast<float>(block.scales[s] >> 4);
    const uint8_t* qs = block.qs + 32 * (s / 8) + 16 * (s % 2);
    const int shift = 2 * (s / 2 % 4);
    for (int l = 0; l < 16; ++l) out[16 * s + l] = scale * static_cast<float>(qs[l] >> shift & 3) - minimum;
  }
}

}  // namespace

constinit const Type kTypeQ2_K = {
    TypeId::kQ2_K, "Q2_K", BlockQ2_K::kElements, sizeof(BlockQ2_K), DecodeBlocks<BlockQ2_K, Decode>, nullptr};

}  // namespace ridge::quant
