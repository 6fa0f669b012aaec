#include "sampling/params.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace ridge::sampling {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(SamplingParams, DefaultsAreValid) { EXPECT_TRUE(Validate({}, 10)); }

struct Case {
  const char* field;
  std::function<void(SamplingParams&)> change;
};

TEST(SamplingParams, EveryBadValueNamesItsField) {
  const Case cases[] = {
      {"temperature", [](auto& p) { p.temperature = -0.1; }},
      {"temperature", [](auto& p) { p.temperature = kNan; }},
      {"temperature", [](auto& p) { p.temperature = kInf; }},
      {"top_k", [](auto& p) { p.top_k = -2; }},
      {"top_p", [](auto& p) { p.top_p = 1.01; }},
      {"top_p", [](auto& p) { p.top_p = -0.01; }},
      {"top_p", [](auto& p) { p.top_p = kNan; }},
      {"min_p", [](auto& p) { p.min_p = 1.5; }},
      {"typical_p", [](auto& p) { p.typical_p = -1; }},
      {"top_n_sigma", [](auto& p) { p.top_n_sigma = kNan; }},
      {"xtc_probability", [](auto& p) { p.xtc_probability = 2; }},
      {"xtc_threshold", [](auto& p) { p.xtc_threshold = -0.5; }},
      {"min_keep", [](auto& p) { p.min_keep = -1; }},
      {"repeat_last_n", [](auto& p) { p.repeat_last_n = -2; }},
      {"repeat_penalty", [](auto& p) { p.repeat_penalty = 0; }},
      {"repeat_penalty", [](auto& p) { p.repeat_penalty = kInf; }},
      {"presence_penalty", [](auto& p) { p.presence_penalty = kNan; }},
      {"frequency_penalty", [](auto& p) { p.frequency_penalty = -kInf; }},
      {"dry_multiplier", [](auto& p) { p.dry_multiplier = -1; }},
      {"dry_base", [](auto& p) { p.dry_base = 0.5; }},
      {"dry_allowed_length", [](auto& p) { p.dry_allowed_length = 0; }},
      {"dry_penalty_last_n", [](auto& p) { p.dry_penalty_last_n = -7; }},
      {"dry_sequence_breakers[1]", [](auto& p) { p.dry_sequence_breakers = {{1}, {}}; }},
      {"dry_sequence_breakers[0]", [](auto& p) { p.dry_sequence_breakers = {{1, 10}}; }},
      {"logit_bias[0]", [](auto& p) { p.logit_bias = {{-1, 1.0}}; }},
      {"logit_bias[1]", [](auto& p) { p.logit_bias = {{1, 1.0}, {10, 1.0}}; }},
      {"logit_bias[0]", [](auto& p) { p.logit_bias = {{1, kInf}}; }},
      {"logit_bias[0]", [](auto& p) { p.logit_bias = {{1, kNan}}; }},
      {"samplers", [](auto& p) { p.samplers = {Stage::kTopK, Stage::kTopP, Stage::kTopK}; }},
  };
  for (const Case& c : cases) {
    SamplingParams params;
    c.change(params);
    const Status status = Validate(params, 10);
    ASSERT_FALSE(status) << c.field;
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
    EXPECT_EQ(status.error().where, c.field);
    EXPECT_FALSE(status.error().found.empty()) << c.field;
    EXPECT_FALSE(status.error().expected.empty()) << c.field;
  }
}

TEST(SamplingParams, EdgesOfTheRangesAreAccepted) {
  SamplingParams p{.temperature = 0, .top_k = -1, .top_p = 0, .min_p = 1, .typical_p = 0};
  p.repeat_last_n = -1;
  p.dry_base = 0;
  p.dry_penalty_last_n = -1;
  p.logit_bias = {{9, -kInf}, {0, -100}};
  p.samplers = {};
  EXPECT_TRUE(Validate(p, 10));
  EXPECT_FALSE(Validate(p, 0));
}

TEST(Stage, NamesRoundTrip) {
  for (const Stage stage : SamplingParams{}.samplers) {
    const Result<Stage> parsed = ParseStage(Name(stage));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(*parsed, stage);
  }
  EXPECT_EQ(ParseStage("typical_p").value(), Stage::kTypicalP);
  const Result<Stage> unknown = ParseStage("topk");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().Message().find("topk"), std::string::npos);
}

}  // namespace
}  // namespace ridge::sampling
