#include "base/math.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace ridge {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ln 2 = kLn2High + kLn2Low; the high part has 36 significant bits, so its product with any |k| < 2^17 is exact.
constexpr double kLn2High = 0x1.62e42fefap-1;
constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;
constexpr double kLog2E = 0x1.71547652b82fep+0;

// pi/2 in pieces of 27 bits: products with any |n| < 2^26 are exact.
constexpr double kPio2[] = {0x1.921fb54p+0, 0x1.10b461p-30, 0x1.a62633p-58, 0x1.45c06ep-86, 0x1.cd129024e088ap-115};
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

// Adding and subtracting 1.5 * 2^52 rounds to the nearest integer for |x| < 2^51, without a library call.
constexpr double kRoundShift = 0x1.8p+52;
double RoundToInteger(double x) { return (x + kRoundShift) - kRoundShift; }

double PowerOfTwo(int k) { return std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52); }  // -1022 <= k <= 1023

struct Double2 {  // an unevaluated sum, |low| <= ulp(high) / 2
  double high;
  double low;
};

// Knuth's two-sum and Dekker's product: the exact sum and the exact product as a Double2. The product splits its
// factors into halves of 26 bits; factors must stay below 2^990.
Double2 TwoSum(double a, double b) {
  const double s = a + b;
  const double t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}

Double2 TwoProduct(double a, double b) {
  constexpr double kSplit = 134217729.0;  // 2^27 + 1
  const double p = a * b;
  const double ta = kSplit * a, ah = ta - (ta - a), al = a - ah;
  const double tb = kSplit * b, bh = tb - (tb - b), bl = b - bh;
  return {p, ((ah * bh - p) + ah * bl + al * bh) + al * bl};
}

// exp(x) = m * 2^kd for x inside [-746, 710], times (1 + correction).
struct ExpParts {
  double m, kd;
};
[[gnu::always_inline]] inline ExpParts ExpInParts(double x, double correction) {
  const double kd = RoundToInteger(x * kLog2E);
  const double r = (x - kd * kLn2High) - kd * kLn2Low;  // |r| <= 0.3466
  // Taylor terms to r^13: the next one is below 4e-18 of the result. Pairs are independent so that they overlap in the
  // pipeline.
  constexpr double c2 = 1.0 / 2, c3 = 1.0 / 6, c4 = 1.0 / 24, c5 = 1.0 / 120, c6 = 1.0 / 720, c7 = 1.0 / 5040;
  constexpr double c8 = 1.0 / 40320, c9 = 1.0 / 362880, c10 = 1.0 / 3628800, c11 = 1.0 / 39916800;
  constexpr double c12 = 1.0 / 479001600, c13 = 1.0 / 6227020800.0;
  const double r2 = r * r;
  const double r4 = r2 * r2;
  const double low = (c2 + r * c3) + r2 * (c4 + r * c5);
  const double middle = (c6 + r * c7) + r2 * (c8 + r * c9);
  const double high = (c10 + r * c11) + r2 * (c12 + r * c13);
  const double tail = r2 * (low + r4 * (middle + r4 * high));
  return {1.0 + (r + (tail + correction * (1.0 + (r + tail)))), kd};
}

double ExpInRange(double x, double correction) {
  const auto [m, kd] = ExpInParts(x, correction);
  const int k = static_cast<int>(kd);
  // Two steps at both ends of the range, where 2^k itself is not a normal double.
  if (k > 1023) return m * PowerOfTwo(1023) * PowerOfTwo(k - 1023);
  if (k < -1022) return m * PowerOfTwo(k + 1000) * PowerOfTwo(-1000);
  return m * PowerOfTwo(k);
}

struct Split {  // x = m * 2^e, m in [sqrt(1/2), sqrt(2))
  double m;
  int e;
};

Split SplitExponent(double x) {  // x positive, finite
  int e = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    e = -54;
  }
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  e += static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL);
  if (m > 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    ++e;
  }
  return {m, e};
}

// 2 atanh(s) - 2s = s^3 (2/3 + 2/5 s^2 + ...) for |s| <= 0.1716; the first term left out is below 1e-18 of the result.
double AtanhTail(double s) {
  const double z = s * s;
  const double z2 = z * z;
  const double z4 = z2 * z2;
  const double low = (2.0 / 3 + z * (2.0 / 5)) + z2 * (2.0 / 7 + z * (2.0 / 9));
  const double middle = (2.0 / 11 + z * (2.0 / 13)) + z2 * (2.0 / 15 + z * (2.0 / 17));
  const double high = (2.0 / 19 + z * (2.0 / 21)) + z2 * (2.0 / 23);
  return s * z * (low + z4 * (middle + z4 * high));
}

