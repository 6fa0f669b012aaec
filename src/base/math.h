// Elementary functions that give the same bits on every machine: RoPE tables, the sampler and log-probabilities use
// these, never libm.
//
//   double p = Exp(logit - max);
//   SinCosPair rotation = SinCos(position * frequency);
//
// Guarantees: only IEEE double +, -, * and /, in a written order, so results do not depend on the C library, the ISA or
// the compiler (the project is built with -ffp-contract=off and without -ffast-math; rounding mode: to nearest).
// Relative error at most 1e-15 over the normal range; special values as in C's math.h. Thread-safe, no state.
#pragma once

#include <span>

namespace ridge {

struct SinCosPair {
  double sin = 0.0;
  double cos = 1.0;
};

// Largest |x| that Sin, Cos and SinCos accept: up to there the reduction modulo pi/2 is exact to below 1e-30. Beyond it
// they return NaN.
inline constexpr double kMaxSinCosArgument = 1.0e8;

double Exp(double x);                    // overflow: inf; below -745.13: 0; subnormal results are rounded twice
void ExpEach(std::span<double> values);  // each becomes its Exp, bit for bit; several at once, so much faster
double Log(double x);                    // negative: NaN; 0: -inf
double Log1p(double x);                  // log(1 + x), accurate for small x
double Pow(double x, double y);          // every special case of C's pow
double Sin(double x);
double Cos(double x);
SinCosPair SinCos(double x);

}  // namespace ridge
