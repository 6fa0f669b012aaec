// TQ2_0: ternary, 2 bits each; layout at BlockTQ2_0.
#include "quant/codec.h"
#include "quant/rounding.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockTQ2_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int n = 0; n < 256; ++n) {
    const int q = block.qs[32 * (n / 128) + n % 32] >> (2 * (n / 32 % 4)) & 3;
    out[n] = d * static_cast<float>(q - 1);
  }
}

void Encode(const float* in, BlockTQ2_0& block) {
  const float d = std::fabs(LargestMagnitude(in, 256));
  const float inverse = Inverse(d);
  block.d = FloatToHalf(d);
  for (int n = 0; n < 256; ++n) {
    const int q = Quantize(in[n] * inverse, -1, 1) + 1;
    block.qs[32 * (n / 128) + n % 32] |= static_cast<uint8_t>(q << (2 * (n / 32 % 4)));
  }
}

}  // namespace

constinit const Type kTypeTQ2_0 = {TypeId::kTQ2_0,
                                   "TQ2_0",
                                   BlockTQ2_0::kElements,
                                   sizeof(BlockTQ2_0),
                                   DecodeBlocks<BlockTQ2_0, Decode>,
                                   EncodeBlocks<BlockTQ2_0, Encode>};

}  // namespace ridge::quant