// log(x) to about 2^-65 relative to its own size: what Pow needs, because exp turns absolute into relative error.
Double2 LogDouble2(double x) {
  const Split split = SplitExponent(x);
  const double f = split.m - 1.0;  // exact
  const Double2 d = TwoSum(2.0, f);
  const double s = f / d.high;
  const Double2 back = TwoProduct(s, d.high);
  const double s_low = (((f - back.high) - back.low) - s * d.low) / d.high;
  const double e = split.e;
  const Double2 sum = TwoSum(e * kLn2High, 2.0 * s);
  const Double2 sum2 = TwoSum(sum.high, AtanhTail(s));
  return TwoSum(sum2.high, ((sum2.low + sum.low) + e * kLn2Low) + 2.0 * s_low);
}

double SinPolynomial(double r, double r_low) {  // |r| <= pi/4; Taylor to r^17, next term below 1e-18
  const double z = r * r;
  const double z2 = z * z;
  const double a = (-1.0 / 6 + z * (1.0 / 120)) + z2 * (-1.0 / 5040 + z * (1.0 / 362880));
  const double b =
      (-1.0 / 39916800 + z * (1.0 / 6227020800.0)) + z2 * (-1.0 / 1307674368000.0 + z * (1.0 / 355687428096000.0));
  return r + (r * z * (a + z2 * z2 * b) + r_low * (1.0 - 0.5 * z));
}

double CosPolynomial(double r, double r_low) {  // |r| <= pi/4; Taylor to r^18
  const double z = r * r;
  const double z2 = z * z;
  const double a = (1.0 / 24 + z * (-1.0 / 720)) + z2 * (1.0 / 40320 + z * (-1.0 / 3628800));
  const double b =
      (1.0 / 479001600 + z * (-1.0 / 87178291200.0)) + z2 * (1.0 / 20922789888000.0 + z * (-1.0 / 6402373705728000.0));
  const double half = 0.5 * z;
  const double w = 1.0 - half;
  return w + (((1.0 - w) - half) + (z2 * (a + z2 * z2 * b) - r * r_low));
}

}  // namespace

double Exp(double x) {
  if (!(x <= 709.8)) return x != x ? x : kInfinity;
  if (x < -745.2) return 0.0;
  return ExpInRange(x, 0.0);
}

namespace {

constexpr size_t kExpBlock = 64;
constexpr double kPlainExp = 700.0;  // up to there the result and 2^k are normal numbers

// Loops that the compiler turns into SIMD, of the operations of Exp. What is not within the plain range gives something that ExpEach replaces; returns
// how many are not.
[[gnu::always_inline]] inline int64_t ExpPlain(const double* in, double* out) {
  int64_t outside = 0;
  for (size_t i = 0; i < kExpBlock; i++) outside += (in[i] < -kPlainExp) | (in[i] > kPlainExp) | (in[i] != in[i]);
  for (size_t i = 0; i < kExpBlock; i++) {
    const auto [m, kd] = ExpInParts(in[i] < -kPlainExp ? -kPlainExp : in[i] > kPlainExp ? kPlainExp : in[i], 0.0);
    // The lowest bits of this sum are the biased exponent.
    out[i] = m * std::bit_cast<double>(std::bit_cast<uint64_t>(kd + (0x1.8p+52 + 1023.0)) << 52);
  }
  return outside;
}

using ExpBlockFunction = int64_t (*)(const double*, double*);
int64_t ExpBlock(const double* in, double* out) { return ExpPlain(in, out); }
#if defined(__x86_64__)
// -ffp-contract=off holds here too, so these have the same bits.
[[gnu::target("avx2")]] int64_t ExpBlockAvx2(const double* in, double* out) { return ExpPlain(in, out); }
[[gnu::target("avx512f,avx512dq,avx512vl")]] int64_t ExpBlockAvx512(const double* in, double* out) {
  return ExpPlain(in, out);
}
ExpBlockFunction BestExpBlock() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return ExpBlockAvx512;
  return __builtin_cpu_supports("avx2") ? ExpBlockAvx2 : ExpBlock;
}
#else
ExpBlockFunction BestExpBlock() { return ExpBlock; }
#endif

}  // namespace

