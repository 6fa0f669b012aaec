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

enum class PanelKind : int { kF32, kF16, kBF16, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K, kCount };

// What a kind multiplies with: floats, or 8-bit quants with one scale per 32 or per 256 columns of a token.
enum class ActKind : int { kF32, kQ8x32, kQ8x256, kCount };

constexpr ActKind ActOf(PanelKind kind) {
  return kind <= PanelKind::kBF16 ? ActKind::kF32 : kind <= PanelKind::kQ8_0 ? ActKind::kQ8x32 : ActKind::kQ8x256;
}

// The quantized form of one token of k columns: scales (float) and sums (int32) beside its k quants.
constexpr int64_t ActScales(ActKind act, int64_t k) { return act == ActKind::kQ8x256 ? k / 256 : k / 32; }
constexpr int64_t ActSums(ActKind act, int64_t k) { return act == ActKind::kQ8x256 ? k / 16 : k / 32; }

// 4-bit quants of 32 columns: byte b of lane r in vector i holds k = 4 i + b in its low nibble and k = 16 + 4 i + b in its high one.
struct alignas(32) PanelQ4_0 {
  uint8_t q[4][64];
  uint16_t d[16];
};
struct alignas(64) PanelQ4_1 {
  uint8_t q[4][64];
  uint16_t d[16], m[16];
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
// Sub-block j holds k = 32 j .. 32 j + 31, its quants placed as in PanelQ4_0; 6-bit scales and minima expanded to bytes.
struct alignas(64) PanelQ4_K {
  uint8_t q[8][4][64];
  uint8_t sc[8][16], mn[8][16];
  uint16_t d[16], dm[16];
};
struct alignas(64) PanelQ5_K {
  uint8_t q[8][4][64];
  uint8_t h[8][64];
  uint8_t sc[8][16], mn[8][16];
  uint16_t d[16], dm[16];
};
// The upper two bits of group g of sub-block j are bits 2 (g % 4) .. 2 (g % 4) + 1 of h[j][g / 4]; one scale per 16 columns.
struct alignas(32) PanelQ6_K {
  uint8_t q[8][4][64];
  uint8_t h[8][2][64];
  int8_t sc[16][16];
  uint16_t d[16];
};
static_assert(sizeof(PanelQ4_0) == 16 * 18 && sizeof(PanelQ4_1) == 16 * 20 && sizeof(PanelQ5_0) == 16 * 22 &&
              sizeof(PanelQ5_1) == 16 * 24);
static_assert(sizeof(PanelQ8_0) == 16 * 34 && sizeof(PanelQ4_K) == 2368 && sizeof(PanelQ5_K) == 2880 &&
              sizeof(PanelQ6_K) == 16 * 210);

}  // namespace ridge::cpu
