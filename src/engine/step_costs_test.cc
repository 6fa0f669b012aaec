#include "engine/step_costs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ridge::engine {
namespace {

// A machine: reading the weights takes `read` ms, each token `token` ms, whichever is longer; each token of a prompt also its context.
struct Machine {
  double read = 17, token = 2.1, context_token = 0;
  double Ms(const StepShape& s) const {
    const double tokens = static_cast<double>(s.decode_tokens + s.prompt_tokens);
    return std::max(read, token * tokens) + context_token * static_cast<double>(s.prompt_tokens);
  }
};

// Steps beside `decodes` streams until `prompt` tokens are done; the longest, after the first few.
double Longest(StepCosts& costs, Machine machine, int64_t decodes, int64_t prompt, int* steps = nullptr,
               double context_growth = 0) {
  double longest = 0;
  for (int i = 0; prompt > 0; i++) {
    EXPECT_LT(i, 100000);
    const StepShape shape{decodes, costs.PromptTokens(decodes, std::min<int64_t>(prompt, 512))};
    const double ms = machine.Ms(shape);
    costs.Observe(shape, ms);
    prompt -= shape.prompt_tokens;
    machine.context_token += context_growth * static_cast<double>(shape.prompt_tokens);
    if (i >= 8) longest = std::max(longest, ms);
    if (steps != nullptr) *steps = i + 1;
  }
  return longest;
}

TEST(StepCosts, KeepsTheBoundAndUsesIt) {
  for (const int64_t decodes : {1, 4, 16, 60}) {
    StepCosts costs(64);
    const Machine machine;
    const double alone = machine.Ms({decodes, 0});
    for (int i = 0; i < 5; i++) costs.Observe({decodes, 0}, alone);
    int steps = 0;
    const double longest = Longest(costs, machine, decodes, 8000, &steps);
    EXPECT_LE(longest, 2.5 * alone) << decodes;
    EXPECT_GE(longest, (StepCosts::kMostStretch - 4 * machine.token / alone) * alone) << decodes << ": a tile less";
    EXPECT_LE(steps, 1.3 * 8000 / ((StepCosts::kMostStretch - 1) * alone / machine.token)) << decodes;
  }
}

TEST(StepCosts, FollowsAContextThatMakesTokensDearer) {
  StepCosts costs(64);
  costs.Observe({4, 0}, 17);
  EXPECT_LE(Longest(costs, Machine{}, 4, 8000, nullptr, 0.0005), 2.5 * 17);
}

TEST(StepCosts, MeasuresDecodingFirstAndAgain) {
  StepCosts costs(64);
  EXPECT_EQ(costs.PromptTokens(0, 512), 512);
  EXPECT_EQ(costs.PromptTokens(4, 512), 512) << "nobody measures";
  costs.Observe({0, 100}, 200);
  EXPECT_EQ(costs.PromptTokens(4, 512), 0);
  costs.Observe({4, 0}, 20);
  EXPECT_EQ(costs.DecodeMs(4), 20);
  EXPECT_EQ(costs.DecodeMs(1), 20);
  EXPECT_NEAR(*costs.DecodeMs(9), 24, 1e-9) << "a guess";
  costs.Observe({8, 0}, 30);
  EXPECT_EQ(costs.DecodeMs(6), 25);
  EXPECT_EQ(costs.DecodeMs(8), 30);
  int64_t zeros = 0;
  for (int i = 0; i < 200; i++) {
    const int64_t n = costs.PromptTokens(4, 512);
    zeros += n == 0;
    costs.Observe({4, n}, n == 0 ? 20 : 45);
  }
  EXPECT_EQ(zeros, 200 / (StepCosts::kStaleSteps + 1));
}

TEST(StepCosts, ManyPromptsBesideFewAnswersGetMoreOfTheTime) {
  const auto room = [](int64_t decodes, int64_t prompts) {
    StepCosts costs(64);
    costs.Observe({0, 100}, 500);
    costs.Observe({decodes, 0}, 100);
    return costs.PromptTokens(decodes, 512, prompts);  // 5 ms each
  };
  EXPECT_EQ(room(4, 1), 24);  // 1.35 * 100 ms, in whole tiles
  EXPECT_EQ(room(4, 2), 40);  // twice 100 ms
  EXPECT_EQ(room(4, 5), 100);
  EXPECT_EQ(room(4, 7), 124) << "kFullRows";
  EXPECT_EQ(room(1, 15), 139) << "1 + 15 / 1, kCrowdStretch";
  EXPECT_EQ(room(20, 7), 108) << "kFullRows";
  EXPECT_EQ(room(60, 7), 68) << "kFullRows";
  EXPECT_EQ(room(60, 500), 140) << "1 + 500 / 60";
}

TEST(StepCosts, StepsAreWholeTiles) {
  for (int64_t decodes = 1; decodes < 40; decodes++) {
    StepCosts costs(64);
    costs.Observe({0, 100}, 500);
    costs.Observe({decodes, 0}, 100);
    EXPECT_EQ((decodes + costs.PromptTokens(decodes, 512)) % StepCosts::kTileRows, 0) << decodes;
    EXPECT_EQ(costs.PromptTokens(decodes, 3), 3) << "no more than there is room for";
    costs.Observe({decodes, 1}, 1e6);
    EXPECT_GE(costs.PromptTokens(decodes, 512), 1) << "prompts always get on";
    EXPECT_LE(costs.PromptTokens(decodes, 512), StepCosts::kTileRows);
  }
}

TEST(StepCosts, WhatAPromptTokenTakesBesideAnswersFollowsTheSameShare) {
  StepCosts costs(64);
  EXPECT_EQ(costs.BusyPromptTokenMs(4, 1), 0) << "not measured";
  costs.Observe({0, 100}, 300);
  EXPECT_DOUBLE_EQ(costs.BusyPromptTokenMs(0, 1), 3);
  EXPECT_DOUBLE_EQ(costs.BusyPromptTokenMs(4, 1), 3) << "beside answers it is not measured yet";
  costs.Observe({4, 0}, 20);
  costs.Observe({4, 10}, 60);
  EXPECT_DOUBLE_EQ(costs.BusyPromptTokenMs(4, 1), 4 * 2.35 / 1.35);
  EXPECT_DOUBLE_EQ(costs.BusyPromptTokenMs(4, 5), 4 * 6.0 / 5) << "five prompts have five sixths of the time";
  EXPECT_DOUBLE_EQ(costs.BusyPromptTokenMs(1, 15), 4 * 8.0 / 7);
}

TEST(StepCosts, PromptsGetOnEvenIfNobodyMeasuresAnyMore) {
  StepCosts costs(4);
  costs.Observe({0, 100}, 200);
  EXPECT_EQ(costs.PromptTokens(2, 512), 0);
  EXPECT_EQ(costs.PromptTokens(2, 512), 512);
  costs.Observe({2, 512}, 0);
  EXPECT_EQ(costs.PromptTokens(2, 512), 0);
  EXPECT_EQ(costs.PromptTokens(2, 512), 512);
}

TEST(StepCosts, OneStepThatWasHeldUpChangesLittle) {
  StepCosts costs(4);
  for (int i = 0; i < 20; i++) costs.Observe({2, 0}, 10);
  costs.Observe({2, 0}, 5000);
  EXPECT_LT(*costs.DecodeMs(2), 11);
}

}  // namespace
}  // namespace ridge::engine
