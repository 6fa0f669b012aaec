// Panels: 16 rows of a weight matrix, interleaved so that lane r of a vector belongs to row r. One layout per kind serves every ISA:
// 512-bit targets read a panel whole, narrower ones in two or more passes over parts of its lanes.
//
//   q[g][4 * r + b] is the quant of row r at k = 4 g + b: 4 bytes a lane, as the 8-bit dot product instructions take them.
//
// Block structs below hold 16 rows x 32 or x 256 columns. A panel is an array of them over k. Lanes past the last row are zero.
// Plain data and C headers only: this folder is compiled with flags for CPUs that the host may not be (tools/check_layers.py).
#pragma once

#include <stdint.h>

namespace ridge::cpu {

constexpr int kPanelRows = 16;

// clang-format off
enum class PanelKind : int {
  kF32, kF16, kBF16,                                                              // floats
  kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kIQ4_NL, kMXFP4, kNVFP4, kQ2_0,              // blocks of 32 columns
  kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ4_XS, kIQ3_XXS, kIQ3_S,                  // blocks of 256
  kIQ2_XXS, kIQ2, kIQ1_S, kIQ1_M, kTQ,
  kCount
};
// clang-format on

// Tokens of the largest tile of a kind, where the registers hold `most`.
constexpr int TileTokens(PanelKind kind, int most) {
  return kind == PanelKind::kNVFP4 && most > 4 ? 4 : most;  // its two scales leave no registers for eight
}

// What a kind multiplies with: floats, or 8-bit quants with one scale per 32 or per 256 columns of a token.
enum class ActKind : int { kF32, kQ8x32, kQ8x256, kCount };

constexpr ActKind ActOf(PanelKind kind) {
  return kind <= PanelKind::kBF16 ? ActKind::kF32 : kind <= PanelKind::kQ2_0 ? ActKind::kQ8x32 : ActKind::kQ8x256;
}

// The quantized form of one token of k columns, beside its k quants:
// Scales are floats, sums are counted in int32:
//   kQ8x32   scales: d [k / 32], then d * sum [k / 32];  sums: of each 32 quants, int32 [k / 32]
//   kQ8x256  scales: d [k / 256];                        sums: int16, of each 16 quants [k / 16], then of each 32 [k / 32]
constexpr int64_t ActScales(ActKind act, int64_t k) { return act == ActKind::kQ8x256 ? k / 256 : 2 * (k / 32); }
constexpr int64_t ActSums(ActKind act, int64_t k) { return act == ActKind::kQ8x256 ? 3 * (k / 64) : k / 32; }

// ---------------------------------------------------------------- blocks of 32 columns

// 4 bits: byte b of lane r in vector i holds k = 4 i + b in its low nibble and k = 16 + 4 i + b in its high one.
// IQ4_NL: the nibble is an index into its table. MXFP4: the same, and d is a bfloat16, which holds every power of two of its scale.
struct alignas(32) PanelQ4_0 {
  uint8_t q[4][64];
  uint16_t d[16];
};
struct alignas(64) PanelQ4_1 {
  uint8_t q[4][64];
  uint16_t d[16], m[16];
};
// One scale for 16 columns.
struct alignas(64) PanelNVFP4 {
  uint8_t q[4][64];
  uint16_t d[2][16];
};
// The fifth bit of group g (k = 4 g .. 4 g + 3) is bit g of the lane's bytes in h.
struct alignas(32) PanelQ5_0 {
  uint8_t q[4][64];
  uint8_t h[64];
  uint16_t d[16];
};
struct alignas(64) PanelQ5_1 {
  uint8_t q[4][64];
  uint8_t h[64];
  uint16_t d[16], m[16];
};
// Signed quants, stored with 128 added.
struct alignas(32) PanelQ8_0 {
  uint8_t q[8][64];
  uint16_t d[16];
};
// 2 bits: group g is bits 2 (g % 4) .. 2 (g % 4) + 1 of q[g / 4].
struct alignas(32) PanelQ2_0 {
  uint8_t q[2][64];
  uint16_t d[16];
};

// ---------------------------------------------------------------- blocks of 256 columns
// Sub-block j holds k = 32 j .. 32 j + 31, its quants placed as above. Integer scales are bytes in pairs: those of two neighbouring
// sub-blocks (one scale per 32 columns, pair j / 2), or of the two halves of a sub-block (one per 16, pair j).

struct alignas(64) PanelQ4_K {
  uint8_t q[8][4][64];
  int8_t sc[4][16][2], mn[4][16][2];
  uint16_t d[16], dm[16];
};
struct alignas(64) PanelQ5_K {
  uint8_t q[8][4][64];
  uint8_t h[8][64];
  int8_t sc[4][16][2], mn[4][16][2];
  uint16_t d[16], dm[16];
};
// The upper two bits of group g of sub-block j are bits 2 (g % 4) .. 2 (g % 4) + 1 of h[j][g / 4].
struct alignas(32) PanelQ6_K {
  uint8_t q[8][4][64];
  uint8_t h[8][2][64];
  int8_t sc[8][16][2];
  uint16_t d[16];
};
struct alignas(64) PanelQ2_K {
  uint8_t q[8][2][64];
  int8_t sc[8][16][2], mn[8][16][2];
  uint16_t d[16], dm[16];
};
// 3 bits: two as in PanelQ2_0, the third of group g is bit g of h. IQ2_XXS and IQ1_S: an index into the table of their values.
struct alignas(32) PanelQ3x32 {
  uint8_t q[8][2][64];
  uint8_t h[8][64];
  int8_t sc[4][16][2];
  uint16_t d[16];
};
// The same with a scale for 16: Q3_K, the other IQ2 types, IQ1_M.
struct alignas(32) PanelQ3 {
  uint8_t q[8][2][64];
  uint8_t h[8][64];
  int8_t sc[8][16][2];
  uint16_t d[16];
};
// 4 bits, an index into the table of the type's values: IQ4_XS, IQ3_XXS, IQ3_S.
struct alignas(32) PanelIQ4 {
  uint8_t q[8][4][64];
  int8_t sc[4][16][2];
  uint16_t d[16];
};
// Ternary, no inner scales.
struct alignas(32) PanelTQ {
  uint8_t q[8][2][64];
  uint16_t d[16];
};

static_assert(sizeof(PanelQ4_0) == 16 * 18 && sizeof(PanelQ4_1) == 16 * 20 && sizeof(PanelNVFP4) == 16 * 20 &&
              sizeof(PanelQ5_0) == 16 * 22 && sizeof(PanelQ5_1) == 16 * 24 && sizeof(PanelQ8_0) == 16 * 34 &&
              sizeof(PanelQ2_0) == 16 * 10);
static_assert(sizeof(PanelQ4_K) == 2368 && sizeof(PanelQ5_K) == 2880 && sizeof(PanelQ6_K) == 16 * 210 &&
              sizeof(PanelQ2_K) == 1600 && sizeof(PanelQ3) == 16 * 114 && sizeof(PanelQ3x32) == 16 * 106 &&
              sizeof(PanelIQ4) == 16 * 138 && sizeof(PanelTQ) == 16 * 66);

}  // namespace ridge::cpu
