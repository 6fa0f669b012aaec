// Q6_K: 6 bits, 16 groups of 16 with a signed scale of 8 bits each; layout at BlockQ6_K.
#include "quant/codec.h"
#include "quant/rounding.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockQ6_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int n = 0; n < 256; ++n) {
    const int half = n / 128;
    const int low = block.ql[64 * half + n % 64] >> (4 * (n / 64 % 2)) & 0xf;
    const int high = block.qh[32 * half + n % 32] >> (2 * (n / 32 % 4)) & 3;
    const float scale = d * static_cast<float>(block.scales[n / 16]);
    out[n] = scale * static_cast<float>((low | high << 4) - 32);
  }
}

}  // namespace

constinit const Type kTypeQ6_K = {
    TypeId::kQ6_K, "Q6_K", BlockQ6_K::kElements, sizeof(BlockQ6_K), DecodeBlocks<BlockQ6_K, Decode>, nullptr};

}  // namespace ridge::quant
