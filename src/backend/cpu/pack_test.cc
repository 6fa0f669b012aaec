#include "backend/cpu/pack.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "quant/blocks.h"
#include "quant/quant.h"

namespace ridge::cpu {
namespace {

// A file may hold any byte as an E4M3 scale: sign bit, zeros of both signs, subnormals, the NaN pattern.
TEST(Pack, EveryScaleByteOfNvfp4) {
  const quant::Type& type = quant::Get(quant::TypeId::kNVFP4);
  const auto kind = PanelFor(type.id);
  ASSERT_TRUE(kind);
  for (int scale = 0; scale < 256; scale++) {
    quant::BlockNVFP4 block;
    std::memset(&block, 0, sizeof(block));
    for (uint8_t& d : block.d) d = static_cast<uint8_t>(scale);
    for (size_t i = 0; i < sizeof(block.qs); i++) block.qs[i] = static_cast<uint8_t>(0x17 * i);
    std::vector<float> decoded(64);
    type.decode(reinterpret_cast<const std::byte*>(&block), decoded.data(), 1);
    std::vector<uint8_t> panel(static_cast<size_t>(PanelBytes(*kind, 64)));
    PackPanel(type.id, reinterpret_cast<const std::byte*>(&block), 1, 64, panel.data());
    PanelNVFP4 blocks[2];
    ASSERT_EQ(sizeof(blocks), panel.size());
    std::memcpy(blocks, panel.data(), sizeof(blocks));
    float largest = 0;
    for (float v : decoded) largest = std::max(largest, std::abs(v));
    // The largest value of E2M1 is 6, which the panel holds as 12.
    EXPECT_EQ(largest, 12 * quant::HalfToFloat(blocks[0].d[0][0])) << "scale byte " << scale;
  }
}

}  // namespace
}  // namespace ridge::cpu
