// The blocks of every quantized GGUF tensor type, bit by bit. A row of a tensor is an array of them, without padding.
//
//   quant::BlockQ4_K block;
//   std::memcpy(&block, bytes, sizeof(block));   // float scale = quant::HalfToFloat(block.d);
//
// Guarantees: sizes and offsets are those of the file (static_assert); little-endian machines only. d, dmin, m are
// half-precision bits.
//
// How to read the drawings: "qs[i]  7..4 = q[i+16] | 3..0 = q[i]" says which bits of byte i hold which quant; q[n]
// belongs to element n. Source: ggml's ggml-common.h and the `gguf` Python package.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace ridge::quant {

static_assert(std::endian::native == std::endian::little, "GGUF blocks are read in place, as little-endian");

// ---------------------------------------------------------------- 32 elements a block

// x[n] = d * (q[n] - 8)
//   qs[i]   7..4 = q[i+16] | 3..0 = q[i]
struct BlockQ4_0 {
  static constexpr uint32_t kElements = 32;
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

// x[n] = d * q[n] + m
//   qs[i]   7..4 = q[i+16] | 3..0 = q[i]
struct BlockQ4_1 {
  static constexpr uint32_t kElements = 32;
  uint16_t d;
  uint16_t m;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

// x[n] = d * (q[n] - 16), q of 5 bits
//   qh[k]   bit b = bit 4 of q[8k+b]
//   qs[i]   7..4 = bits 3..0 of q[i+16] | 3..0 = bits 3..0 of q[i]
struct BlockQ5_0 {
  static constexpr uint32_t kElements = 32;
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

// x[n] = d * q[n] + m, q of 5 bits, packed as in Q5_0
struct BlockQ5_1 {
  static constexpr uint32_t kElements = 32;
  uint16_t d;
  uint16_t m;
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

// x[n] = d * qs[n]
struct BlockQ8_0 {
  static constexpr uint32_t kElements = 32;
  uint16_t d;
  int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

// x[n] = d * qs[n]; s = d * sum of qs. Activations of ggml's dot products, never weights in a file.
struct BlockQ8_1 {
  static constexpr uint32_t kElements = 32;
  uint16_t d;
  uint16_t s;
  int8_t qs[32];
};
static_assert(sizeof(BlockQ8_1) == 36);

// x[n] = 2^(e-128) * e2m1[q[n]], e2m1 = {0 1 2 3 4 6 8 12, 0 -1 -2 -3 -4 -6 -8 -12}: twice the values of the OCP
// Microscaling formats 1.0, and half its scale 2^(e-127)
//   qs[i]   7..4 = q[i+16] | 3..0 = q[i]
struct BlockMXFP4 {
  static constexpr uint32_t kElements = 32;
  uint8_t e;
  uint8_t qs[16];
};
static_assert(sizeof(BlockMXFP4) == 17);

// x[n] = d * iq4[q[n]], iq4 = 16 fixed signed values (iq4_tables.h)
//   qs[i]   7..4 = q[i+16] | 3..0 = q[i]
struct BlockIQ4_NL {
  static constexpr uint32_t kElements = 32;
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18);

// ---------------------------------------------------------------- 64 and 128 elements a block

// 4 groups of 16, group g = n/16: x[n] = ue4m3(d[g]) / 2 * e2m1[q[n]], e2m1 as in MXFP4
//   d[g]       6..3 = exponent, bias 7 | 2..0 = mantissa; 0 and 0x7f are 0; bit 7 counts for nothing otherwise
//   qs[8g+i]   7..4 = q[16g+i+8] | 3..0 = q[16g+i]
struct BlockNVFP4 {
  static constexpr uint32_t kElements = 64;
  uint8_t d[4];
  uint8_t qs[32];
};
static_assert(sizeof(BlockNVFP4) == 36);

// x[n] = d * (q[n] - 1)
//   qs[i]   7..6 = q[4i+3] | 5..4 = q[4i+2] | 3..2 = q[4i+1] | 1..0 = q[4i]
struct BlockQ2_0 {
  static constexpr uint32_t kElements = 64;
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ2_0) == 18);

// x[n] = q[n] ? d : -d
//   qs[i]   bit b = q[8i+b]
struct BlockQ1_0 {
  static constexpr uint32_t kElements = 128;
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ1_0) == 18);

// ---------------------------------------------------------------- 256 elements a block ("super-block"): K types

// 16 groups of 16, group s = n/16: x[n] = (d * sc[s]) * q[n] - dmin * mn[s]
//   scales[s]    7..4 = mn[s] | 3..0 = sc[s]
//   qs[32h+l]    7..6 = q[128h+96+l] | 5..4 = q[128h+64+l] | 3..2 = q[128h+32+l] | 1..0 = q[128h+l]     h < 2, l < 32
struct BlockQ2_K {
  static constexpr uint32_t kElements = 256;
  uint8_t scales[16];
  uint8_t qs[64];
  uint16_t d;
  uint16_t dmin;
};
static_assert(sizeof(BlockQ2_K) == 84);

// 16 groups of 16, group s = n/16: x[n] = (d * (sc[s] - 32)) * (q[n] - 4), sc of 6 bits, q of 3 bits
//   hmask[l]     bit k = bit 2 of q[32k+l]                                                              k < 8, l < 32
//   qs[32h+l]    bits 1..0 of q, placed as in Q2_K
//   scales[i]    7..4 = bits 3..0 of sc[i+8] | 3..0 = bits 3..0 of sc[i]                                i < 8
//   scales[8+i]  7..6 = bits 5..4 of sc[i+12] | 5..4 = of sc[i+8] | 3..2 = of sc[i+4] | 1..0 = of sc[i] i < 4
struct BlockQ3_K {
  static constexpr uint32_t kElements = 256;
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;
};
static_assert(sizeof(BlockQ3_K) == 110);

// 8 groups of 32, group s = n/32: x[n] = (d * sc[s]) * q[n] - dmin * mn[s], sc and mn of 6 bits
//   scales[i]    7..6 = bits 5..4 of sc[i+4] | 5..0 = sc[i]                                             i < 4
//   scales[4+i]  7..6 = bits 5..4 of mn[i+4] | 5..0 = mn[i]
//   scales[8+i]  7..4 = bits 3..0 of mn[i+4] | 3..0 = bits 3..0 of sc[i+4]
//   qs[32g+l]    7..4 = q[64g+32+l] | 3..0 = q[64g+l]                                                   g < 4, l < 32
struct BlockQ4_K {
  static constexpr uint32_t kElements = 256;
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

struct ScaleMin {
  int scale;
  int min;
};

// Scale and minimum of group s < 8 of a Q4_K or Q5_K block.
inline ScaleMin UnpackScaleMin(const uint8_t (&scales)[12], int s) {
  if (s < 4) return {scales[s] & 0x3f, scales[4 + s] & 0x3f};
  return {(scales[4 + s] & 0xf) | (scales[s - 4] >> 6) << 4, scales[4 + s] >> 4 | (scales[s] >> 6) << 4};
}

// As Q4_K with q of 5 bits
//   qh[l]        bit k = bit 4 of q[32k+l]                                                              k < 8, l < 32
//   qs[32g+l]    bits 3..0 of q, placed as in Q4_K
struct BlockQ5_K {
  static constexpr uint32_t kElements = 256;
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

// 16 groups of 16, group s = n/16: x[n] = (d * scales[s]) * (q[n] - 32), q of 6 bits
//   ql[64h+l]    7..4 = bits 3..0 of q[128h+64+l] | 3..0 = bits 3..0 of q[128h+l]                       h < 2, l < 64
//   qh[32h+l]    bits 5..4 of q, placed as in Q2_K                                                      h < 2, l < 32
struct BlockQ6_K {
  static constexpr uint32_t kElements = 256;
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

// x[n] = d * qs[n], d a float; bsums[s] = sum of qs[16s..16s+15]. ggml's activations for K types.
struct BlockQ8_K {
  static constexpr uint32_t kElements = 256;
  float d;
  int8_t qs[256];
  int16_t bsums[16];
};
static_assert(sizeof(BlockQ8_K) == 292);

// ---------------------------------------------------------------- 256 elements a block: ternary types

// x[n] = d * (t[n] - 1), t in {0, 1, 2}; a byte holds 5 (or 4) of them as ceil(256/243 * base-3 number, first element
// the highest digit): digit k is ((byte * 3^k mod 256) * 3) >> 8.
//   qs[l]        digit k = t[32k+l]          l < 32, k < 5
//   qs[32+l]     digit k = t[160+16k+l]      l < 16, k < 5
//   qh[l]        digit k = t[240+4k+l]       l < 4,  k < 4
struct BlockTQ1_0 {
  static constexpr uint32_t kElements = 256;
  uint8_t qs[48];
  uint8_t qh[4];
  uint16_t d;
};
static_assert(sizeof(BlockTQ1_0) == 54);

// x[n] = d * (q[n] - 1)
//   qs[32h+l]    2 bits each, placed as in Q2_K
struct BlockTQ2_0 {
  static constexpr uint32_t kElements = 256;
  uint8_t qs[64];
  uint16_t d;
};
static_assert(sizeof(BlockTQ2_0) == 66);

// ---------------------------------------------------------------- 256 elements a block: I types
//
// Groups of 8 (IQ3: of 4) elements are one row of a codebook, "grid" (iq1_tables.h, iq2_tables.h, iq3_tables.h).
// sign(byte): bit n set = element n of the group is negative. ksigns(7 bits) = those bits and, as bit 7, their parity,
// so that the number of negatives is even.

// 8 groups of 32, group s; j < 4, n < 8:
//   x[32s+8j+n] = (d * (0.5 + w[31..28]) / 4) * grid[g[j]][n] * sign(ksigns(w[7j+6..7j]))
//   qs[4s], qs[4s+1]     four bytes: g[0], g[1], g[2], g[3]
//   qs[4s+2], qs[4s+3]   w[15..0], w[31..16]
struct BlockIQ2_XXS {
  static constexpr uint32_t kElements = 256;
  uint16_t d;
  uint16_t qs[32];
};
static_assert(sizeof(BlockIQ2_XXS) == 66);

// 32 groups of 8, group i: x[8i+n] = (d * (0.5 + sc[i/2]) / 4) * grid[qs[i][8..0]][n] * sign(ksigns(qs[i][15..9]))
//   scales[k]    7..4 = sc[2k+1] | 3..0 = sc[2k]
struct BlockIQ2_XS {
  static constexpr uint32_t kElements = 256;
  uint16_t d;
  uint16_t qs[32];
  uint8_t scales[8];
};
static_assert(sizeof(BlockIQ2_XS) == 74);

// 32 groups of 8, group i: x[8i+n] = (d * (0.5 + sc[i/2]) / 4) * grid[qs[i] | hi[i] << 8][n] * sign(signs[i])
//   qh[k]        7..6 = hi[4k+3] | 5..4 = hi[4k+2] | 3..2 = hi[4k+1] | 1..0 = hi[4k]
//   scales[k]    7..4 = sc[2k+1] | 3..0 = sc[2k]
struct BlockIQ2_S {
  static constexpr uint32_t kElements = 256;
  uint16_t d;
  uint8_t qs[32];
  uint8_t signs[32];
  uint8_t qh[8];
  uint8_t scales[8];
};
static_assert(sizeof(BlockIQ2_S) == 82);

// 8 groups of 32, group s; i < 8, n < 4, j = i/2, sign bit 4(i%2)+n:
//   x[32s+4i+n] = (d * (0.5 + w[31..28]) / 2) * grid[qs[8s+i]][n] * sign(ksigns(w[7j+6..7j]))
//   scales_signs[4s..4s+3]   the 32 bits w
struct BlockIQ3_XXS {
  static constexpr uint32_t kElements = 256;
  uint16_t d;
  uint8_t qs[64];
  uint8_t scales_signs[32];
};
static_assert(sizeof(BlockIQ3_XXS) == 98);

// 64 groups of 4, group i; sign bit 4(i%2)+n:
//   x[4i+n] = (d * (1 + 2*sc[i/8])) * grid[qs[i] | hi[i] << 8][n] * sign(signs[i/2])
//   qh[k]        bit b = hi[8k+b]
//   scales[k]    7..4 = sc[2k+1] | 3..0 = sc[2k]
struct BlockIQ3_S {
  static constexpr uint32_t kElements = 256;
  uint16_t d;
  uint8_t qs[64];
  uint8_t qh[8];
  uint8_t signs[32];
  uint8_t scales[4];
};
static_assert(sizeof(BlockIQ3_S) == 110);

// 8 groups of 32, group s; j < 4, n < 8:
//   x[32s+8j+n] = (d * (1 + 2*qh[s][14..12])) * (grid[qs[4s+j] | qh[s][3j+2..3j] << 8][n] + (qh[s][15] ? -1/8 : 1/8))
struct BlockIQ1_S {
  static constexpr uint32_t kElements = 256;
  uint16_t d;
  uint8_t qs[32];
  uint16_t qh[8];
};
static_assert(sizeof(BlockIQ1_S) == 50);

// 32 groups of 8, group i:
//   x[8i+n] = (d * (1 + 2*sc[i/2])) * (grid[qs[i] | hi[i][2..0] << 8][n] + (hi[i][3] ? -1/8 : 1/8))
//   qh[k]        7..4 = hi[2k+1] | 3..0 = hi[2k]
//   scales[2k] | scales[2k+1] << 8    15..12 = bits 4k+3..4k of d | 11..9 = sc[4k+3] | 8..6 = sc[4k+2] |   k < 4
//                                     5..3 = sc[4k+1] | 2..0 = sc[4k]
struct BlockIQ1_M {
  static constexpr uint32_t kElements = 256;
  uint8_t qs[32];
  uint8_t qh[16];
  uint8_t scales[8];
};
static_assert(sizeof(BlockIQ1_M) == 56);

// 8 groups of 32, group s: x[32s+n] = (d * (sc[s] - 32)) * iq4[q[32s+n]], sc of 6 bits, iq4 as in IQ4_NL
//   scales_h     2s+1..2s = bits 5..4 of sc[s]
//   scales_l[k]  7..4 = bits 3..0 of sc[2k+1] | 3..0 = bits 3..0 of sc[2k]
//   qs[16s+l]    7..4 = q[32s+16+l] | 3..0 = q[32s+l]                                                   l < 16
struct BlockIQ4_XS {
  static constexpr uint32_t kElements = 256;
  uint16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};
static_assert(sizeof(BlockIQ4_XS) == 136);

}  // namespace ridge::quant
