#include "base/quantity.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

TEST(QuantityTest, OneIsSingular) {
  EXPECT_EQ(Count(1, "token"), "1 token");
  EXPECT_EQ(Count(0, "token"), "0 tokens");
  EXPECT_EQ(Count(size_t{21}, "token"), "21 tokens");
  EXPECT_EQ(Count(-1, "token"), "-1 tokens");
  EXPECT_EQ(Count(1, "query", "queries"), "1 query");
  EXPECT_EQ(Count(2, "query", "queries"), "2 queries");
}

TEST(QuantityTest, SizesInEverySpelling) {
  for (const auto& [text, bytes] : {std::pair<const char*, uint64_t>{"0", 0},
                                    {"1000000", 1000000},
                                    {"512B", 512},
                                    {"48MiB", 50331648},
                                    {"48mib", 50331648},
                                    {"48m", 50331648},
                                    {"48M", 50331648},
                                    {"48 MiB", 50331648},
                                    {"48MB", 48000000},
                                    {"48mb", 48000000},
                                    {"64k", 65536},
                                    {"64kB", 64000},
                                    {"1.5g", 1610612736},
                                    {"2GB", 2000000000},
                                    {"1tib", uint64_t{1} << 40},
                                    {"2TB", 2000000000000}}) {
    const Result<uint64_t> parsed = ParseByteSize(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(QuantityTest, WhatIsNoSizeIsRefused) {
  for (const char* text : {"", " ", "MiB", "-1", "-0", "5x", "5 ", "5  MiB", " 5MiB", "5MiB ", "5mi", "inf", "nan",
                           "1e18", "9TBs", "1e999", "0x10MiB", "5MiBMiB"}) {
    const Result<uint64_t> parsed = ParseByteSize(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Code::kUsage);
    EXPECT_EQ(parsed.error().found, *text == '\0' ? "\"\"" : text);
  }
}

}  // namespace
}  // namespace ridge
