// Q4_0: 4 bits, symmetric about 8; layout at BlockQ4_0.
#include "quant/codec.h"
#include "quant/rounding.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockQ4_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((block.qs[i] & 0xf) - 8);
    out[i + 16] = d * static_cast<float>((block.qs[i] >> 4) - 8);
  }
}

// The element of largest magnitude becomes exactly -8, so that the longer half of the range is used.
void Encode(const float* in, BlockQ4_0& block) {
  const float d = LargestMagnitude(in, 32) / -8;
  const float inverse = Inverse(d);
  block.d = FloatToHalf(d);
  for (int i = 0; i < 16; ++i) {
    const int low = ToInt(in[i] * inverse + 8.5f, 0, 15);
    const int high = ToInt(in[i + 16] * inverse + 8.5f, 0, 15);
    block.qs[i] = static_cast<uint8_t>(low | high << 4);
  }
}

}  // namespace

constinit const Type kTypeQ4_0 = {TypeId::kQ4_0,
                                  "Q4_0",
                                  BlockQ4_0::kElements,
                                  sizeof(BlockQ4_0),
                                  DecodeBlocks<BlockQ4_0, Decode>,
                                  EncodeBlocks<BlockQ4_0, Encode>};

}  // namespace ridge::quant
