#include "backend/cpu/pack.h"

#include <cstring>

#include "backend/cpu/pack_blocks.h"
#include "quant/blocks.h"

namespace ridge::cpu {
namespace {

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

void PackQ4_0(const quant::BlockQ4_0& b, int r, PanelQ4_0& to) {
  for (int i = 0; i < 4; i++) Store32(to.q[i] + 4 * r, Load32(b.qs + 4 * i));
  to.d[r] = b.d;
}

void PackQ4_1(const quant::BlockQ4_1& b, int r, PanelQ4_1& to) {
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

void PackQ5_0(const quant::BlockQ5_0& b, int r, PanelQ5_0& to) {
  for (int i = 0; i < 4; i++) Store32(to.q[i] + 4 * r, Load32(b.qs + 4 * i));
  PackHighBits(b.qh, r, to.h);
  to.d[r] = b.d;
}

void PackQ5_1(const quant::BlockQ5_1& b, int r, PanelQ5_1& to) {
  for (int i = 0; i < 4; i++) Store32(to.q[i] + 4 * r, Load32(b.qs + 4 * i));
  PackHighBits(b.qh, r, to.h);
  to.d[r] = b.d;
  to.m[r] = b.m;
}

void PackQ8_0(const quant::BlockQ8_0& b, int r, PanelQ8_0& to) {
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
void PackScales(const uint8_t (&s)[12], int r, Panel& to) {
  for (int j = 0; j < 8; j++) {
    const quant::ScaleMin sm = quant::UnpackScaleMin(s, j);
    to.sc[j / 2][r][j % 2] = static_cast<int8_t>(sm.scale);
    to.mn[j / 2][r][j % 2] = static_cast<int8_t>(sm.min);
  }
}

void PackQ4_K(const quant::BlockQ4_K& b, int r, PanelQ4_K& to) {
  for (int c = 0; c < 4; c++) PackNibbles(b.qs + 32 * c, r, to.q[2 * c], to.q[2 * c + 1]);
  PackScales(b.scales, r, to);
  to.d[r] = b.d;
  to.dm[r] = b.dmin;
}

void PackQ5_K(const quant::BlockQ5_K& b, int r, PanelQ5_K& to) {
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

void PackQ6_K(const quant::BlockQ6_K& b, int r, PanelQ6_K& to) {
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
  for (int s = 0; s < 16; s++) to.sc[s / 2][r][s % 2] = b.scales[s];
  to.d[r] = b.d;
}

void PackMXFP4(const quant::BlockMXFP4& b, int r, PanelQ4_0& to) {
  for (int i = 0; i < 4; i++) Store32(to.q[i] + 4 * r, Load32(b.qs + 4 * i));
  // 2^(e - 128) as a bfloat16; below the normal ones from e = 1 down.
  to.d[r] = static_cast<uint16_t>(b.e < 2 ? 0x20 << b.e : (b.e - 1) << 7);
}

void PackIQ4_NL(const quant::BlockIQ4_NL& b, int r, PanelQ4_0& to) {
  for (int i = 0; i < 4; i++) Store32(to.q[i] + 4 * r, Load32(b.qs + 4 * i));
  to.d[r] = b.d;
}

// Half of an E4M3 scale without sign, exact as a half: 4 significant bits, 2^-10 at least. 0 and 0x7f are 0.
uint16_t HalfOfE4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  if (bits == 0x7f || (exponent == 0 && mantissa == 0)) return 0;
  if (exponent != 0) return static_cast<uint16_t>((exponent + 7) << 10 | mantissa << 7);
  int shift = 0;
  while ((mantissa << shift & 8) == 0) shift++;
  return static_cast<uint16_t>((8 - shift) << 10 | (mantissa << shift & 7) << 7);
}

// A block of 64 fills two of the panel's.
void PackNVFP4(const quant::BlockNVFP4& b, int r, PanelNVFP4* to) {
  for (int n = 0; n < 64; n++) {
    const int byte = b.qs[n / 16 * 8 + n % 8];
    PutNibble(to[n / 32].q, r, n % 32, n % 16 < 8 ? byte & 15 : byte >> 4);
  }
  for (int g = 0; g < 4; g++) to[g / 2].d[g % 2][r] = HalfOfE4m3(b.d[g]);
}

void PackQ2_0(const quant::BlockQ2_0& b, int r, PanelQ2_0* to) {
  for (int n = 0; n < 64; n++) PutPair(to[n / 32].q, r, n % 32, b.qs[n / 4] >> (2 * (n % 4)) & 3);
  for (int i = 0; i < 2; i++) to[i].d[r] = b.d;
}

void PackQ1_0(const quant::BlockQ1_0& b, int r, PanelQ2_0* to) {
  for (int n = 0; n < 128; n++) PutPair(to[n / 32].q, r, n % 32, (b.qs[n / 8] >> (n % 8) & 1) * 2);
  for (int i = 0; i < 4; i++) to[i].d[r] = b.d;
}

void PackQ2_K(const quant::BlockQ2_K& b, int r, PanelQ2_K& to) {
  for (int n = 0; n < 256; n++) PutPair(to.q[n / 32], r, n % 32, b.qs[n / 128 * 32 + n % 32] >> (2 * (n / 32 % 4)) & 3);
  for (int s = 0; s < 16; s++) {
    to.sc[s / 2][r][s % 2] = b.scales[s] & 15;
    to.mn[s / 2][r][s % 2] = static_cast<int8_t>(b.scales[s] >> 4);
  }
  to.d[r] = b.d;
  to.dm[r] = b.dmin;
}

void PackQ3_K(const quant::BlockQ3_K& b, int r, PanelQ3& to) {
  for (int n = 0; n < 256; n++) {
    const int low = b.qs[n / 128 * 32 + n % 32] >> (2 * (n / 32 % 4)) & 3;
    PutTriple(to, r, n, low | (b.hmask[n % 32] >> (n / 32) & 1) << 2);
  }
  for (int s = 0; s < 16; s++) {
    const int low = b.scales[s % 8] >> (s < 8 ? 0 : 4) & 15, high = b.scales[8 + s % 4] >> (2 * (s / 4)) & 3;
    to.sc[s / 2][r][s % 2] = static_cast<int8_t>((low | high << 4) - 32);
  }
  to.d[r] = b.d;
}

void PackTQ2_0(const quant::BlockTQ2_0& b, int r, PanelTQ& to) {
  for (int n = 0; n < 256; n++) PutPair(to.q[n / 32], r, n % 32, b.qs[n / 128 * 32 + n % 32] >> (2 * (n / 32 % 4)) & 3);
  to.d[r] = b.d;
}

void PackTQ1_0(const quant::BlockTQ1_0& b, int r, PanelTQ& to) {
  constexpr int kPower[] = {1, 3, 9, 27, 81};
  for (int n = 0; n < 256; n++) {
    const int byte = n < 160 ? b.qs[n % 32] : n < 240 ? b.qs[32 + (n - 160) % 16] : b.qh[(n - 240) % 4];
    const int digit = n < 160 ? n / 32 : n < 240 ? (n - 160) / 16 : (n - 240) / 4;
    PutPair(to.q[n / 32], r, n % 32, (byte * kPower[digit] & 0xff) * 3 >> 8);
  }
  to.d[r] = b.d;
}

// One row per tensor type; those of the codebook types are in pack_codebooks.cc.
using quant::TypeId;
constexpr PackEntry kEntries[] = {
    {TypeId::kF32, PanelKind::kF32, PackFloat<uint32_t>},
    {TypeId::kF16, PanelKind::kF16, PackFloat<uint16_t>},
    {TypeId::kBF16, PanelKind::kBF16, PackFloat<uint16_t>},
    {TypeId::kQ4_0, PanelKind::kQ4_0, PackBlocks<PackQ4_0>},
    {TypeId::kQ4_1, PanelKind::kQ4_1, PackBlocks<PackQ4_1>},
    {TypeId::kQ5_0, PanelKind::kQ5_0, PackBlocks<PackQ5_0>},
    {TypeId::kQ5_1, PanelKind::kQ5_1, PackBlocks<PackQ5_1>},
    {TypeId::kQ8_0, PanelKind::kQ8_0, PackBlocks<PackQ8_0>},
    {TypeId::kIQ4_NL, PanelKind::kIQ4_NL, PackBlocks<PackIQ4_NL>},
    {TypeId::kMXFP4, PanelKind::kMXFP4, PackBlocks<PackMXFP4>},
    {TypeId::kNVFP4, PanelKind::kNVFP4, PackBlocks<PackNVFP4>},
    {TypeId::kQ2_0, PanelKind::kQ2_0, PackBlocks<PackQ2_0>},
    {TypeId::kQ1_0, PanelKind::kQ2_0, PackBlocks<PackQ1_0>},
    {TypeId::kQ2_K, PanelKind::kQ2_K, PackBlocks<PackQ2_K>},
    {TypeId::kQ3_K, PanelKind::kQ3_K, PackBlocks<PackQ3_K>},
    {TypeId::kQ4_K, PanelKind::kQ4_K, PackBlocks<PackQ4_K>},
    {TypeId::kQ5_K, PanelKind::kQ5_K, PackBlocks<PackQ5_K>},
    {TypeId::kQ6_K, PanelKind::kQ6_K, PackBlocks<PackQ6_K>},
    {TypeId::kTQ1_0, PanelKind::kTQ, PackBlocks<PackTQ1_0>},
    {TypeId::kTQ2_0, PanelKind::kTQ, PackBlocks<PackTQ2_0>},
};

struct KindInfo {
  const char* name;
  int64_t columns;      // per panel block
  int64_t block_bytes;  // of 16 rows
};

// By PanelKind.
constexpr KindInfo kKinds[] = {
    {"panel16.f32", 1, 64},
    {"panel16.f16", 1, 32},
    {"panel16.bf16", 1, 32},
    {"panel16.q4_0", 32, sizeof(PanelQ4_0)},
    {"panel16.q4_1", 32, sizeof(PanelQ4_1)},
    {"panel16.q5_0", 32, sizeof(PanelQ5_0)},
    {"panel16.q5_1", 32, sizeof(PanelQ5_1)},
    {"panel16.q8_0", 32, sizeof(PanelQ8_0)},
    {"panel16.iq4_nl", 32, sizeof(PanelQ4_0)},
    {"panel16.mxfp4", 32, sizeof(PanelQ4_0)},
    {"panel16.nvfp4", 32, sizeof(PanelNVFP4)},
    {"panel16.q2_0", 32, sizeof(PanelQ2_0)},
    {"panel16.q2_k", 256, sizeof(PanelQ2_K)},
    {"panel16.q3_k", 256, sizeof(PanelQ3)},
    {"panel16.q4_k", 256, sizeof(PanelQ4_K)},
    {"panel16.q5_k", 256, sizeof(PanelQ5_K)},
    {"panel16.q6_k", 256, sizeof(PanelQ6_K)},
    {"panel16.iq4_xs", 256, sizeof(PanelIQ4)},
    {"panel16.iq3_xxs", 256, sizeof(PanelIQ4)},
    {"panel16.iq3_s", 256, sizeof(PanelIQ4)},
    {"panel16.iq2_xxs", 256, sizeof(PanelQ3x32)},
    {"panel16.iq2", 256, sizeof(PanelQ3)},
    {"panel16.iq1_s", 256, sizeof(PanelQ3x32)},
    {"panel16.iq1_m", 256, sizeof(PanelQ3)},
    {"panel16.tq", 256, sizeof(PanelTQ)},
};
static_assert(std::size(kKinds) == static_cast<size_t>(PanelKind::kCount));

const KindInfo& InfoOf(PanelKind kind) { return kKinds[static_cast<size_t>(kind)]; }

const PackEntry* EntryOf(quant::TypeId type) {
  for (const PackEntry& entry : kEntries) {
    if (entry.type == type) return &entry;
  }
  for (const PackEntry& entry : CodebookEntries()) {
    if (entry.type == type) return &entry;
  }
  return nullptr;
}

}  // namespace

std::optional<PanelKind> PanelFor(quant::TypeId type) {
  const PackEntry* entry = EntryOf(type);
  if (entry == nullptr) return std::nullopt;
  return entry->kind;
}

const char* Name(PanelKind kind) { return InfoOf(kind).name; }

int64_t PanelBytes(PanelKind kind, int64_t k) { return k / InfoOf(kind).columns * InfoOf(kind).block_bytes; }

void PackPanel(quant::TypeId type, const std::byte* rows, int64_t n_rows, int64_t k, uint8_t* panel) {
  EntryOf(type)->pack(rows, n_rows, k, panel);
}

}  // namespace ridge::cpu
