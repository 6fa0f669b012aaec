#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace ridge::text {
namespace {

const std::string kReplacement = "\xEF\xBF\xBD";

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    AppendUtf8(c, text);
    const CodePoint decoded = DecodeUtf8(text, 0);
    ASSERT_TRUE(decoded.valid) << std::hex << static_cast<uint32_t>(c);
    ASSERT_EQ(decoded.value, c);
    ASSERT_EQ(decoded.length_bytes, text.size());
    ASSERT_EQ(Utf8Length(static_cast<unsigned char>(text[0])), text.size());
    if (text.size() > 1) {
      const CodePoint cut = DecodeUtf8(text.substr(0, text.size() - 1), 0);
      ASSERT_TRUE(!cut.valid && cut.truncated && cut.length_bytes == text.size() - 1);
    }
  }
}

// The examples of Unicode 15, section 3.9, tables 3-8 to 3-11: one U+FFFD for each maximal subpart.
TEST(Utf8, MaximalSubparts) {
  const struct {
    std::string bytes;
    int replaced;
    std::string rest;
  } cases[] = {
      {"\xC0\xAF", 2, ""},                          // overlong
      {"\xE0\x80\xBF", 3, ""},                      // overlong
      {"\xF0\x81\x82\x41", 3, "A"},                 // overlong
      {"\xED\xA0\x80", 3, ""},                      // surrogate
      {"\xED\xBF\xBF\x41", 3, "A"},                 // surrogate
      {"\xF4\x91\x92\x93", 4, ""},                  // above U+10FFFF
      {"\xFF\x41", 1, "A"},                         //
      {"\x80\xBF", 2, ""},                          // lone continuations
      {"\xE1\x80\x41", 1, "A"},                     // cut short
      {"\xF0\x91\x92\x41", 1, "A"},                 // cut short
      {"\xF1\xBF\x41", 1, "A"},                     // cut short
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF", 4, ""},  // table 3-11
  };
  for (const auto& c : cases) {
    std::string expected;
    for (int i = 0; i < c.replaced; ++i) expected += kReplacement;
    EXPECT_EQ(ReplaceInvalidUtf8(c.bytes), expected + c.rest);
    EXPECT_EQ(FirstInvalidUtf8("a\xC3\xA9" + c.bytes), 3u);
  }
  EXPECT_EQ(FirstInvalidUtf8("a\xC3\xA9\xF0\x9F\x98\x80"), std::nullopt);
  EXPECT_EQ(FirstInvalidUtf8(""), std::nullopt);
}

TEST(Utf8, ReplacedTextIsValid) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(random() % 12, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % 3 ? random() % 256 : 0x80 + random() % 0x78);
    const std::string clean = ReplaceInvalidUtf8(bytes);
    ASSERT_EQ(FirstInvalidUtf8(clean), std::nullopt);
    if (!FirstInvalidUtf8(bytes)) {
      ASSERT_EQ(clean, bytes);
    }
  }
}

TEST(Utf8, BytesHavePrintableStandIns) {
  EXPECT_EQ(ByteToPrintable('A'), U'A');
  EXPECT_EQ(ByteToPrintable(' '), U'Ġ');
  EXPECT_EQ(ByteToPrintable('\n'), U'Ċ');
  EXPECT_EQ(ByteToPrintable(0xAD), U'Ń');
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(PrintableToByte(ByteToPrintable(static_cast<uint8_t>(byte))), byte);
  EXPECT_EQ(PrintableToByte(U' '), std::nullopt);
  EXPECT_EQ(PrintableToByte(U'▁'), std::nullopt);
}

}  // namespace
}  // namespace ridge::text
