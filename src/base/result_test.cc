#include "base/result.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

Result<int> Parse(bool good) {
  if (!good)
    return Fail(Code::kInvalidData, "bad number").Where("key x").Found("abc").Expected("digits").Remedy("fix it");
  return 7;
}

Result<int> Twice(bool good) {
  RIDGE_ASSIGN_OR_RETURN(int value, Parse(good));
  return 2 * value;
}

TEST(Result, CarriesValueThroughMacro) { EXPECT_EQ(Twice(true).value(), 14); }

TEST(Result, ErrorIsOneLineWithAllParts) {
  const auto result = Twice(false);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().Message(), "bad number: key x: found abc, expected digits; fix it");
  EXPECT_EQ(Name(result.error().code), "invalid_data");
}

TEST(Result, ControlCharactersDoNotBreakTheLine) {
  Error e{Code::kInvalidData, "a\nb", "c\x1b[0m", "", "", ""};
  EXPECT_EQ(e.Message().find('\n'), std::string::npos);
  EXPECT_EQ(e.Message().find('\x1b'), std::string::npos);
}

TEST(Result, OnlyUsageExitsWithTwo) {
  EXPECT_EQ(ExitStatus(Code::kUsage), 2);
  EXPECT_EQ(ExitStatus(Code::kNotFound), 1);
}

}  // namespace
}  // namespace ridge
