// Q5_1: 5 bits above a minimum; layout at BlockQ5_1.
#include "quant/codec.h"
#include "quant/rounding.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockQ5_1& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float m = HalfToFloat(block.m);
  for (int i = 0; i < 16; ++i) {
    const int low = (block.qs[i] & 0xf) | (block.qh[i / 8] >> (i % 8) & 1) << 4;
    const int high = block.qs[i] >> 4 | (block.qh[2 + i / 8] >> (i % 8) & 1) << 4;
    out[i] = d * static_cast<float>(low) + m;
    out[i + 16] = d * static_cast<float>(high) + m;
  }
}

void Encode(const float* in, BlockQ5_1& block) {
  const Range range = RangeOf(in, 32);
  const float d = (range.high - range.low) / 31;
  const float inverse = Inverse(d);
  block.d = FloatToHalf(d);
  block.m = FloatToHalf(range.low);
  for (int i = 0; i < 32; ++i) {
    const int q = ToInt((in[i] - range.low) * inverse + 0.5f, 0, 31);
    block.qs[i % 16] |= static_cast<uint8_t>((q & 0xf) << (i < 16 ? 0 : 4));
    block.qh[i / 8] |= static_cast<uint8_t>((q >> 4) << (i % 8));
  }
}

}  // namespace

constinit const Type kTypeQ5_1 = {TypeId::kQ5_1,
                                  "Q5_1",
                                  BlockQ5_1::kElements,
                                  sizeof(BlockQ5_1),
                                  DecodeBlocks<BlockQ5_1, Decode>,
                                  EncodeBlocks<BlockQ5_1, Encode>};

}  // namespace ridge::quant
