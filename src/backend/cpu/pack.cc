#include "backend/cpu/pack.h"

#include <cstring>

#include "quant/blocks.h"

namespace ridge::cpu {
namespace {

uint32_t Load32(const void* p) {
  uint32_t x;
  std::memcpy(&x, p, 4);
  return x;
}

void Store32(uint8_t* p, uint32_t x) { std::memcpy(p, &x, 4); }

// Each bit b of a nibble as bit 0 of byte b.
uint32_t SpreadNibble(uint32_t nibble) {
  return (nibble & 1) | (nibble & 2) << 7 | (nibble & 4) << 14 | (nibble & 8) << 21;
}

template <class T>
void PackFloat(const std::byte* rows, int64_t n_rows, int64_t k, uint8_t* panel) {
  const T* from = reinterpret_cast<const T*>(rows);
  T* to = reinterpret_cast<T*>(panel);
  for (int64_t i = 0; i < k; i++) {
    for (int64_t r = 0; r < n_rows; r++) to[i * kPanelRows + r] = from[r * k + i];
  }
}

// ---------------------------------------------------------------- one block of one row into lane r

void PackBlock(const quant::BlockQ4_0& b, int r, PanelQ4_0& to) {
  for (int i = 0; i < 4; i++) Store32(to.q[i] + 4 * r, Load32(b.qs + 4 * i));
  to.d[r] = b.d;
}

void PackBlock(const quant::BlockQ4_1& b, int r, PanelQ4_1& to) {
  for (int i = 0; i < 4; i++) Store32(to.q[i] + 4 * r, Load32(b.qs + 4 * i));
  to.d[r] = b.d;
  to.m[r] = b.m;
}

void PackHighBits(const uint8_t* qh, int r, uint8_t* h) {
  const uint32_t bits = Load32(qh);
  uint32_t out = 0;
  for (int g = 0; g < 8; g++) out |= SpreadNibble(bits >> (4 * g) & 15) << g;
  Store32(h + 4 * r, out);
}

void PackBlock(const quant::BlockQ5_0& b, int r, PanelQ5_0& to) {
  for (int i = 0; i < 4; i++) Store32(to.q[i] + 4 * r, Load32(b.qs + 4 * i));
  PackHighBits(b.qh, r, to.h);
  to.d[r] = b.d;
}

void PackBlock(const quant::BlockQ5_1& b, int r, PanelQ5_1& to) {
  for (int i = 0; i < 4; i++) Store32(to.q[i] + 4 * r, Load32(b.qs + 4 * i));
  PackHighBits(b.qh, r, to.h);
  to.d[r] = b.d;
  to.m[r] = b.m;
}

void PackBlock(const quant::BlockQ8_0& b, int r, PanelQ8_0& to) {
  for (int g = 0; g < 8; g++) Store32(to.q[g] + 4 * r, Load32(b.qs + 4 * g) ^ 0x80808080u);
  to.d[r] = b.d;
}

constexpr uint32_t kLowNibbles = 0x0f0f0f0f;

// 32 bytes whose low nibbles are sub-block `even` and whose high nibbles are the next one.
void PackNibbles(const uint8_t* qs, int r, uint8_t (*even)[64], uint8_t (*odd)[64]) {
  for (int i = 0; i < 4; i++) {
    const uint32_t first = Load32(qs + 4 * i), second = Load32(qs + 16 + 4 * i);
    Store32(even[i] + 4 * r, (first & kLowNibbles) | (second & kLowNibbles) << 4);
    Store32(odd[i] + 4 * r, (first >> 4 & kLowNibbles) | (second & ~kLowNibbles));
  }
}

// The eight 6-bit scales and minima of Q4_K and Q5_K.
template <class Panel>
void PackScales(const uint8_t* s, int r, Panel& to) {
  for (int j = 0; j < 8; j++) {
    to.sc[j][r] = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6 << 4);
    to.mn[j][r] = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6 << 4);
  }
}

void PackBlock(const quant::BlockQ4_K& b, int r, PanelQ4_K& to) {
  for (int c = 0; c < 4; c++) PackNibbles(b.qs + 32 * c, r, to.q[2 * c], to.q[2 * c + 1]);
  PackScales(b.scales, r, to);
  to.d[r] = b.d;
  to.dm[r] = b.dmin;
}

void PackBlock(const quant::BlockQ5_K& b, int r, PanelQ5_K& to) {
  for (int c = 0; c < 4; c++) PackNibbles(b.qs + 32 * c, r, to.q[2 * c], to.q[2 * c + 1]);
  for (int j = 0; j < 8; j++) {
    uint32_t bits = 0;
    for (int g = 0; g < 8; g++) bits |= (Load32(b.qh + 4 * g) >> j & 0x01010101u) << g;
    Store32(to.h[j] + 4 * r, bits);
  }
  PackScales(b.scales, r, to);
  to.d[r] = b.d;
  to.dm[r] = b.dmin;
}

