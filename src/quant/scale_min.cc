#include "quant/scale_min.h"

#include <cmath>

#include "quant/fit.h"
#include "quant/half.h"
#include "quant/rounding.h"

namespace ridge::quant {

int ScaledGroups::Quant(float x, int s, int q_max) const {
  return NearestEven((x + minimum[s]) * inverse[s], 0, q_max);
}

ScaledGroups EncodeScaleMins(const float* in, int q_max) {
  float scales[8];
  float mins[8];
  for (int s = 0; s < 8; ++s) {
    const float* x = in + 32 * s;
    float sum = 0;
    for (int l = 0; l < 32; ++l) sum += x[l] * x[l];
    const float rms = std::sqrt(sum / 32);
    float weights[32];
    for (int l = 0; l < 32; ++l) weights[l] = rms + std::fabs(x[l]);
    const AffineFit fit = FitAffine({x, 32}, weights, q_max);
    scales[s] = fit.scale;
    mins[s] = fit.min;
  }
  ScaledGroups groups{};
  groups.d = FloatToHalf(RangeOf(scales, 8).high / 63);
  groups.dmin = FloatToHalf(RangeOf(mins, 8).high / 63);
  const float d = HalfToFloat(groups.d);  // as a decoder will see it: small weights have a subnormal one
  const float dmin = HalfToFloat(groups.dmin);
  for (int s = 0; s < 8; ++s) {
    const ScaleMin group = {NearestEven(scales[s] * Inverse(d), 0, 63), NearestEven(mins[s] * Inverse(dmin), 0, 63)};
    groups.scale_mins[s] = group;
    groups.inverse[s] = Inverse(d * static_cast<float>(group.scale));
    groups.minimum[s] = dmin * static_cast<float>(group.min);
  }
  return groups;
}

void PackScaleMin(uint8_t (&scales)[12], int s, ScaleMin group) {
  if (s < 4) {
    scales[s] |= static_cast<uint8_t>(group.scale);
    scales[4 + s] |= static_cast<uint8_t>(group.min);
    return;
  }
  scales[4 + s] |= static_cast<uint8_t>((group.scale & 0xf) | (group.min & 0xf) << 4);
  scales[s - 4] |= static_cast<uint8_t>((group.scale >> 4) << 6);
  scales[s] |= static_cast<uint8_t>((group.min >> 4) << 6);
}

}  // namespace ridge::quant
