// MXFP4: 4-bit floats (E2M1) with a power of two; layout at BlockMXFP4.
#include <cfloat>

#include "quant/codec.h"
#include "quant/fp4.h"
#include "quant/rounding.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

// 2^(e-128); below the normal floats from e = 1 down.
float Scale(uint8_t e) {
  return __builtin_bit_cast(float, e < 2 ? uint32_t{0x00200000} << e : static_cast<uint32_t>(e - 1) << 23);
}

void Decode(const BlockMXFP4& block, float* out) {
  const float d = Scale(block.e);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kE2m1[block.qs[i] & 0xf]);
    out[i + 16] = d * static_cast<float>(kE2m1[block.qs[i] >> 4]);
  }
}

// The exponent of the largest magnitude, less 2: it then lies in [4, 8) and the largest E2M1 value is 6.
void Encode(const float* in, BlockMXFP4& block) {
  const float largest = std::fabs(LargestMagnitude(in, 32));
  if (largest == 0) return;
  int exponent = 0;
  std::frexp(std::isfinite(largest) ? largest : FLT_MAX, &exponent);  // largest in [2^(exponent-1), 2^exponent)
  block.e = static_cast<uint8_t>(std::clamp(exponent - 1 - 2 + 127, 0, 254));
  const float d = Scale(block.e);
  for (int i = 0; i < 16; ++i) {
    block.qs[i] = static_cast<uint8_t>(NearestE2m1(in[i], d) | NearestE2m1(in[i + 16], d) << 4);
  }
}

}  // namespace

constinit const Type kTypeMXFP4 = {TypeId::kMXFP4,
                                   "MXFP4",
                                   BlockMXFP4::kElements,
                                   sizeof(BlockMXFP4),
                                   DecodeBlocks<BlockMXFP4, Decode>,
                                   EncodeBlocks<BlockMXFP4, Encode>};

}  // namespace ridge::quant
