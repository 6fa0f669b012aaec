// Q4_1: 4 bits above a minimum; layout at BlockQ4_1.
#include "quant/codec.h"
#include "quant/rounding.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockQ4_1& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float m = HalfToFloat(block.m);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(block.qs[i] & 0xf) + m;
    out[i + 16] = d * static_cast<float>(block.qs[i] >> 4) + m;
  }
}

void Encode(const float* in, BlockQ4_1& block) {
  const Range range = RangeOf(in, 32);
  const float d = (range.high - range.low) / 15;
  const float inverse = Inverse(d);
  block.d = FloatToHalf(d);
  block.m = FloatToHalf(range.low);
  for (int i = 0; i < 16; ++i) {
    const int low = ToInt((in[i] - range.low) * inverse + 0.5f, 0, 15);
    const int high = ToInt((in[i + 16] - range.low) * inverse + 0.5f, 0, 15);
    block.qs[i] = static_cast<uint8_t>(low | high << 4);
  }
}

}  // namespace

constinit const Type kTypeQ4_1 = {TypeId::kQ4_1,
                                  "Q4_1",
                                  BlockQ4_1::kElements,
                                  sizeof(BlockQ4_1),
                                  DecodeBlocks<BlockQ4_1, Decode>,
                                  EncodeBlocks<BlockQ4_1, Encode>};

}  // namespace ridge::quant
