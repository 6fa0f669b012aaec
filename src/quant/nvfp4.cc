// NVFP4: 4-bit floats (E2M1) with a scale of 8 bits (E4M3) for 16; layout at BlockNVFP4.
#include "quant/codec.h"
#include "quant/fp4.h"
#include "quant/rounding.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

// Unsigned E4M3, halved because kE2m1 is doubled.
float HalfScale(uint8_t bits) {
  if (bits == 0 || bits == 0x7f) return 0;
  const int exponent = bits >> 3 & 0xf;
  const int mantissa = bits & 7;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-10f;
  return static_cast<float>(8 + mantissa) * __builtin_bit_cast(float, static_cast<uint32_t>(exponent + 127 - 11) << 23);
}

// The nearest E4M3 value of a scale that is not negative, ties to even; 448 is the largest.
uint8_t NearestE4m3(float scale) {
  if (!(scale > 0)) return 0;
  if (scale >= 448) return 0x7e;
  if (scale < 0x1p-6f) return static_cast<uint8_t>(NearestEven(scale * 0x1p9f, 0, 8));  // 8: the smallest normal
  const uint32_t rebased = __builtin_bit_cast(uint32_t, scale) - (uint32_t{127 - 7} << 23);
  return static_cast<uint8_t>((rebased + 0x7ffff + (rebased >> 20 & 1)) >> 20);
}

void Decode(const BlockNVFP4& block, float* out) {
  for (int g = 0; g < 4; ++g) {
    const float d = HalfScale(block.d[g]);
    for (int i = 0; i < 8; ++i) {
      out[16 * g + i] = d * static_cast<float>(kE2m1[block.qs[8 * g + i] & 0xf]);
      out[16 * g + i + 8] = d * static_cast<float>(kE2m1[block.qs[8 * g + i] >> 4]);
    }
  }
}

// The largest magnitude of a group becomes the largest E2M1 value, 6.
void Encode(const float* in, BlockNVFP4& block) {
  for (int g = 0; g < 4; ++g) {
    const float* x = in + 16 * g;
    block.d[g] = NearestE4m3(std::fabs(LargestMagnitude(x, 16)) / 6);
    const float d = HalfScale(block.d[g]);
    for (int i = 0; i < 8; ++i) {
      block.qs[8 * g + i] = static_cast<uint8_t>(NearestE2m1(x[i], d) | NearestE2m1(x[i + 8], d) << 4);
    }
  }
}

}  // namespace

constinit const Type kTypeNVFP4 = {TypeId::kNVFP4,
                                   "NVFP4",
                                   BlockNVFP4::kElements,
                                   sizeof(BlockNVFP4),
                                   DecodeBlocks<BlockNVFP4, Decode>,
                                   EncodeBlocks<BlockNVFP4, Encode>};

}  // namespace ridge::quant
