// Q4_K: 4 bits, 8 groups of 32 with a scale and a minimum of 6 bits each; layout at BlockQ4_K.
#include "quant/codec.h"
#include "quant/scale_min.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockQ4_K& block, float* out) {
  const float d = HalfToFloat(block.d);
  const float dmin = HalfToFloat(block.dmin);
  for (int s = 0; s < 8; ++s) {
    const ScaleMin group = UnpackScaleMin(block.scales, s);
    const float scale = d * static_cast<float>(group.scale);
    const float minimum = dmin * static_cast<float>(group.min);
    const uint8_t* qs = block.qs + 32 * (s / 2);
    const int shift = 4 * (s % 2);
    for (int l = 0; l < 32; ++l) out[32 * s + l] = scale * static_cast<float>(qs[l] >> shift & 0xf) - minimum;
  }
}

void Encode(const float* in, BlockQ4_K& block) {
  const ScaledGroups groups = EncodeScaleMins(in, 15);
  block.d = groups.d;
  block.dmin = groups.dmin;
  for (int s = 0; s < 8; ++s) {
    PackScaleMin(block.scales, s, groups.scale_mins[s]);
    for (int l = 0; l < 32; ++l) {
      const int q = groups.Quant(in[32 * s + l], s, 15);
      block.qs[32 * (s / 2) + l] |= static_cast<uint8_t>(q << (4 * (s % 2)));
    }
  }
}

}  // namespace

constinit const Type kTypeQ4_K = {TypeId::kQ4_K,
                                  "Q4_K",
                                  BlockQ4_K::kElements,
                                  sizeof(BlockQ4_K),
                                  DecodeBlocks<BlockQ4_K, Decode>,
                                  EncodeBlocks<BlockQ4_K, Encode>};

}  // namespace ridge::quant
