#include "quant/quant.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <set>
#include <string>

namespace ridge::quant {
namespace {

float FloatOf(uint32_t bits) { return __builtin_bit_cast(float, bits); }
uint32_t BitsOf(float value) { return __builtin_bit_cast(uint32_t, value); }

TEST(Registry, ListsEachTypeOnceByIncreasingId) {
  std::set<std::string_view> names;
  int64_t last = -1;
  for (const Type& type : Types()) {
    EXPECT_GT(static_cast<int64_t>(type.id), last) << type.name;
    last = static_cast<int64_t>(type.id);
    EXPECT_TRUE(names.insert(type.name).second) << type.name;
    EXPECT_GT(type.block_elements, 0u) << type.name;
    EXPECT_GT(type.block_bytes, 0u) << type.name;
  }
  EXPECT_GE(names.size(), 35u);
}

TEST(Registry, FindsByIdAndByNameInAnyCase) {
  for (const Type& type : Types()) {
    EXPECT_EQ(Find(static_cast<uint32_t>(type.id)), &type);
    EXPECT_EQ(Find(type.name), &type);
    EXPECT_EQ(&Get(type.id), &type);
    std::string lower(type.name);
    for (char& c : lower) c = static_cast<char>(std::tolower(c));
    EXPECT_EQ(Find(lower), &type);
  }
}

TEST(Registry, DoesNotFindWhatIsNotThere) {
  for (uint32_t id : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 43u, 99u, 0xffffffffu}) EXPECT_EQ(Find(id), nullptr) << id;
  for (std::string_view name : {"", "Q4", "Q4_", "Q4_KK", "F8"}) EXPECT_EQ(Find(name), nullptr) << name;
}

// Arithmetic definition of a half, independent of the bit tricks.
TEST(Half, EveryPatternToFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double sign = bits & 0x8000 ? -1 : 1;
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const int mantissa = static_cast<int>(bits & 0x3ff);
    const float got = HalfToFloat(static_cast<uint16_t>(bits));
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(got)) << bits;
      continue;
    }
    const double want = exponent == 31  ? sign * INFINITY
                        : exponent == 0 ? sign * std::ldexp(mantissa, -24)
                                        : sign * std::ldexp(1024 + mantissa, exponent - 25);
    EXPECT_EQ(BitsOf(got), BitsOf(static_cast<float>(want))) << bits;
    EXPECT_EQ(FloatToHalf(got), bits);  // exact, so it must come back
  }
}

// Between two neighbouring halves the midpoint goes to the even one, and anything beside it to the nearer.
TEST(Half, RoundsToNearestEven) {
  for (uint32_t low = 0; low < 0x7bff; ++low) {
    const uint32_t high = low + 1;
    const float middle = static_cast<float>((static_cast<double>(HalfToFloat(static_cast<uint16_t>(low))) +
                                             static_cast<double>(HalfToFloat(static_cast<uint16_t>(high)))) /
                                            2);
    const uint32_t even = low % 2 == 0 ? low : high;
    for (uint32_t sign : {0u, 0x8000u}) {
      const float s = sign ? -1.0f : 1.0f;
      ASSERT_EQ(FloatToHalf(s * middle), sign | even);
      ASSERT_EQ(FloatToHalf(s * std::nextafter(middle, 0.0f)), sign | low);
      ASSERT_EQ(FloatToHalf(s * std::nextafter(middle, INFINITY)), sign | high);
    }
  }
}

TEST(Half, OverflowsUnderflowsAndKeepsNan) {
  EXPECT_EQ(FloatToHalf(65504.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(3e38f), 0x7c00);
  EXPECT_EQ(FloatToHalf(-INFINITY), 0xfc00);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0);  // half of the smallest, a tie with zero
  EXPECT_EQ(FloatToHalf(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(FloatToHalf(-0.0f), 0x8000);
  for (uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffc01234u}) {
    EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(FloatOf(bits))))) << bits;
  }
}

TEST(Bf16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(FloatToBf16(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBf16(FloatOf(0x3f808000)), 0x3f80);  // tie, down to even
  EXPECT_EQ(FloatToBf16(FloatOf(0x3f818000)), 0x3f82);  // tie, up to even
  EXPECT_EQ(FloatToBf16(FloatOf(0x3f808001)), 0x3f81);
  EXPECT_EQ(FloatToBf16(FloatOf(0x7f7fffff)), 0x7f80);
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(FloatOf(0x7f800001)))));
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(FloatOf(0xffffffff)))));
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = Bf16ToFloat(static_cast<uint16_t>(bits));
    EXPECT_EQ(BitsOf(value), bits << 16);
    if (std::isnan(value)) continue;
    EXPECT_EQ(FloatToBf16(value), bits);
  }
}

}  // namespace
}  // namespace ridge::quant
