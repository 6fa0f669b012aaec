#include "service/receipt_sum.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ridge::service {
namespace {

Receipt Of(int64_t prompt, int64_t answer, double ms) {
  return {.reason = engine::FinishReason::kLength,
          .tokenize_ms = 1,
          .queue_ms = ms,
          .prompt_n = prompt,
          .cache_n = prompt / 2,
          .prompt_chunks = 1,
          .prompt_ms = 2 * ms,
          .predicted_n = answer,
          .predicted_ms = 4 * ms,
          .ttft_ms = 3 * ms,
          .kv_pages = 2,
          .computed_n = prompt / 2 + answer - 1,
          .bytes_read = 100,
          .total_ms = 7 * ms};
}

TEST(ReceiptSum, InTurnTimesAddUp) {
  const Receipt turns[] = {Of(10, 5, 1), Of(20, 0, 2)};
  const ReceiptSum sum = InTurn(turns);
  EXPECT_EQ(sum.decoded_n, 4);
  EXPECT_EQ(sum.receipt.prompt_n, 30);
  EXPECT_EQ(sum.receipt.predicted_ms, 12);
  EXPECT_EQ(sum.receipt.total_ms, 21);
  EXPECT_EQ(sum.receipt.ttft_ms, 3);
  EXPECT_EQ(sum.receipt.bytes_read, 200);
  EXPECT_EQ(sum.receipt.kv_pages, 2);
}

TEST(ReceiptSum, AtOnceTheSlowestCountsAndAPromptOnce) {
  const Receipt answers[] = {Of(10, 5, 3), Of(10, 5, 1), Of(20, 5, 2), Of(20, 5, 1)};
  const ReceiptSum sum = AtOnce(answers, 2);
  EXPECT_EQ(sum.decoded_n, 16);
  EXPECT_EQ(sum.receipt.prompt_n, 30);
  EXPECT_EQ(sum.receipt.tokenize_ms, 2);
  EXPECT_EQ(sum.receipt.predicted_n, 20);
  EXPECT_EQ(sum.receipt.predicted_ms, 12);
  EXPECT_EQ(sum.receipt.ttft_ms, 3);
  EXPECT_EQ(sum.receipt.kv_pages, 8);
}

TEST(ReceiptSum, WhatWasNotMeasuredIsNull) {
  const Receipt one[] = {{.prompt_n = 3, .predicted_n = 1}};
  const nlohmann::ordered_json json = ReceiptJson(InTurn(one));
  for (const char* name : {"cache_miss", "prompt_per_second", "predicted_per_second", "ttft_ms", "speculation_gain"})
    EXPECT_TRUE(json.at(name).is_null()) << name;
  EXPECT_EQ(json.at("predicted_n"), 1);
}

}  // namespace
}  // namespace ridge::service
