#include "server/json_reader.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace ridge::server {
namespace {

std::string Repeat(const std::string& text, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; i++) out += text;
  return out;
}

TEST(JsonReader, ReadsWhatIsJson) {
  for (const char* text :
       {R"({"a": [1, -2, 1.5, true, null, "\u00e9\ud83d\ude42"], "b": {}})", "[]", "7", "null", "\"x\"", " {} "}) {
    const Result<Json> document = ParseJson(text);
    ASSERT_TRUE(document.has_value()) << text;
    EXPECT_EQ(*document, Json::parse(text));
  }
}

TEST(JsonReader, RefusesWhatIsNot) {
  for (const std::string& text : {std::string(),
                                  std::string("x"),
                                  std::string("{"),
                                  std::string("{}x"),
                                  std::string("[1,]"),
                                  std::string("{'a': 1}"),
                                  std::string("NaN"),
                                  std::string("[Infinity]"),
                                  std::string("1e999"),
                                  std::string("\"\xff\""),
                                  std::string("\"\xed\xa0\x80\""),
                                  std::string("\"a\nb\""),
                                  std::string("\"a\0b\"", 5),
                                  std::string("// x\n1"),
                                  std::string(R"(["\ud800"])"),
                                  std::string(100000, '9'),
                                  Repeat("[", 1000000),
                                  Repeat("{\"a\":", 100000),
                                  std::string(R"({"a": 1, "b": 2, "a": 3})"),
                                  std::string(R"([{"x": {"y": 1, "y": 1}}])")}) {
    const Result<Json> document = ParseJson(text);
    ASSERT_FALSE(document.has_value()) << text.substr(0, 40);
    EXPECT_EQ(document.error().code, Code::kInvalidArgument);
    EXPECT_LT(document.error().Message().size(), 400u);
  }
}

// nlohmann/json takes NUL for the end.
TEST(JsonReader, NothingStandsBehindANulByte) {
  for (const auto& [text, byte] : {std::pair{std::string("{}\0", 3), "byte 3"},
                                   {std::string("{\"a\": 1}\0{\"a\": 2}", 17), "byte 9"},
                                   {std::string("\0{}", 3), "byte 1"},
                                   {std::string("[1,\0 2]", 7), "byte 4"},
                                   {std::string("1\0", 2), "byte 2"}}) {
    const Result<Json> document = ParseJson(text);
    ASSERT_FALSE(document.has_value());
    EXPECT_EQ(document.error().found, std::string(byte) + ": a NUL byte");
    EXPECT_EQ(document.error().where, kWholeBody);
  }
  EXPECT_TRUE(ParseJson("\"\\u0000\"").has_value());
}

TEST(JsonReader, ALongKeyIsNotEchoed) {
  const std::string key = "\"" + std::string(1 << 20, 'k') + "\": 1";
  const Result<Json> document = ParseJson("{" + key + "," + key + "}");
  ASSERT_FALSE(document.has_value());
  EXPECT_LT(document.error().Message().size(), 200u);
}

TEST(JsonReader, DepthAndCountAreBounded) {
  const JsonLimits limits{.depth = 3, .values = 5};
  EXPECT_TRUE(ParseJson("[[[1]]]", limits).has_value());
  EXPECT_FALSE(ParseJson("[[[[]]]]", limits).has_value());
  EXPECT_TRUE(ParseJson("[1,2,3,4]", limits).has_value());
  EXPECT_FALSE(ParseJson("[1,2,3,4,5]", limits).has_value());
}

TEST(JsonReader, ManyKeysTakeLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200000; i++) text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
  const Result<Json> document = ParseJson(text + "}");
  ASSERT_TRUE(document.has_value());
  EXPECT_EQ(document->size(), 200000u);
}

RC_GTEST_PROP(JsonReader, AnyBytesEndInADocumentOrAnError, (const std::string& text)) {
  const Result<Json> document = ParseJson(text);
  if (!document) RC_ASSERT(!document.error().Message().empty());
}

}  // namespace
}  // namespace ridge::server
