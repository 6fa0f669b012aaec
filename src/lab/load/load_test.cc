#include "lab/load/load.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ridge::lab {
namespace {

TEST(Load, SchedulesDoNotDependOnAnswers) {
  LoadOptions o{.requests = 2000, .rate = 50, .arrivals = Arrivals::kConstant};
  const auto constant = Schedule(o);
  ASSERT_EQ(constant.size(), 2000u);
  EXPECT_NEAR(constant[100], 2, 1e-9);
  o.arrivals = Arrivals::kPoisson;
  const auto poisson = Schedule(o);
  EXPECT_NEAR(poisson.back(), 40, 3);
  double squares = 0;
  for (size_t i = 1; i < poisson.size(); i++) {
    EXPECT_GE(poisson[i], poisson[i - 1]);
    squares += std::pow(poisson[i] - poisson[i - 1] - 0.02, 2);
  }
  EXPECT_NEAR(std::sqrt(squares / 1999) / 0.02, 1, 0.1);  // gaps of a Poisson process vary as much as they last
  EXPECT_EQ(Schedule(o), poisson);
  o.rate = 0;
  EXPECT_TRUE(Schedule(o).empty());
}

TEST(Load, TracesAreReplayed) {
  const auto trace = ParseTrace(
      "10.5\n\n{\"at_s\": 11, \"prompt\": \"a\", \"max_tokens\": 7}\n"
      "{\"timestamp\": 12250, \"input_length\": 40, \"output_length\": 3, \"hash_ids\": [1]}\n");
  ASSERT_TRUE(trace) << trace.error().Message();
  ASSERT_EQ(trace->size(), 3u);
  const LoadOptions o{.requests = 3, .arrivals = Arrivals::kTrace, .trace = *trace};
  EXPECT_TRUE(IsOpen(o));
  EXPECT_EQ(Schedule(o), (std::vector<double>{0, 0.5, 1.75}));
  EXPECT_EQ((*trace)[1].prompt, "a");
  EXPECT_EQ((*trace)[1].max_tokens, 7);
  EXPECT_EQ((*trace)[2].prompt_tokens, 40);
  EXPECT_EQ((*trace)[2].max_tokens, 3);
  for (const char* bad : {"", "x", "2\n1", "{\"prompt\": \"a\"}", "{\"at_s\": 1, \"max_tokens\": 0}", "[1]",
                          "{\"at_s\": 1, \"prompt\": 3}", "1e300"})
    EXPECT_FALSE(ParseTrace(bad)) << bad;
  EXPECT_EQ(ParseTrace("1\n0").error().where, "line 2");
}

TEST(Load, WhatCannotBeMakesARunInvalid) {
  LoadRun run{.duration_s = 10};
  RequestRecord r{
      .scheduled_s = 1, .sent_s = 1, .done_s = 2, .first_token_s = 1.5, .chunk_s = {1.75}, .status = 200, .chunks = 2};
  run.records = {r, r};
  EXPECT_TRUE(Report({}, run).invalid.empty());
  run.records[1].chunk_s = {2.5};  // after its end
  EXPECT_EQ(Report({}, run).invalid[0], "the times of request 1 contradict each other");
}

TEST(Load, AFirstChunkOfSeveralTokensIsCountedAsSeveral) {
  LoadRun run{.duration_s = 10};
  RequestRecord r{
      .done_s = 2, .first_token_s = 1, .chunk_s = {1.2, 1.4}, .status = 200, .output_tokens = 7, .chunks = 3};
  run.records = {r};
  EXPECT_NEAR(*Report({}, run).tpot.mean, 400.0 / 6, 1e-6);
  run.records[0].first_chunk_tokens = 5;
  EXPECT_NEAR(*Report({}, run).tpot.mean, 200, 1e-6);
}

TEST(Load, PercentilesNeedSamples) {
  std::vector<double> values;
  for (int i = 1; i <= 661; i++) values.push_back(i);
  Distribution d = DistributionOf(values);
  EXPECT_FALSE(d.percentiles.at("p99"));
  EXPECT_EQ(d.percentiles.at("p50"), 331);
  EXPECT_EQ(d.percentiles.at("p90"), 595);
  values.push_back(662);
  d = DistributionOf(values);
  EXPECT_EQ(d.percentiles.at("p99"), 656);
  EXPECT_EQ(d.most, 662);
  EXPECT_FALSE(DistributionOf({1, 2, 3}).percentiles.at("p50"));
  EXPECT_FALSE(DistributionOf({}).mean);
  EXPECT_EQ(SamplesFor(99), 662);
}

TEST(Load, EventsOfServersAreRead) {
  EXPECT_TRUE(ParseEvent(" [DONE]").done);
  EXPECT_TRUE(ParseEvent(R"({"choices":[{"delta":{"content":"a"}}]})").text);
  EXPECT_TRUE(ParseEvent(R"({"choices":[{"delta":{"reasoning_content":"a"}}]})").text);
  EXPECT_TRUE(ParseEvent(R"({"choices":[{"delta":{"tool_calls":[{"index":0}]}}]})").text);
  EXPECT_TRUE(ParseEvent(R"({"choices":[{"text":"a"}]})").text);
  EXPECT_FALSE(ParseEvent(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})").text);
  EXPECT_FALSE(ParseEvent(R"({"choices":[{"delta":{"content":null}}]})").text);
  const AnswerEvent usage = ParseEvent(R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}})");
  EXPECT_EQ(usage.prompt_tokens, 7);
  EXPECT_EQ(usage.output_tokens, 3);
  EXPECT_EQ(ParseEvent(R"({"error":{"message":"no"}})").error, "no");
  EXPECT_NE(ParseEvent("{broken").error, "");
  EXPECT_NE(ParseEvent("3").error, "");
}

