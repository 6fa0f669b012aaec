// Q6_K: 6 bits, 16 groups of 16 with a signed scale of 8 bits each; layout at BlockQ6_K.
#include "quant/codec.h"
#include "quant/fit.h"
#include "quant/rounding.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockQ6_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int s = 0; s < 16; ++s) {
    const float scale = d * static_cast<float>(block.scales[s]);
    const uint8_t* ql = block.ql + 64 * (s / 8) + 16 * (s % 4);
    const uint8_t* qh = block.qh + 32 * (s / 8) + 16 * (s % 2);
    const int low_shift = 4 * (s / 4 % 2);
    const int high_shift = 2 * (s / 2 % 4);
    for (int l = 0; l < 16; ++l) {
      const int q = (ql[l] >> low_shift & 0xf) | (qh[l] >> high_shift & 3) << 4;
      out[16 * s + l] = scale * static_cast<float>(q - 32);
    }
  }
}

void Encode(const float* in, BlockQ6_K& block) {
  float scales[16];
  for (int s = 0; s < 16; ++s) {
    float weights[16];
    for (int l = 0; l < 16; ++l) weights[l] = in[16 * s + l] * in[16 * s + l];
    scales[s] = FitSymmetric({in + 16 * s, 16}, weights, -32, 31);
  }
  block.d = FloatToHalf(LargestMagnitude(scales, 16) / -128);
  const float d = HalfToFloat(block.d);
  for (int s = 0; s < 16; ++s) block.scales[s] = static_cast<int8_t>(NearestEven(scales[s] * Inverse(d), -128, 127));
  for (int n = 0; n < 256; ++n) {
    const int half = n / 128;
    const float inverse = Inverse(d * static_cast<float>(block.scales[n / 16]));
    const int q = NearestEven(in[n] * inverse, -32, 31) + 32;
    block.ql[64 * half + n % 64] |= static_cast<uint8_t>((q & 0xf) << (4 * (n / 64 % 2)));
    block.qh[32 * half + n % 32] |= static_cast<uint8_t>((q >> 4) << (2 * (n / 32 % 4)));
  }
}

}  // namespace

constinit const Type kTypeQ6_K = {TypeId::kQ6_K,
                                  "Q6_K",
                                  BlockQ6_K::kElements,
                                  sizeof(BlockQ6_K),
                                  DecodeBlocks<BlockQ6_K, Decode>,
                                  EncodeBlocks<BlockQ6_K, Encode>};

}  // namespace ridge::quant
