// One 4-way dot product into int32 sums, for code that has no use for the short sums of simd_*.h.
//
//   acc = Dot(acc, w, quad);   // acc[lane] += sum of the lane's 4 bytes w (below 128) times the 4 signed bytes of quad
//   acc = DotWide(acc, w, quad);   // w up to 255, stored with 128 added: kWideOffset * sum of quad too much
#pragma once

#include "kernels.h"

namespace RIDGE_ISA {

template <class Acc>
static inline Acc Dot(Acc acc, B w, int32_t quad) {
  if constexpr (ShortGroups(127) < 8)
    return IAdd(acc, SFold(SDot(SZero(), w, ISet(quad))));
  else
    return SDot(acc, w, ISet(quad));
}

template <class Acc>
static inline Acc DotWide(Acc acc, B w, int32_t quad) {
  if constexpr (ShortGroups(127) < 8)
    return IAdd(acc, SFold(SDotWide(SZero(), w, ISet(quad))));
  else
    return SDotWide(acc, w, ISet(quad));
}

}  // namespace RIDGE_ISA
