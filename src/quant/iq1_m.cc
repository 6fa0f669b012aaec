// IQ1_M: as IQ1_S, with a scale for 16 and an offset for 8 elements; layout at BlockIQ1_M.
#include "quant/codec.h"
#include "quant/iq1_tables.h"
#include "quant/types.h"

namespace ridge::quant {
namespace {

void Decode(const BlockIQ1_M& block, float* out) {
  uint16_t words[4];
  std::memcpy(words, block.scales, sizeof(words));
  uint16_t d_bits = 0;
  for (int k = 0; k < 4; ++k) d_bits |= static_cast<uint16_t>((words[k] >> 12) << (4 * k));
  const float d = HalfToFloat(d_bits);
  for (int i = 0; i < 32; ++i) {
    const float scale = d * static_cast<float>(1 + 2 * (words[i / 8] >> (3 * (i / 2 % 4)) & 7));
    const int high = block.qh[i / 2] >> (4 * (i % 2)) & 0xf;
    const float offset = (high & 8) != 0 ? -kIQ1Offset : kIQ1Offset;
    const uint64_t row = kGridIQ1[block.qs[i] | (high & 7) << 8];
    for (int n = 0; n < 8; ++n) out[8 * i + n] = scale * (static_cast<float>(TernaryValue(row, n)) + offset);
  }
}

}  // namespace

constinit const Type kTypeIQ1_M = {
    TypeId::kIQ1_M, "IQ1_M", BlockIQ1_M::kElements, sizeof(BlockIQ1_M), DecodeBlocks<BlockIQ1_M, Decode>, nullptr};

}  // namespace ridge::quant
