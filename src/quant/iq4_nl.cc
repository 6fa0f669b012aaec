// IQ4_NL: 16 fixed values and one scale; layout at BlockIQ4_NL.
#include "quant/codec.h"
#include "quant/iq4_tables.h"
#include "quant/rounding.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockIQ4_NL& block, float* out) {
  const float d = HalfToFloat(block.d);
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(kIQ4Values[block.qs[i] & 0xf]);
    out[i + 16] = d * static_cast<float>(kIQ4Values[block.qs[i] >> 4]);
  }
}

// How many midpoints of neighbouring values lie below x: without a branch, so that loops over it vectorize.
int NearestValue(float x) {
  int q = 0;
  for (int k = 0; k < 15; ++k) q += x > 0.5f * static_cast<float>(kIQ4Values[k] + kIQ4Values[k + 1]) ? 1 : 0;
  return q;
}

// The scale, found as FitSymmetric does it, with squared weights. The values are uneven, so both signs are tried.
float FitScale(const float* in) {
  const float largest = LargestMagnitude(in, 32);
  if (largest == 0 || !std::isfinite(largest)) return 0;
  float best_scale = 0;
  float best_gain = 0;
  for (int candidate = -7; candidate <= 7; ++candidate) {
    for (const float extreme : {-127.0f, 127.0f}) {
      const float inverse = (extreme + static_cast<float>(candidate)) / largest;
      float wqq = 0;
      float wqx = 0;
      for (int i = 0; i < 32; ++i) {
        const float q = kIQ4Values[NearestValue(in[i] * inverse)];
        const float weight = in[i] * in[i];
        wqq += weight * q * q;
        wqx += weight * q * in[i];
      }
      if (wqq > 0 && wqx * wqx / wqq > best_gain) {
        best_gain = wqx * wqx / wqq;
        best_scale = wqx / wqq;
      }
    }
  }
  return best_scale;
}

void Encode(const float* in, BlockIQ4_NL& block) {
  block.d = FloatToHalf(FitScale(in));
  const float inverse = Inverse(HalfToFloat(block.d));
  for (int i = 0; i < 16; ++i) {
    block.qs[i] = static_cast<uint8_t>(NearestValue(in[i] * inverse) | NearestValue(in[i + 16] * inverse) << 4);
  }
}

}  // namespace

constinit const Type kTypeIQ4_NL = {TypeId::kIQ4_NL,
                                    "IQ4_NL",
                                    BlockIQ4_NL::kElements,
                                    sizeof(BlockIQ4_NL),
                                    DecodeBlocks<BlockIQ4_NL, Decode>,
                                    EncodeBlocks<BlockIQ4_NL, Encode>};

}  // namespace ridge::quant