void PackBlock(const quant::BlockQ6_K& b, int r, PanelQ6_K& to) {
  for (int half = 0; half < 2; half++) {
    for (int s = 0; s < 2; s++) {  // low nibbles: sub-block 4 half + s; high ones: 4 half + s + 2
      PackNibbles(b.ql + 64 * half + 32 * s, r, to.q[4 * half + s], to.q[4 * half + s + 2]);
    }
    for (int s = 0; s < 4; s++) {
      uint32_t pairs[2] = {0, 0};
      for (int g = 0; g < 8; g++)
        pairs[g / 4] |= (Load32(b.qh + 32 * half + 4 * g) >> (2 * s) & 0x03030303u) << (2 * (g % 4));
      Store32(to.h[4 * half + s][0] + 4 * r, pairs[0]);
      Store32(to.h[4 * half + s][1] + 4 * r, pairs[1]);
    }
  }
  for (int s = 0; s < 16; s++) to.sc[s][r] = b.scales[s];
  to.d[r] = b.d;
}

template <class Block, class Panel>
void PackBlocks(const std::byte* rows, int64_t n_rows, int64_t k, uint8_t* panel) {
  const int64_t n = k / Block::kElements;
  Panel* to = reinterpret_cast<Panel*>(panel);
  for (int64_t r = 0; r < n_rows; r++) {
    for (int64_t i = 0; i < n; i++) {
      Block block;
      std::memcpy(&block, rows + (r * n + i) * static_cast<int64_t>(sizeof(Block)), sizeof(Block));
      PackBlock(block, static_cast<int>(r), to[i]);
    }
  }
}

// One row per kind: the only place that ties a GGUF type to a panel.
struct Entry {
  quant::TypeId type;
  PanelKind kind;
  const char* name;
  int64_t columns;      // per panel block
  int64_t block_bytes;  // of 16 rows
  void (*pack)(const std::byte*, int64_t, int64_t, uint8_t*);
};

template <class Block, class Panel>
constexpr Entry Blocks(quant::TypeId type, PanelKind kind, const char* name) {
  return {type, kind, name, Block::kElements, sizeof(Panel), PackBlocks<Block, Panel>};
}

using quant::TypeId;
constexpr Entry kEntries[] = {
    {TypeId::kF32, PanelKind::kF32, "panel16.f32", 1, 64, PackFloat<uint32_t>},
    {TypeId::kF16, PanelKind::kF16, "panel16.f16", 1, 32, PackFloat<uint16_t>},
    {TypeId::kBF16, PanelKind::kBF16, "panel16.bf16", 1, 32, PackFloat<uint16_t>},
    Blocks<quant::BlockQ4_0, PanelQ4_0>(TypeId::kQ4_0, PanelKind::kQ4_0, "panel16.q4_0"),
    Blocks<quant::BlockQ4_1, PanelQ4_1>(TypeId::kQ4_1, PanelKind::kQ4_1, "panel16.q4_1"),
    Blocks<quant::BlockQ5_0, PanelQ5_0>(TypeId::kQ5_0, PanelKind::kQ5_0, "panel16.q5_0"),
    Blocks<quant::BlockQ5_1, PanelQ5_1>(TypeId::kQ5_1, PanelKind::kQ5_1, "panel16.q5_1"),
    Blocks<quant::BlockQ8_0, PanelQ8_0>(TypeId::kQ8_0, PanelKind::kQ8_0, "panel16.q8_0"),
    Blocks<quant::BlockQ4_K, PanelQ4_K>(TypeId::kQ4_K, PanelKind::kQ4_K, "panel16.q4_k"),
    Blocks<quant::BlockQ5_K, PanelQ5_K>(TypeId::kQ5_K, PanelKind::kQ5_K, "panel16.q5_k"),
    Blocks<quant::BlockQ6_K, PanelQ6_K>(TypeId::kQ6_K, PanelKind::kQ6_K, "panel16.q6_k"),
};
static_assert(std::size(kEntries) == static_cast<size_t>(PanelKind::kCount));

const Entry& EntryOf(PanelKind kind) { return kEntries[static_cast<size_t>(kind)]; }

}  // namespace

std::optional<PanelKind> PanelFor(quant::TypeId type) {
  for (const Entry& entry : kEntries) {
    if (entry.type == type) return entry.kind;
  }
  return std::nullopt;
}

const char* Name(PanelKind kind) { return EntryOf(kind).name; }

int64_t PanelBytes(PanelKind kind, int64_t k) { return k / EntryOf(kind).columns * EntryOf(kind).block_bytes; }

void PackPanel(PanelKind kind, const std::byte* rows, int64_t n_rows, int64_t k, uint8_t* panel) {
  EntryOf(kind).pack(rows, n_rows, k, panel);
}

}  // namespace ridge::cpu