TEST(Load, CountsThatCannotBeAreNone) {
  for (const char* bad : {"-5", "1e300", "2.5", "1000000001", "\"7\"", "[]", "18446744073709551615"}) {
    const AnswerEvent e =
        ParseEvent(std::string(R"({"usage": {"prompt_tokens": 3, "completion_tokens": )") + bad + "}}");
    EXPECT_EQ(e.prompt_tokens, 3) << bad;
    EXPECT_FALSE(e.output_tokens) << bad;
    EXPECT_EQ(e.disbelieved, std::string("completion_tokens ") + (bad == std::string("1e300") ? "1e+300" : bad));
  }
  const AnswerEvent good = ParseEvent(R"({"usage": {"prompt_tokens": 0, "completion_tokens": 1000000000}})");
  EXPECT_EQ(good.output_tokens, 1000000000);
  EXPECT_EQ(good.disbelieved, "");
  // A tokenizer that is slow, or a queue, is the server's time and not the engine's.
  EXPECT_DOUBLE_EQ(*ParseEvent(R"({"ridge": {"total_ms": 90, "tokenize_ms": 60, "queue_ms": 10}})").engine_s, 0.02);
  EXPECT_DOUBLE_EQ(*ParseEvent(R"({"ridge": {"total_ms": 5, "tokenize_ms": 60, "queue_ms": null}})").engine_s, 0);
  EXPECT_FALSE(ParseEvent(R"({"ridge": {"total_ms": -1}})").engine_s);
  EXPECT_FALSE(ParseEvent(R"({"ridge": {"total_ms": 1e300}})").engine_s);
}

RequestRecord Answered(double scheduled, double sent, double first, int chunks) {
  RequestRecord r{.scheduled_s = scheduled,
                  .sent_s = sent,
                  .first_token_s = first,
                  .status = 200,
                  .output_tokens = chunks,
                  .chunks = chunks};
  for (int i = 1; i < chunks; i++) r.chunk_s.push_back(first + 0.1 * i);
  r.done_s = first + 0.1 * (chunks - 1);
  return r;
}

TEST(Load, ReportCountsFromTheSchedule) {
  LoadRun run{.duration_s = 10, .client_cpu_s = 0.5};
  run.records = {Answered(0, 0, 0.2, 4), Answered(1, 3, 3.2, 4)};
  run.records[1].held = true;
  RequestRecord failed{.status = 500, .error = "HTTP 500"};
  run.records.push_back(failed);
  const LoadReport r = Report({.rate = 1, .concurrency = 1}, run);
  EXPECT_EQ(r.completed, 2);
  EXPECT_EQ(r.failed, 1);
  EXPECT_EQ(r.errors.at("HTTP 500"), 1);
  EXPECT_NEAR(*r.ttft_scheduled.most, 2200, 1e-6);
  EXPECT_NEAR(*r.ttft_sent.most, 200, 1e-6);
  EXPECT_NEAR(*r.e2e_scheduled.most, 2500, 1e-6);
  EXPECT_NEAR(*r.gap.mean, 100, 1e-6);
  EXPECT_EQ(r.gap.n, 6);
  EXPECT_NEAR(*r.tpot.mean, 100, 1e-6);
  EXPECT_EQ(r.output_tokens, 8);
  EXPECT_EQ(r.tokens_from, "usage");
  EXPECT_EQ(r.held, 1);
  EXPECT_TRUE(r.invalid.empty()) << r.invalid[0];
}

TEST(Load, ABusyOrLateClientMakesTheRunInvalid) {
  LoadRun run{.duration_s = 10, .client_cpu_s = 9};
  run.records = {Answered(0, 0, 0.2, 4)};
  EXPECT_EQ(Report({.rate = 1}, run).invalid.size(), 1u);
  run.client_cpu_s = 0.1;
  EXPECT_TRUE(Report({.rate = 1}, run).invalid.empty());
  run.duration_s = 60;
  for (int i = 0; i < 50; i++) run.records.push_back(Answered(i, i + 0.05, i + 0.2, 4));
  EXPECT_EQ(Report({.rate = 1}, run).invalid.size(), 1u);
  run.interrupted = true;
  EXPECT_EQ(Report({.rate = 1}, run).invalid.size(), 2u);
}

}  // namespace
}  // namespace ridge::lab
