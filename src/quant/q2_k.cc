// Q2_K: 2 bits, 16 groups of 16 with a scale and a minimum of 4 bits each; layout at BlockQ2_K.
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/rounding.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockQ2_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  for (int s = 0; s < 16; ++s) {
    const float scale = d * static_cast<float>(block.scales[s] & 0xf);
    const float minimum = dmin * static_cast<float>(block.scales[s] >> 4);
    const uint8_t* qs = block.qs + 32 * (s / 8) + 16 * (s % 2);
    const int shift = 2 * (s / 2 % 4);
    for (int l = 0; l < 16; ++l) out[16 * s + l] = scale * static_cast<float>(qs[l] >> shift & 3) - minimum;
  }
}

void Encode(const float* in, BlockQ2_K& block) {
  float scales[16];
  float mins[16];
  for (int s = 0; s < 16; ++s) {
    float weights[16];
    for (int l = 0; l < 16; ++l) weights[l] = std::fabs(in[16 * s + l]);
    const AffineFit fit = FitAffine({in + 16 * s, 16}, weights, 3);
    scales[s] = fit.scale;
    mins[s] = fit.min;
  }
  block.d = FloatToHalf(RangeOf(scales, 16).high / 15);
  block.dmin = FloatToHalf(RangeOf(mins, 16).high / 15);
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  for (int s = 0; s < 16; ++s) {
    const int scale = NearestEven(scales[s] * Inverse(d), 0, 15);
    const int min = NearestEven(mins[s] * Inverse(dmin), 0, 15);
    block.scales[s] = static_cast<uint8_t>(scale | min << 4);
    const float inverse = Inverse(d * static_cast<float>(scale));
    const float minimum = dmin * static_cast<float>(min);
    uint8_t* qs = block.qs + 32 * (s / 8) + 16 * (s % 2);
    const int shift = 2 * (s / 2 % 4);
    for (int l = 0; l < 16; ++l) {
      qs[l] |= static_cast<uint8_t>(NearestEven((in[16 * s + l] + minimum) * inverse, 0, 3) << shift);
    }
  }
}

}  // namespace

constinit const Type kTypeQ2_K = {TypeId::kQ2_K,
                                  "Q2_K",
                                  BlockQ2_K::kElements,
                                  sizeof(BlockQ2_K),
                                  DecodeBlocks<BlockQ2_K, Decode>,
                                  EncodeBlocks<BlockQ2_K, Encode>};

}  // namespace ridge::quant
