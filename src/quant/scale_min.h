// The scales and minimums of 6 bits that Q4_K and Q5_K share: finding, packing.
//
//   ScaledGroups groups = EncodeScaleMins(in, 15);             // in [256], q in 0..15
//   PackScaleMin(block.scales, s, groups.scale_mins[s]);       // UnpackScaleMin is in blocks.h
//   int q = groups.Quant(in[32 * s + l], s, 15);
//
// Guarantees: Quant is the best quant for the scale and minimum as a decoder will see them, rounded to half and 6 bits.
#pragma once

#include "quant/blocks.h"

namespace ridge::quant {

struct ScaledGroups {
  uint16_t d;
  uint16_t dmin;
  ScaleMin scale_mins[8];
  float inverse[8];
  float minimum[8];

  int Quant(float x, int s, int q_max) const;
};

ScaledGroups EncodeScaleMins(const float* in, int q_max);

void PackScaleMin(uint8_t (&scales)[12], int s, ScaleMin group);  // into zeroed bytes

}  // namespace ridge::quant
