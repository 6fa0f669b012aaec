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
  X(Q2_K)                    \
  X(Q3_K)                    \
  X(Q4_K)                    \
  X(Q5_K)                    \
  X(Q6_K)                    \
  X(Q8_K)                    \
  X(IQ2_XXS)                 \
  X(IQ2_XS)                  \
  X(IQ3_XXS)                 \
  X(IQ1_S)                   \
  X(IQ4_NL)                  \
  X(IQ3_S)                   \
  X(IQ2_S)                   \
  X(IQ4_XS)                  \
  X(I8)                      \
  X(I16)                     \
  X(I32)                     \
  X(I64)                     \
  X(F64)                     \
  X(IQ1_M)                   \
  X(BF16)                    \
  X(TQ1_0)                   \
  X(TQ2_0)                   \
  X(MXFP4)                   \
  X(NVFP4)                   \
  X(Q1_0)                    \
  X(Q2_0)

namespace ridge::quant {

#define RIDGE_QUANT_DECLARE(name) extern const Type kType##name;
RIDGE_QUANT_TYPES(RIDGE_QUANT_DECLARE)
#undef RIDGE_QUANT_DECLARE

}  // namespace ridge::quant
