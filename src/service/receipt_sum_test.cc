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

TEST(ReceiptSum, PartsOfTheFirstTextSumToItsTime) {
  Receipt first = Of(10, 5, 1), second = Of(10, 5, 1);
  first.first_text = {.receive_ms = 0.5,
                      .tokenize_ms = 1,
                      .queue_ms = 2,
                      .prompt_ms = 30,
                      .decode_ms = 7,
                      .sample_ms = 0.25,
                      .detokenize_ms = 0.125,
                      .deliver_ms = 3,
                      .write_ms = 0.0625,
                      .total_ms = 50};
  second.first_text = FirstText{.receive_ms = std::nullopt, .write_ms = std::nullopt, .total_ms = 99};
  const Receipt both[] = {first, second};
  for (const ReceiptSum& sum : {InTurn(both), AtOnce(both, 2)}) {
    const nlohmann::ordered_json json = ReceiptJson(sum);
    EXPECT_EQ(json.at("first_text_ms"), 50);
    double all = 0;
    for (const auto& [name, ms] : json.at("first_text_parts_ms").items()) all += ms.get<double>();
    EXPECT_DOUBLE_EQ(all, 50);
    EXPECT_DOUBLE_EQ(json.at("first_text_parts_ms").at("other").get<double>(), 50 - 43.9375);
  }
  const Receipt bare[] = {second};
  const nlohmann::ordered_json json = ReceiptJson(InTurn(bare));
  EXPECT_TRUE(json.at("first_text_parts_ms").at("receive").is_null());
  EXPECT_TRUE(json.at("first_text_parts_ms").at("write").is_null());
  EXPECT_EQ(json.at("first_text_parts_ms").at("other"), 99);
}

TEST(ReceiptSum, WhatWasNotMeasuredIsNull) {
  const Receipt one[] = {{.prompt_n = 3, .predicted_n = 1}};
  const nlohmann::ordered_json json = ReceiptJson(InTurn(one));
  for (const char* name : {"cache_miss", "prompt_per_second", "predicted_per_second", "ttft_ms", "speculation_gain",
                           "first_text_ms", "first_text_parts_ms"})
    EXPECT_TRUE(json.at(name).is_null()) << name;
  EXPECT_EQ(json.at("predicted_n"), 1);
}

}  // namespace
}  // namespace ridge::service