void ExpEach(std::span<double> values) {
  static const ExpBlockFunction block = BestExpBlock();
  std::array<double, kExpBlock> last, out;
  for (size_t begin = 0; begin < values.size(); begin += kExpBlock) {
    const size_t n = std::min(kExpBlock, values.size() - begin);
    double* const at = &values[begin];
    const double* in = at;
    if (n < kExpBlock) {
      last.fill(0.0);
      std::copy_n(at, n, last.begin());
      in = last.data();
    }
    if (block(in, out.data()) > 0) {
      for (size_t i = 0; i < n; i++) {
        if (!(in[i] >= -kPlainExp && in[i] <= kPlainExp)) out[i] = Exp(in[i]);
      }
    }
    std::copy_n(out.begin(), n, at);
  }
}

double Log(double x) {
  if (!(x > 0.0)) return x == 0.0 ? -kInfinity : kNan;
  if (x == kInfinity) return x;
  const Split split = SplitExponent(x);
  const double f = split.m - 1.0;
  const double s = f / (2.0 + f);
  // 2s = f - s f: keeping f itself exact leaves the rounding of s in a term that is at most 0.41 of the result.
  const double log_m = f - (s * f - AtanhTail(s));
  const double e = split.e;
  return e * kLn2High + (log_m + e * kLn2Low);
}

double Log1p(double x) {
  const double u = 1.0 + x;
  if (!(u > 0.0) || u == kInfinity) return Log(u);
  const double lost = (x < 1.0 && x > -1.0) ? x - (u - 1.0) : 1.0 - (u - x);  // 1 + x = u + lost, exactly
  if (u == 1.0) return x;
  return Log(u) + lost / u;
}

double Pow(double x, double y) {
  if (y == 0.0 || x == 1.0) return 1.0;
  if (x != x || y != y) return kNan;
  const double magnitude = x < 0.0 ? -x : x;
  const double y_magnitude = y < 0.0 ? -y : y;
  if (y_magnitude == kInfinity) {
    if (magnitude == 1.0) return 1.0;
    return (magnitude > 1.0) == (y > 0.0) ? kInfinity : 0.0;
  }
  const bool integer = y_magnitude >= 0x1p52 || RoundToInteger(y_magnitude) == y_magnitude;
  const bool odd = integer && y_magnitude < 0x1p53 && (static_cast<uint64_t>(y_magnitude) & 1) != 0;
  const double sign = (odd && std::signbit(x)) ? -1.0 : 1.0;
  if (magnitude == 0.0 || magnitude == kInfinity)
    return (magnitude == 0.0) == (y > 0.0) ? sign * 0.0 : sign * kInfinity;
  if (x < 0.0 && !integer) return kNan;
  if (magnitude == 1.0) return sign;
  const Double2 log = LogDouble2(magnitude);
  const double rough = log.high * y;
  if (rough > 710.0) return sign * kInfinity;
  if (rough < -746.0) return sign * 0.0;
  // |log.high| is at least 2^-54 here, so |y| is below 2^64 and the split in TwoProduct cannot overflow.
  const Double2 product = TwoProduct(log.high, y);
  const double low = product.low + log.low * y;
  return sign * ExpInRange(product.high, low);
}

SinCosPair SinCos(double x) {
  if (!(x >= -kMaxSinCosArgument && x <= kMaxSinCosArgument)) return {kNan, kNan};
  const double n = RoundToInteger(x * kTwoOverPi);
  const Double2 a = TwoSum(x, -n * kPio2[0]);
  const Double2 b = TwoSum(a.high, -n * kPio2[1]);
  const Double2 c = TwoSum(b.high, -n * kPio2[2]);
  const Double2 d = TwoSum(c.high, -n * kPio2[3]);
  const Double2 r = TwoSum(d.high, (((a.low + b.low) + c.low) + d.low) - n * kPio2[4]);
  const double s = SinPolynomial(r.high, r.low);
  const double k = CosPolynomial(r.high, r.low);
  switch (static_cast<int64_t>(n) & 3) {
    case 0: return {s, k};
    case 1: return {k, -s};
    case 2: return {-s, -k};
    default: return {-k, s};
  }
}

double Sin(double x) { return SinCos(x).sin; }
double Cos(double x) { return SinCos(x).cos; }

}  // namespace ridge
