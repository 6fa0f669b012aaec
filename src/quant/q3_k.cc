// Q3_K: 3 bits, 16 groups of 16 with a signed scale of 6 bits each; layout at BlockQ3_K.
#include "quant/codec.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockQ3_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int s = 0; s < 16; ++s) {
    const int low = block.scales[s % 8] >> (4 * (s / 8)) & 0xf;
    const int high = block.scales[8 + s % 4] >> (2 * (s / 4)) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    const uint8_t* qs = block.qs + 32 * (s / 8) + 16 * (s % 2);
    const uint8_t* hmask = block.hmask + 16 * (s % 2);
    const int shift = 2 * (s / 2 % 4);
    for (int l = 0; l < 16; ++l) {
      const int q = (qs[l] >> shift & 3) | (hmask[l] >> (s / 2) & 1) << 2;
      out[16 * s + l] = scale * static_cast<float>(q - 4);
    }
  }
}

}  // namespace

constinit const Type kTypeQ3_K = {
    TypeId::kQ3_K, "Q3_K", BlockQ3_K::kElements, sizeof(BlockQ3_K), DecodeBlocks<BlockQ3_K, Decode>, nullptr};

}  // namespace ridge::quant
