// Q5_K: 5 bits, 8 groups of 32 with a scale and a minimum of 6 bits each; layout at BlockQ5_K.
#include "quant/codec.h"
#include "quant/scale_min.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockQ5_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  for (int s = 0; s < 8; ++s) {
    const ScaleMin group = UnpackScaleMin(block.scales, s);
    const float scale = d * static_cast<float>(group.scale);
    const float minimum = dmin * static_cast<float>(group.min);
    const uint8_t* qs = block.qs + 32 * (s / 2);
    const int shift = 4 * (s % 2);
    for (int l = 0; l < 32; ++l) {
      const int q = (qs[l] >> shift & 0xf) | (block.qh[l] >> s & 1) << 4;
      out[32 * s + l] = scale * static_cast<float>(q) - minimum;
    }
  }
}

void Encode(const float* in, BlockQ5_K& block) {
  const ScaledGroups groups = EncodeScaleMins(in, 31);
  block.d = groups.d;
  block.dmin = groups.dmin;
  for (int s = 0; s < 8; ++s) {
    PackScaleMin(block.scales, s, groups.scale_mins[s]);
    for (int l = 0; l < 32; ++l) {
      const int q = groups.Quant(in[32 * s + l], s, 31);
      block.qs[32 * (s / 2) + l] |= static_cast<uint8_t>((q & 0xf) << (4 * (s % 2)));
      block.qh[l] |= static_cast<uint8_t>((q >> 4) << s);
    }
  }
}

}  // namespace

constinit const Type kTypeQ5_K = {TypeId::kQ5_K,
                                  "Q5_K",
                                  BlockQ5_K::kElements,
                                  sizeof(BlockQ5_K),
                                  DecodeBlocks<BlockQ5_K, Decode>,
                                  EncodeBlocks<BlockQ5_K, Encode>};

}  // namespace ridge::quant
