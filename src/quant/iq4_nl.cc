// IQ4_NL: 16 fixed values and one scale; layout at BlockIQ4_NL.
#include "quant/codec.h"
#include "quant/iq4_tables.h"
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

}  // namespace

constinit const Type kTypeIQ4_NL = {
    TypeId::kIQ4_NL, "IQ4_NL", BlockIQ4_NL::kElements, sizeof(BlockIQ4_NL), DecodeBlocks<BlockIQ4_NL, Decode>, nullptr};

}  // namespace ridge::quant
