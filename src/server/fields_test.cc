#include "server/fields.h"

#include <gtest/gtest.h>

#include "server/api_error.h"

namespace ridge::server {
namespace {

TEST(Fields, TakesWhatIsRight) {
  const Json body = Json::parse(R"({"a": true, "b": -3, "c": 1.5, "d": "x", "e": null, "f": [1]})");
  Fields fields(body);
  bool a = false;
  int64_t b = 0;
  double c = 0;
  std::string d;
  std::optional<std::string> e;
  fields.Bool("a", a);
  fields.Integer("b", b, -5, 5);
  fields.Number("c", c, 0, 2);
  fields.Text("d", d);
  fields.Text("e", e);
  ASSERT_NE(fields.Any("f"), nullptr);
  EXPECT_EQ(fields.Any("g"), nullptr);
  ASSERT_TRUE(fields.Done().has_value());
  EXPECT_TRUE(a && b == -3 && c == 1.5 && d == "x" && !e);
}

// The error names the field, and the target stays as it was.
template <class Read>
void ExpectRefused(const char* value, Read read) {
  const Json body = Json::parse(std::string(R"({"x": )") + value + "}");
  Fields fields(body, "outer[1]");
  read(fields);
  const Status done = fields.Done();
  ASSERT_FALSE(done.has_value()) << value;
  EXPECT_EQ(done.error().where, "outer[1].x");
  EXPECT_EQ(ToApi(done.error()).param, "outer[1].x");
  EXPECT_EQ(ToApi(done.error()).status, 400);
}

TEST(Fields, RefusesWrongTypesAndRanges) {
  int64_t integer = 77;
  double number = 77;
  bool boolean = false;
  std::string text = "77";
  for (const char* value : {"1.5", "\"1\"", "true", "[1]", "{}", "6", "-6", "99999999999999999999", "1e3", "5.0"})
    ExpectRefused(value, [&](Fields& f) { f.Integer("x", integer, -5, 5); });
  for (const char* value : {"\"1\"", "true", "[1]", "2.01", "-0.1"})
    ExpectRefused(value, [&](Fields& f) { f.Number("x", number, 0, 2); });
  for (const char* value : {"1", "0", "\"true\"", "[]"}) ExpectRefused(value, [&](Fields& f) { f.Bool("x", boolean); });
  for (const char* value : {"1", "true", "[\"a\"]"}) ExpectRefused(value, [&](Fields& f) { f.Text("x", text); });
  EXPECT_TRUE(integer == 77 && number == 77 && !boolean && text == "77");
}

TEST(Fields, RefusesWhatNobodyTook) {
  ExpectRefused("1", [](Fields&) {});
  const Json body = Json::parse(R"({"x": null})");
  EXPECT_TRUE(Fields(body).Done().has_value());
}

// Once, and in full only where it is short; a name that is no word is quoted.
TEST(Fields, UnknownNamesInErrors) {
  const auto error = [](const std::string& name) {
    const Json body = {{name, 1}};
    return ToApi(Fields(body).Done().error(), "prompt");
  };
  EXPECT_EQ(error("bogus").message, "unknown field: bogus");
  EXPECT_EQ(error("bogus").param, "bogus");
  EXPECT_EQ(error("a b").param, "\"a b\"");
  EXPECT_EQ(error("").param, "\"\"");
  const ApiError longer = error(std::string(1 << 20, 'k'));
  EXPECT_LT(longer.message.size(), 120u);
  EXPECT_EQ(longer.param.substr(0, 10), "\"kkkkkkkkk");
}

TEST(Fields, WhatIsNotThereYetIsRefusedByNameUnlessItAsksForNothing) {
  ExpectRefused(R"([{"type": "function"}])", [](Fields& f) { f.NotYet("x", {"[]"}); });
  for (const char* value : {"[]", "null"}) {
    const Json body = Json::parse(std::string(R"({"x": )") + value + "}");
    Fields fields(body);
    fields.NotYet("x", {"[]"});
    EXPECT_TRUE(fields.Done().has_value());
  }
}

TEST(Fields, OnlyObjectsHaveFields) {
  for (const char* text : {"[]", "1", "\"x\"", "null", "true"}) {
    const Json body = Json::parse(text);
    Fields fields(body);
    EXPECT_EQ(fields.Any("a"), nullptr);
    const Status done = fields.Done();
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(ToApi(done.error(), "prompt").param, "");  // no field is to blame
  }
}

TEST(ApiError, ShapeAndStatus) {
  const auto status = [](Code code) { return ToApi(Error{.code = code, .what = "x"}, "prompt").status; };
  EXPECT_EQ(status(Code::kInvalidArgument), 400);
  EXPECT_EQ(status(Code::kNotFound), 404);
  EXPECT_EQ(status(Code::kResourceExhausted), 429);
  EXPECT_EQ(status(Code::kInternal), 500);
  const ApiError longer =
      ToApi(Error{.code = Code::kOutOfRange, .what = "x", .where = "messages[3] is the longest"}, "messages");
  EXPECT_EQ(longer.code, "context_length_exceeded");
  EXPECT_EQ(longer.param, "messages");
  const Json body = Json::parse(ErrorBody({.message = "m\xff"}));
  EXPECT_EQ(body["error"].size(), 4u);
  EXPECT_TRUE(body["error"]["param"].is_null() && body["error"]["code"].is_null());
}

}  // namespace
}  // namespace ridge::server
