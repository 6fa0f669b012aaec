// How the quants of each panel kind become the unsigned bytes that the dot products take. Written once for every target.
//
//   using K = Kind<PanelKind::kQ4_K>;
//   B w = K::Group<3>(block, j, h);   // k = 32 j + 12 .. 32 j + 15 of the rows from lane h on
//
// A quant's value is its byte less K::kOffset (128 of kWide kinds: SDotWide). kMax bounds the byte, which is how a target without a
// 4-way dot product knows how many products fit 16 bits.
#pragma once

#include "kernels.h"

namespace RIDGE_ISA {

using namespace ridge::cpu;

// ---------------------------------------------------------------- groups of 4 columns

template <int g>
static inline B Nibbles(const uint8_t (*q)[64], int h) {
  const B v = BLoad(q[g % 4] + 4 * h);
  return g < 4 ? BLow4(v) : BHigh4(v);
}

template <int g>
static inline B Pairs(const uint8_t (*q)[64], int h) {
  return BField2<g % 4>(BLoad(q[g / 4] + 4 * h));
}

// The values that codebook types are made of, less the smallest of them. Sources: the types' definitions in quant/blocks.h.
alignas(16) static const uint8_t kTableIQ4[16] = {
    1,   24,  45,  63,  79,  93,  106, 118,  // -127 -104 -83 ...: 128 added
    129, 141, 153, 166, 181, 197, 217, 241};
alignas(16) static const uint8_t kTableE2m1[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
// 8 magnitudes, then the same negative.
alignas(16) static const uint8_t kTableIQ3_XXS[16] = {66, 74, 82, 90, 98, 106, 114, 124, 58, 50, 42, 34, 26, 18, 10, 0};
alignas(16) static const uint8_t kTableIQ3_S[16] = {16, 18, 20, 22, 24, 26, 28, 30, 14, 12, 10, 8, 6, 4, 2, 0};
// -43 -25 -8 8 25 43
alignas(16) static const uint8_t kTableIQ2[16] = {0, 18, 35, 51, 68, 86};
// -9 -7 -1 1 7 9
alignas(16) static const uint8_t kTableIQ1[16] = {0, 2, 8, 10, 16, 18};

// ---------------------------------------------------------------- kinds

enum class ScaleOf {
  kBlock32,   // a half-precision scale for 32 columns
  kBlock16,   // one for 16
  kInt32,     // blocks of 256 with a half-precision scale and an integer one for 32
  kInt16,     // ... for 16
  kBlock256,  // blocks of 256 with one scale
};

template <PanelKind kind>
struct Kind;

template <class Panel, ScaleOf kScaleOf, int kMaxByte, int kOffsetOf, bool kMinimum = false, bool kWideBytes = false>
struct KindBase {
  using Block = Panel;
  static constexpr ScaleOf kScale = kScaleOf;
  static constexpr int kMax = kMaxByte;
  static constexpr int kOffset = kOffsetOf;
  static constexpr bool kMin = kMinimum;
  static constexpr bool kWide = kWideBytes;
  static constexpr float kFactor = 1;          // of d
  static constexpr int64_t kMany = INT64_MAX;  // tokens from which unpacking once for all of them pays
  static inline F Scale(const uint16_t* d) { return FHalf(d); }
};

template <>
struct Kind<PanelKind::kQ4_0> : KindBase<PanelQ4_0, ScaleOf::kBlock32, 15, 8> {
  template <int g>
  static inline B Group(const Block& b, int, int h) {
    return Nibbles<g>(b.q, h);
  }
};
template <>
struct Kind<PanelKind::kQ4_1> : KindBase<PanelQ4_1, ScaleOf::kBlock32, 15, 0, true> {
  template <int g>
  static inline B Group(const Block& b, int, int h) {
    return Nibbles<g>(b.q, h);
  }
};
template <>
struct Kind<PanelKind::kQ5_0> : KindBase<PanelQ5_0, ScaleOf::kBlock32, 31, 16> {
  template <int g>
  static inline B Group(const Block& b, int, int h) {
    return BOr(Nibbles<g>(b.q, h), BBitTo4<g>(BLoad(b.h + 4 * h)));
  }
};
template <>
struct Kind<PanelKind::kQ5_1> : KindBase<PanelQ5_1, ScaleOf::kBlock32, 31, 0, true> {
  static constexpr int64_t kMany = 17;
  template <int g>
  static inline B Group(const Block& b, int, int h) {
    return BOr(Nibbles<g>(b.q, h), BBitTo4<g>(BLoad(b.h + 4 * h)));
  }
};
template <>
struct Kind<PanelKind::kQ8_0> : KindBase<PanelQ8_0, ScaleOf::kBlock32, 255, 128, false, true> {
  template <int g>
  static inline B Group(const Block& b, int, int h) {
    return BLoad(b.q[g] + 4 * h);
  }
};
template <>
struct Kind<PanelKind::kIQ4_NL> : KindBase<PanelQ4_0, ScaleOf::kBlock32, 255, 128, false, true> {
  template <int g>
  static inline B Group(const Block& b, int, int h) {
    return BTable(kTableIQ4, Nibbles<g>(b.q, h));
  }
};
template <>
struct Kind<PanelKind::kMXFP4> : KindBase<PanelQ4_0, ScaleOf::kBlock32, 24, 12> {
  template <int g>
  static inline B Group(const Block& b, int, int h) {
    return BTable(kTableE2m1, Nibbles<g>(b.q, h));
  }
  static inline F Scale(const uint16_t* d) { return FBf16(d); }
};
template <>
struct Kind<PanelKind::kNVFP4> : KindBase<PanelNVFP4, ScaleOf::kBlock16, 24, 12> {
  template <int g>
  static inline B Group(const Block& b, int, int h) {
    return BTable(kTableE2m1, Nibbles<g>(b.q, h));
  }
};
template <>
struct Kind<PanelKind::kQ2_0> : KindBase<PanelQ2_0, ScaleOf::kBlock32, 3, 1> {
  template <int g>
  static inline B Group(const Block& b, int, int h) {
    return Pairs<g>(b.q, h);
  }
};
template <>
struct Kind<PanelKind::kQ2_K> : KindBase<PanelQ2_K, ScaleOf::kInt16, 3, 0, true> {
  template <int g>
  static inline B Group(const Block& b, int j, int h) {
    return Pairs<g>(b.q[j], h);
  }
};
template <>
struct Kind<PanelKind::kQ3_K> : KindBase<PanelQ3, ScaleOf::kInt16, 7, 4> {
  static constexpr int64_t kMany = 9;
  template <int g>
  static inline B Group(const Block& b, int j, int h) {
    return BOr(Pairs<g>(b.q[j], h), BBitTo2<g>(BLoad(b.h[j] + 4 * h)));
  }
};
template <>
struct Kind<PanelKind::kQ4_K> : KindBase<PanelQ4_K, ScaleOf::kInt32, 15, 0, true> {
  template <int g>
  static inline B Group(const Block& b, int j, int h) {
    return Nibbles<g>(b.q[j], h);
  }
};
template <>
struct Kind<PanelKind::kQ5_K> : KindBase<PanelQ5_K, ScaleOf::kInt32, 31, 0, true> {
  static constexpr int64_t kMany = 17;
  template <int g>
  static inline B Group(const Block& b, int j, int h) {
    return BOr(Nibbles<g>(b.q[j], h), BBitTo4<g>(BLoad(b.h[j] + 4 * h)));
  }
};
template <>
struct Kind<PanelKind::kQ6_K> : KindBase<PanelQ6_K, ScaleOf::kInt16, 63, 32> {
  static constexpr int64_t kMany = 9;
  template <int g>
  static inline B Group(const Block& b, int j, int h) {
    return BOr(Nibbles<g>(b.q[j], h), BPairTo4<g % 4>(BLoad(b.h[j][g / 4] + 4 * h)));
  }
};
template <>
struct Kind<PanelKind::kIQ4_XS> : KindBase<PanelIQ4, ScaleOf::kInt32, 255, 128, false, true> {
  template <int g>
  static inline B Group(const Block& b, int j, int h) {
    return BTable(kTableIQ4, Nibbles<g>(b.q[j], h));
  }
};
// d * (1/2 + s) / 2 = d / 4 * (2 s + 1)
template <>
struct Kind<PanelKind::kIQ3_XXS> : KindBase<PanelIQ4, ScaleOf::kInt32, 124, 62> {
  static constexpr float kFactor = 0.25f;
  template <int g>
  static inline B Group(const Block& b, int j, int h) {
    return BTable(kTableIQ3_XXS, Nibbles<g>(b.q[j], h));
  }
};
template <>
struct Kind<PanelKind::kIQ3_S> : KindBase<PanelIQ4, ScaleOf::kInt32, 30, 15> {
  template <int g>
  static inline B Group(const Block& b, int j, int h) {
    return BTable(kTableIQ3_S, Nibbles<g>(b.q[j], h));
  }
};
// d * (1/2 + s) / 4 = d / 8 * (2 s + 1)
template <class Panel, ScaleOf kScaleOf>
struct KindIQ2 : KindBase<Panel, kScaleOf, 86, 43> {
  static constexpr float kFactor = 0.125f;
  template <int g>
  static inline B Group(const Panel& b, int j, int h) {
    return BTable(kTableIQ2, BOr(Pairs<g>(b.q[j], h), BBitTo2<g>(BLoad(b.h[j] + 4 * h))));
  }
};
template <>
struct Kind<PanelKind::kIQ2_XXS> : KindIQ2<PanelQ3x32, ScaleOf::kInt32> {
  static constexpr int64_t kMany = 17;
};
template <>
struct Kind<PanelKind::kIQ2> : KindIQ2<PanelQ3, ScaleOf::kInt16> {
  static constexpr int64_t kMany = 9;
};
// The codebook's -1, 0, 1 plus or minus 1/8, times 8.
template <class Panel, ScaleOf kScaleOf>
struct KindIQ1 : KindBase<Panel, kScaleOf, 18, 9> {
  static constexpr float kFactor = 0.125f;
  template <int g>
  static inline B Group(const Panel& b, int j, int h) {
    return BTable(kTableIQ1, BOr(Pairs<g>(b.q[j], h), BBitTo2<g>(BLoad(b.h[j] + 4 * h))));
  }
};
template <>
struct Kind<PanelKind::kIQ1_S> : KindIQ1<PanelQ3x32, ScaleOf::kInt32> {
  static constexpr int64_t kMany = 17;
};
template <>
struct Kind<PanelKind::kIQ1_M> : KindIQ1<PanelQ3, ScaleOf::kInt16> {
  static constexpr int64_t kMany = 9;
};
template <>
struct Kind<PanelKind::kTQ> : KindBase<PanelTQ, ScaleOf::kBlock256, 3, 1> {
  template <int g>
  static inline B Group(const Block& b, int j, int h) {
    return Pairs<g>(b.q[j], h);
  }
};

}  // namespace RIDGE_ISA
