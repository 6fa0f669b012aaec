// Q1_0: the sign of each element and one scale; layout at BlockQ1_0.
#include <cmath>

#include "quant/codec.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockQ1_0& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int n = 0; n < 128; ++n) out[n] = (block.qs[n / 8] >> (n % 8) & 1) != 0 ? d : -d;
}

// The mean magnitude is the scale that gives the least squared error.
void Encode(const float* in, BlockQ1_0& block) {
  float sum = 0;
  for (int n = 0; n < 128; ++n) sum += std::fabs(in[n]);
  block.d = FloatToHalf(sum / 128);
  for (int n = 0; n < 128; ++n) {
    if (in[n] >= 0) block.qs[n / 8] |= static_cast<uint8_t>(1 << (n % 8));
  }
}

}  // namespace

constinit const Type kTypeQ1_0 = {TypeId::kQ1_0,
                                  "Q1_0",
                                  BlockQ1_0::kElements,
                                  sizeof(BlockQ1_0),
                                  DecodeBlocks<BlockQ1_0, Decode>,
                                  EncodeBlocks<BlockQ1_0, Encode>};

}  // namespace ridge::quant
