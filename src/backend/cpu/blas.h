// OpenBLAS for prefill, as an experiment variable (--matmul blas): never the default, and not bit-stable.
//
//   RIDGE_ASSIGN_OR_RETURN(const Blas blas, LoadBlas(4));
//   blas.sgemm(...);   // cblas_sgemm
//
// Guarantee: the library is loaded only when it is asked for, so that its threads and start-up cost nobody else anything.
#pragma once

#include "base/result.h"

namespace ridge::cpu {

struct Blas {
  // cblas_sgemm with its usual arguments: order, transposes, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc.
  void (*sgemm)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*,
                int) = nullptr;
};
constexpr int kBlasRowMajor = 101, kBlasNoTranspose = 111, kBlasTranspose = 112;  // values of the CBLAS standard

constexpr long kBlasTokens = 32;      // products of fewer tokens stay with our own kernels
constexpr long kBlasBlockRows = 512;  // rows of a matrix that are decoded and multiplied at once

// Errors: kUnsupported (built without OpenBLAS), kUnavailable (it was there then and cannot be loaded now).
Result<Blas> LoadBlas(int n_threads);

}  // namespace ridge::cpu
