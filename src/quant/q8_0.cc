// Q8_0: 8 bits, one scale; layout at BlockQ8_0.
#include "quant/codec.h"
#include "quant/rounding.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockQ8_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(block.qs[i]);
}

void Encode(const float* in, BlockQ8_0& block) {
  const float d = std::fabs(LargestMagnitude(in, 32)) / 127;
  const float inverse = Inverse(d);
  block.d = FloatToHalf(d);
  for (int i = 0; i < 32; ++i) block.qs[i] = static_cast<int8_t>(Quantize(in[i] * inverse, -127, 127));
}

}  // namespace

constinit const Type kTypeQ8_0 = {TypeId::kQ8_0,
                                  "Q8_0",
                                  BlockQ8_0::kElements,
                                  sizeof(BlockQ8_0),
                                  DecodeBlocks<BlockQ8_0, Decode>,
                                  EncodeBlocks<BlockQ8_0, Encode>};

}  // namespace ridge::quant
