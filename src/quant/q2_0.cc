// Q2_0: 2 bits, values -1, 0, 1 and 2 times the scale; layout at BlockQ2_0.
#include "quant/codec.h"
#include "quant/rounding.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockQ2_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int n = 0; n < 64; ++n) out[n] = d * static_cast<float>((block.qs[n / 4] >> (2 * (n % 4)) & 3) - 1);
}

void Encode(const float* in, BlockQ2_0& block) {
  const float d = std::fabs(LargestMagnitude(in, 64));
  const float inverse = Inverse(d);
  block.d = FloatToHalf(d);
  for (int n = 0; n < 64; ++n) {
    const int q = Quantize(in[n] * inverse, -1, 2) + 1;
    block.qs[n / 4] |= static_cast<uint8_t>(q << (2 * (n % 4)));
  }
}

}  // namespace

constinit const Type kTypeQ2_0 = {TypeId::kQ2_0,
                                  "Q2_0",
                                  BlockQ2_0::kElements,
                                  sizeof(BlockQ2_0),
                                  DecodeBlocks<BlockQ2_0, Decode>,
                                  EncodeBlocks<BlockQ2_0, Encode>};

}  // namespace ridge::quant
