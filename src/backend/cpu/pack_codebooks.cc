// Codebook types, re-encoded as indices into the table of their values (kernels/unpack-inl.h has the tables, in the same order): one
// byte shuffle in the kernel instead of a gather, for 1 to 1.9 bits more a weight.
#include "backend/cpu/pack_blocks.h"
#include "quant/blocks.h"
#include "quant/iq1_tables.h"
#include "quant/iq2_tables.h"
#include "quant/iq3_tables.h"
#include "quant/signs.h"

namespace ridge::cpu {
namespace {

void PackIQ4_XS(const quant::BlockIQ4_XS& b, int r, PanelIQ4& to) {
  for (int j = 0; j < 8; j++) {
    for (int i = 0; i < 4; i++) Store32(to.q[j][i] + 4 * r, Load32(b.qs + 16 * j + 4 * i));
    const int sc = (b.scales_l[j / 2] >> (4 * (j % 2)) & 15) | (b.scales_h >> (2 * j) & 3) << 4;
    to.sc[j / 2][r][j % 2] = static_cast<int8_t>(sc - 32);
  }
  to.d[r] = b.d;
}

// Index of a magnitude in increasing order, 8 more where it is negative.
int SignedIndex(int magnitude_index, int signs, int bit) { return magnitude_index + ((signs >> bit & 1) != 0 ? 8 : 0); }

void PackIQ3_XXS(const quant::BlockIQ3_XXS& b, int r, PanelIQ4& to) {
  for (int s = 0; s < 8; s++) {
    const uint32_t w = Load32(b.scales_signs + 4 * s);
    for (int n = 0; n < 32; n++) {
      const int value = quant::GridValue(quant::kGridIQ3_XXS[b.qs[8 * s + n / 4]], n % 4);  // 4 12 20 ... 52, 62
      const int signs = quant::SignByte(w >> (7 * (n / 8)) & 127);
      PutNibble(to.q[s], r, n, SignedIndex(value / 8, signs, n % 8));
    }
    to.sc[s / 2][r][s % 2] = static_cast<int8_t>(2 * (w >> 28) + 1);
  }
  to.d[r] = b.d;
}

void PackIQ3_S(const quant::BlockIQ3_S& b, int r, PanelIQ4& to) {
  for (int n = 0; n < 256; n++) {
    const int i = n / 4, index = b.qs[i] | (b.qh[i / 8] >> (i % 8) & 1) << 8;
    const int value = quant::GridValue(quant::kGridIQ3_S[static_cast<size_t>(index)], n % 4);  // 1 3 5 ... 15
    PutNibble(to.q[n / 32], r, n % 32, SignedIndex(value / 2, b.signs[n / 8], n % 8));
  }
  for (int s = 0; s < 8; s++) {
    to.sc[s / 2][r][s % 2] = static_cast<int8_t>(2 * (b.scales[s / 2] >> (4 * (s % 2)) & 15) + 1);
  }
  to.d[r] = b.d;
}

// Place of +-8, +-25, +-43 in increasing order.
int IndexIQ2(int magnitude, int signs, int bit) {
  const int i = magnitude == 8 ? 0 : magnitude == 25 ? 1 : 2;
  return (signs >> bit & 1) != 0 ? 2 - i : 3 + i;
}

template <class Panel>
void PutIQ2(uint64_t row, int signs, int r, int group, Panel& to) {
  for (int n = 0; n < 8; n++) PutTriple(to, r, 8 * group + n, IndexIQ2(quant::GridValue(row, n), signs, n));
}

void PackIQ2_XXS(const quant::BlockIQ2_XXS& b, int r, PanelQ3x32& to) {
  for (int s = 0; s < 8; s++) {
    const uint32_t grids = Load32(b.qs + 4 * s), w = Load32(b.qs + 4 * s + 2);
    for (int j = 0; j < 4; j++) {
      PutIQ2(quant::kGridIQ2_XXS[grids >> (8 * j) & 255], quant::SignByte(w >> (7 * j) & 127), r, 4 * s + j, to);
    }
    to.sc[s / 2][r][s % 2] = static_cast<int8_t>(2 * (w >> 28) + 1);
  }
  to.d[r] = b.d;
}

// Integer scale of 16 elements, group s < 16: 2 sc + 1.
int8_t OddScale(const uint8_t* scales, int s) {
  return static_cast<int8_t>(2 * (scales[s / 2] >> (4 * (s % 2)) & 15) + 1);
}

void PackIQ2_XS(const quant::BlockIQ2_XS& b, int r, PanelQ3& to) {
  for (int i = 0; i < 32; i++) {
    PutIQ2(quant::kGridIQ2_XS[b.qs[i] & 511], quant::SignByte(b.qs[i] >> 9), r, i, to);
  }
  for (int s = 0; s < 16; s++) to.sc[s / 2][r][s % 2] = OddScale(b.scales, s);
  to.d[r] = b.d;
}

void PackIQ2_S(const quant::BlockIQ2_S& b, int r, PanelQ3& to) {
  for (int i = 0; i < 32; i++) {
    const int index = b.qs[i] | (b.qh[i / 4] >> (2 * (i % 4)) & 3) << 8;
    PutIQ2(quant::kGridIQ2_S[static_cast<size_t>(index)], b.signs[i], r, i, to);
  }
  for (int s = 0; s < 16; s++) to.sc[s / 2][r][s % 2] = OddScale(b.scales, s);
  to.d[r] = b.d;
}

// Place of 8 v +- 1 with v in -1, 0, 1, in increasing order.
template <class Panel>
void PutIQ1(uint64_t row, bool minus, int r, int group, Panel& to) {
  for (int n = 0; n < 8; n++) PutTriple(to, r, 8 * group + n, 2 * (quant::TernaryValue(row, n) + 1) + (minus ? 0 : 1));
}

void PackIQ1_S(const quant::BlockIQ1_S& b, int r, PanelQ3x32& to) {
  for (int s = 0; s < 8; s++) {
    const int qh = b.qh[s];
    for (int j = 0; j < 4; j++) {
      const int index = b.qs[4 * s + j] | (qh >> (3 * j) & 7) << 8;
      PutIQ1(quant::kGridIQ1[static_cast<size_t>(index)], (qh & 0x8000) != 0, r, 4 * s + j, to);
    }
    to.sc[s / 2][r][s % 2] = static_cast<int8_t>(2 * (qh >> 12 & 7) + 1);
  }
  to.d[r] = b.d;
}

void PackIQ1_M(const quant::BlockIQ1_M& b, int r, PanelQ3& to) {
  uint16_t words[4], d = 0;
  std::memcpy(words, b.scales, sizeof(words));
  for (int k = 0; k < 4; k++) d |= static_cast<uint16_t>((words[k] >> 12) << (4 * k));
  for (int i = 0; i < 32; i++) {
    const int high = b.qh[i / 2] >> (4 * (i % 2)) & 15, index = b.qs[i] | (high & 7) << 8;
    PutIQ1(quant::kGridIQ1[static_cast<size_t>(index)], (high & 8) != 0, r, i, to);
  }
  for (int s = 0; s < 16; s++)
    to.sc[s / 2][r][s % 2] = static_cast<int8_t>(2 * (words[s / 4] >> (3 * (s % 4)) & 7) + 1);
  to.d[r] = d;
}

using quant::TypeId;
constexpr PackEntry kEntries[] = {
    {TypeId::kIQ4_XS, PanelKind::kIQ4_XS, PackBlocks<PackIQ4_XS>},
    {TypeId::kIQ3_XXS, PanelKind::kIQ3_XXS, PackBlocks<PackIQ3_XXS>},
    {TypeId::kIQ3_S, PanelKind::kIQ3_S, PackBlocks<PackIQ3_S>},
    {TypeId::kIQ2_XXS, PanelKind::kIQ2_XXS, PackBlocks<PackIQ2_XXS>},
    {TypeId::kIQ2_XS, PanelKind::kIQ2, PackBlocks<PackIQ2_XS>},
    {TypeId::kIQ2_S, PanelKind::kIQ2, PackBlocks<PackIQ2_S>},
    {TypeId::kIQ1_S, PanelKind::kIQ1_S, PackBlocks<PackIQ1_S>},
    {TypeId::kIQ1_M, PanelKind::kIQ1_M, PackBlocks<PackIQ1_M>},
};

}  // namespace

std::span<const PackEntry> CodebookEntries() { return kEntries; }

}  // namespace ridge::cpu
