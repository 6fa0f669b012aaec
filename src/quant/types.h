// The one list of tensor types, by increasing id. A new type: its file (which defines kType<NAME>), its TypeId, one
// line here.
//
//   #define X(name) &kType##name,
//   const Type* all[] = {RIDGE_QUANT_TYPES(X)};
//
// Guarantees: every kType object is constant-initialized. For the module itself; others use quant.h.
#pragma once

#include "quant/quant.h"

#define RIDGE_QUANT_TYPES(X) \
  X(F32)                     \
  X(F16)                     \
  X(Q4_0)                    \
  X(Q4_1)                    \
  X(Q5_0)                    \
  X(Q5_1)                    \
  X(Q8_0)                    \
  X(Q8_1)                    \
  X(Q4_K)                    \
  X(Q5_K)                    \
  X(Q6_K)                    \
  X(I8)                      \
  X(I16)                     \
  X(I32)                     \
  X(I64)                     \
  X(F64)                     \
  X(BF16)

namespace ridge::quant {

#define RIDGE_QUANT_DECLARE(name) extern const Type kType##name;
RIDGE_QUANT_TYPES(RIDGE_QUANT_DECLARE)
#undef RIDGE_QUANT_DECLARE

}  // namespace ridge::quant
