// Q8_K: 8 bits, one float scale; layout at BlockQ8_K.
#include "quant/codec.h"
#include "quant/rounding.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockQ8_K& block, float* out) {
  for (int n = 0; n < 256; ++n) out[n] = block.d * static_cast<float>(block.qs[n]);
}

// The element of largest magnitude becomes exactly -127.
void Encode(const float* in, BlockQ8_K& block) {
  const float inverse = -127 * Inverse(LargestMagnitude(in, 256));
  block.d = Inverse(inverse);
  for (int n = 0; n < 256; ++n) {
    const int q = NearestEven(in[n] * inverse, -127, 127);
    block.qs[n] = static_cast<int8_t>(q);
    block.bsums[n / 16] = static_cast<int16_t>(block.bsums[n / 16] + q);
  }
}

}  // namespace

constinit const Type kTypeQ8_K = {TypeId::kQ8_K,
                                  "Q8_K",
                                  BlockQ8_K::kElements,
                                  sizeof(BlockQ8_K),
                                  DecodeBlocks<BlockQ8_K, Decode>,
                                  EncodeBlocks<BlockQ8_K, Encode>};

}  // namespace ridge::quant
