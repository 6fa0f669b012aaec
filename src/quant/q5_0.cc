// Q5_0: 5 bits, symmetric about 16; layout at BlockQ5_0.
#include "quant/codec.h"
#include "quant/rounding.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockQ5_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 16; ++i) {
    const int low = (block.qs[i] & 0xf) | (block.qh[i / 8] >> (i % 8) & 1) << 4;
    const int high = block.qs[i] >> 4 | (block.qh[2 + i / 8] >> (i % 8) & 1) << 4;
    out[i] = d * static_cast<float>(low - 16);
    out[i + 16] = d * static_cast<float>(high - 16);
  }
}

// The element of largest magnitude becomes exactly -16, so that the longer half of the range is used.
void Encode(const float* in, BlockQ5_0& block) {
  const float d = LargestMagnitude(in, 32) / -16;
  const float inverse = Inverse(d);
  block.d = FloatToHalf(d);
  for (int i = 0; i < 32; ++i) {
    const int q = ToInt(in[i] * inverse + 16.5f, 0, 31);
    block.qs[i % 16] |= static_cast<uint8_t>((q & 0xf) << (i < 16 ? 0 : 4));
    block.qh[i / 8] |= static_cast<uint8_t>((q >> 4) << (i % 8));
  }
}

}  // namespace

constinit const Type kTypeQ5_0 = {TypeId::kQ5_0,
                                  "Q5_0",
                                  BlockQ5_0::kElements,
                                  sizeof(BlockQ5_0),
                                  DecodeBlocks<BlockQ5_0, Decode>,
                                  EncodeBlocks<BlockQ5_0, Encode>};

}  // namespace ridge::quant
