#include "base/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

// The 80-bit or 128-bit long double functions of the C library are the reference; where long double is double, the
// bound is looser.
namespace ridge {
namespace {

constexpr bool kWideReference = std::numeric_limits<long double>::digits >= 64;
constexpr double kBound = kWideReference ? 1e-15 : 3e-15;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int kDraws = 200000;

double RelativeError(double got, long double want) {
  if (want == 0) return got == 0 ? 0 : kInf;
  return static_cast<double>(std::fabs((got - want) / want));
}

double Uniform(std::mt19937_64& rng, double low, double high) {
  return low + (high - low) * (static_cast<double>(rng() >> 11) * 0x1p-53);
}

TEST(Math, ExpIsWithinBound) {
  std::mt19937_64 rng(1);
  for (int i = 0; i < kDraws; ++i) {
    const double x = Uniform(rng, i % 2 ? -708.0 : -1.0, i % 2 ? 709.7 : 1.0);
    ASSERT_LE(RelativeError(Exp(x), std::exp(static_cast<long double>(x))), kBound) << x;
  }
  for (double x = -745; x < -708; x += 0.01) {
    ASSERT_NEAR(Exp(x) / 0x1p-1074, static_cast<double>(std::exp(static_cast<long double>(x)) / 0x1p-1074L),
                1.0 + 1e-15 * Exp(x) / 0x1p-1074)
        << x;
  }
}

TEST(Math, ExpSpecialValues) {
  EXPECT_EQ(Exp(0.0), 1.0);
  EXPECT_EQ(Exp(-0.0), 1.0);
  EXPECT_EQ(Exp(kInf), kInf);
  EXPECT_EQ(Exp(-kInf), 0.0);
  EXPECT_EQ(Exp(709.79), kInf);
  EXPECT_LT(Exp(709.78), kInf);
  EXPECT_EQ(Exp(-746.0), 0.0);
  EXPECT_TRUE(std::isnan(Exp(kNan)));
}

TEST(Math, LogIsWithinBound) {
  std::mt19937_64 rng(2);
  for (int i = 0; i < kDraws; ++i) {
    double x = Uniform(rng, 0.5, 2.0);
    if (i % 3 == 1) x = 1.0 + Uniform(rng, -1e-6, 1e-6);
    if (i % 3 == 2) x = std::bit_cast<double>(rng() % 0x7ff0000000000000ULL);  // every magnitude, subnormals too
    if (x == 0.0) continue;
    ASSERT_LE(RelativeError(Log(x), std::log(static_cast<long double>(x))), kBound) << x;
    const double y = i % 2 ? Uniform(rng, -0.9, 1.0) : Uniform(rng, -1e-9, 1e-9);
    ASSERT_LE(RelativeError(Log1p(y), std::log1p(static_cast<long double>(y))), kBound) << y;
  }
}

TEST(Math, LogSpecialValues) {
  EXPECT_EQ(Log(1.0), 0.0);
  EXPECT_EQ(Log(0.0), -kInf);
  EXPECT_EQ(Log(kInf), kInf);
  EXPECT_TRUE(std::isnan(Log(-1.0)));
  EXPECT_TRUE(std::isnan(Log(kNan)));
  EXPECT_EQ(Log1p(-1.0), -kInf);
  EXPECT_EQ(Log1p(1e300), Log(1e300));
  EXPECT_TRUE(std::isnan(Log1p(-2.0)));
}

TEST(Math, PowIsWithinBound) {
  std::mt19937_64 rng(3);
  for (int i = 0; i < kDraws; ++i) {
    double x = std::exp(Uniform(rng, -40.0, 40.0));
    double y = Uniform(rng, -17.0, 17.0);
    if (i % 3 == 1) x = 1.0 + Uniform(rng, -1e-3, 1e-3), y = Uniform(rng, -7e5, 7e5);
    if (i % 3 == 2) x = i % 2 ? 10000.0 : 1e6, y = -static_cast<double>(i % 256) / 128.0;
    const long double want = std::pow(static_cast<long double>(x), static_cast<long double>(y));
    if (want > 1e308L || want < 1e-307L) continue;
    ASSERT_LE(RelativeError(Pow(x, y), want), kBound) << x << " " << y;
  }
  EXPECT_EQ(Pow(2.0, 10.0), 1024.0);
  EXPECT_EQ(Pow(-2.0, 3.0), -8.0);
}

TEST(Math, PowSpecialValuesAreThoseOfC) {
  const double values[] = {0.0,
                           -0.0,
                           1.0,
                           -1.0,
                           0.5,
                           -0.5,
                           2.0,
                           -2.0,
                           3.0,
                           -3.0,
                           2.5,
                           1e300,
                           -1e300,
                           1e-300,
                           0x1p53,
                           0x1p53 + 2,
                           -0x1p70,
                           4503599627370497.0,
                           -4503599627370497.0,
                           1.0 + 0x1p-52,
                           1.0 - 0x1p-53,
                           0x1p-1074,
                           kInf,
                           -kInf,
                           kNan};
  for (const double x : values) {
    for (const double y : values) {
      const double want = std::pow(x, y);
      const double got = Pow(x, y);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got)) << x << " " << y;
      } else if (want == 0.0 || std::isinf(want)) {
        EXPECT_EQ(std::bit_cast<uint64_t>(got), std::bit_cast<uint64_t>(want)) << x << " " << y;
      } else {
        EXPECT_NEAR(got / want, 1.0, 1e-14) << x << " " << y;
      }
    }
  }
}

