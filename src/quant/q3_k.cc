// Q3_K: 3 bits, 16 groups of 16 with a signed scale of 6 bits each; layout at BlockQ3_K.
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/rounding.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockQ3_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int s = 0; s < 16; ++s) {
    const int low = block.scales[s % 8] >> (4 * (s / 8)) & 0xf;
    const int high = block.scales[8 + s % 4] >> (2 * (s / 4)) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    const uint8_t* qs = block.qs + 32 * (s / 8) + 16 * (s % 2);
    const uint8_t* hmask = block.hmask + 16 * (s % 2);
    const int shift = 2 * (s / 2 % 4);
    for (int l = 0; l < 16; ++l) {
      const int q = (qs[l] >> shift & 3) | (hmask[l] >> (s / 2) & 1) << 2;
      out[16 * s + l] = scale * static_cast<float>(q - 4);
    }
  }
}

void Encode(const float* in, BlockQ3_K& block) {
  float scales[16];
  for (int s = 0; s < 16; ++s) {
    float weights[16];
    for (int l = 0; l < 16; ++l) weights[l] = std::fabs(in[16 * s + l]);
    scales[s] = FitSymmetric({in + 16 * s, 16}, weights, -4, 3);
  }
  block.d = FloatToHalf(LargestMagnitude(scales, 16) / -32);
  const float d = HalfToFloat(block.d);
  for (int s = 0; s < 16; ++s) {
    const int scale = NearestEven(scales[s] * Inverse(d), -32, 31);
    block.scales[s % 8] |= static_cast<uint8_t>(((scale + 32) & 0xf) << (4 * (s / 8)));
    block.scales[8 + s % 4] |= static_cast<uint8_t>(((scale + 32) >> 4) << (2 * (s / 4)));
    const float inverse = Inverse(d * static_cast<float>(scale));
    uint8_t* qs = block.qs + 32 * (s / 8) + 16 * (s % 2);
    uint8_t* hmask = block.hmask + 16 * (s % 2);
    for (int l = 0; l < 16; ++l) {
      const int q = NearestEven(in[16 * s + l] * inverse, -4, 3) + 4;
      qs[l] |= static_cast<uint8_t>((q & 3) << (2 * (s / 2 % 4)));
      hmask[l] |= static_cast<uint8_t>((q >> 2) << (s / 2));
    }
  }
}

}  // namespace

constinit const Type kTypeQ3_K = {TypeId::kQ3_K,
                                  "Q3_K",
                                  BlockQ3_K::kElements,
                                  sizeof(BlockQ3_K),
                                  DecodeBlocks<BlockQ3_K, Decode>,
                                  EncodeBlocks<BlockQ3_K, Encode>};

}  // namespace ridge::quant
