#include "engine/forecast.h"

#include <gtest/gtest.h>

namespace ridge::engine {
namespace {

TEST(Forecast, WithoutMeasuredStepsThereIsNone) { EXPECT_FALSE(Predict({}, {}, 10)); }

TEST(Forecast, OnAnIdleEngineItIsThePromptsOwnTime) {
  const auto forecast = Predict({.max_running = 4, .decode_ms = 10, .prompt_token_ms = 2}, {}, 100);
  ASSERT_TRUE(forecast);
  EXPECT_DOUBLE_EQ(forecast->begin_ms, 0);
  EXPECT_DOUBLE_EQ(forecast->ttft_ms, 200);
  EXPECT_DOUBLE_EQ(Predict({.max_running = 4, .prompt_token_ms = 2, .cached_share = 0.75}, {}, 100)->ttft_ms, 50);
}

TEST(Forecast, PromptsAheadComeFirst) {
  const Load load{.max_running = 4,
                  .prompt_tokens = 50,
                  .left_tokens = {30},
                  .decode_ms = 10,
                  .prompt_token_ms = 2,
                  .cached_share = 0.5};
  EXPECT_DOUBLE_EQ(Predict(load, {.sequences = 2, .prompt_tokens = 40}, 10)->begin_ms, 100 + 40);
}

TEST(Forecast, AFullEngineIsWaitedForAnswerByAnswer) {
  Load load{.max_running = 3, .left_tokens = {30, 5, 12}, .decode_ms = 10, .prompt_token_ms = 2};
  EXPECT_DOUBLE_EQ(Predict(load, {}, 10)->begin_ms, 50);
  EXPECT_DOUBLE_EQ(Predict(load, {.sequences = 1}, 10)->begin_ms, 120);
  EXPECT_DOUBLE_EQ(Predict(load, {.sequences = 2}, 10)->begin_ms, 300);
  load.mean_answer_tokens = 40;
  EXPECT_DOUBLE_EQ(Predict(load, {.sequences = 4}, 10)->begin_ms, 120 + 400) << "one more whole answer";
  EXPECT_DOUBLE_EQ(Predict(load, {.prompt_tokens = 500}, 10)->begin_ms, 1000)
      << "the prompts take longer than the place";
}

}  // namespace
}  // namespace ridge::engine