TEST(Math, SinCosIsWithinBoundUpToTheLimit) {
  std::mt19937_64 rng(4);
  for (int i = 0; i < kDraws; ++i) {
    const double range = i % 4 == 0 ? 1.0 : i % 4 == 1 ? 100.0 : i % 4 == 2 ? 1e7 : kMaxSinCosArgument;
    double x = Uniform(rng, -range, range);
    if (i % 5 == 0) x = static_cast<double>(static_cast<int64_t>(x / 2)) * 1.5707963267948966;  // next to the zeros
    const SinCosPair got = SinCos(x);
    ASSERT_LE(RelativeError(got.sin, std::sin(static_cast<long double>(x))), kBound) << x;
    ASSERT_LE(RelativeError(got.cos, std::cos(static_cast<long double>(x))), kBound) << x;
    ASSERT_EQ(got.sin, Sin(x));
    ASSERT_EQ(got.cos, Cos(x));
    ASSERT_EQ(Sin(-x), -got.sin);
    ASSERT_EQ(Cos(-x), got.cos);
  }
  EXPECT_EQ(Sin(0.0), 0.0);
  EXPECT_EQ(Cos(0.0), 1.0);
}

TEST(Math, SinCosRefusesWhatItCannotReduce) {
  for (const double x : {1.0001e8, -1e300, kInf, -kInf, kNan}) {
    EXPECT_TRUE(std::isnan(Sin(x)));
    EXPECT_TRUE(std::isnan(Cos(x)));
  }
}

TEST(Math, EachAtOnceHasTheBitsOfOne) {
  std::vector<double> values = {0.0,
                                -0.0,
                                1e-320,
                                -1e-300,
                                700,
                                700.0001,
                                -700,
                                -700.0001,
                                709.7,
                                710,
                                -745.1,
                                -746,
                                -std::numeric_limits<double>::infinity(),
                                std::numeric_limits<double>::infinity()};
  for (int i = 0; i < 5000; i++) values.push_back((i - 4900) * 0.1501);
  for (size_t n : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, values.size()}) {
    std::vector<double> each(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n));
    ExpEach(each);
    for (size_t i = 0; i < n; i++)
      ASSERT_EQ(std::bit_cast<uint64_t>(each[i]), std::bit_cast<uint64_t>(Exp(values[i]))) << values[i];
  }
  std::vector<double> nan = {std::numeric_limits<double>::quiet_NaN()};
  ExpEach(nan);
  EXPECT_TRUE(nan[0] != nan[0]);
}

// The bits themselves: any compiler, option or machine that computes differently fails here.
TEST(Math, BitsAreFixed) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  const auto add = [&hash](double value) { hash = (hash ^ std::bit_cast<uint64_t>(value)) * 0x100000001b3ULL; };
  for (int i = 0; i < 20000; ++i) {
    const double x = (i - 10000) * 0.0317;
    const SinCosPair p = SinCos(x * 1000.0);
    add(Exp(x));
    add(Log(i + 0.37));
    add(Log1p(i * 1e-5));
    add(Pow(10000.0, -i / 20000.0));
    add(p.sin);
    add(p.cos);
  }
  EXPECT_EQ(hash, 0xb98db0331298e57aULL) << std::hex << hash;
}

}  // namespace
}  // namespace ridge
