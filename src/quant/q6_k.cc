// Q6_K: 6 bits, 16 groups of 16 with a signed scale of 8 bits each; layout at BlockQ6_K.
#include "quant/codec.h"
#include "quant/rounding.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockQ6_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int s = 0; s < 16; ++s) {
    const float scale = d * static_cast<float>(block.scales[s]);
    const uint8_t* ql = block.ql + 64 * (s / 8) + 16 * (s % 4);
    const uint8_t* qh = block.qh + 32 * (s / 8) + 16 * (s % 2);
    const int low_shift = 4 * (s / 4 % 2);
    const int high_shift = 2 * (s / 2 % 4);
    for (int l = 0; l < 16; ++l) {
      const int q = (ql[l] >> low_shift & 0xf) | (qh[l] >> high_shift & 3) << 4;
      out[16 * s + l] = scale * static_cast<float>(q - 32);
    }
  }
}

}  // namespace

constinit const Type kTypeQ6_K = {
    TypeId::kQ6_K, "Q6_K", BlockQ6_K::kElements, sizeof(BlockQ6_K), DecodeBlocks<BlockQ6_K, Decode>, nullptr};

}  // namespace ridge::quant
