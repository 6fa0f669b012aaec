#include "lab/evidence/watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "lab/evidence/spans.h"

namespace ridge::lab {
namespace {

TEST(Watch, LeavesATimeSeries) {
  Watch watch({.pid = getpid(), .interval_s = 0.01});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const std::string csv = watch.Stop();
  EXPECT_EQ(watch.Stop(), "");
  const Series series = ParseSeries(csv).value();
  ASSERT_GE(series.points.size(), 2u);
  EXPECT_EQ(series.points.size(), watch.samples());
  EXPECT_GT(watch.cpu_seconds(), 0);
  const size_t rss = series.Find("process_rss_mb").value();
  double at = 0;
  for (const Series::Point& p : series.points) {
    EXPECT_GT(p.values[rss].value(), 1);
    EXPECT_GE(p.after_s, p.before_s);
    EXPECT_GT(p.before_s, at);
    at = p.before_s;
  }
  EXPECT_FALSE(series.Find("nonsense"));
}

TEST(Watch, StopsAtOnceWhateverTheInterval) {
  Watch watch({.interval_s = 3600});
  const Series series = ParseSeries(watch.Stop()).value();
  EXPECT_EQ(series.points.size(), 2u) << "its begin and its end, however short it was: that gives rates";
}

TEST(ParseSeries, WhatIsNoneIsAnErrorWithItsLine) {
  const auto error = [](std::string_view csv) {
    const auto series = ParseSeries(csv);
    return series ? std::string("none") : series.error().Message();
  };
  EXPECT_EQ(error("before_s,after_s,unix_s,x\n1,2,3,\n"), "none");
  EXPECT_NE(error(""), "none");
  EXPECT_NE(error("a,b,c\n"), "none");
  EXPECT_NE(error("before_s,after_s,unix_s,x\n1,2,3\n").find("line 2"), std::string::npos);
  EXPECT_NE(error("before_s,after_s,unix_s,x\n1,2,3,4\n1,2,three,4\n").find("line 3"), std::string::npos);
  EXPECT_NE(error("before_s,after_s,unix_s,x\n1,2,3,nan\n"), "none");
}

Series Every(double step, double from, double to) {
  Series s{.names = {"x"}};
  for (double t = from; t < to; t += step) s.points.push_back({t, t + 0.001, t, {t}});
  return s;
}

TEST(Spans, AreThoseThatTheSubjectStamped) {
  const std::string rows = R"([{"n_prompt": 64, "samples_at_s": [11, 13], "samples_ns": [1e9, 1e9]},
                               {"n_gen": 8, "samples_at_s": [12], "samples_ns": [5e8]}, {"n_gen": 8}, 3])";
  const auto spans = SpansOf(10, 15, rows);
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans[0].name, "load and warm up");
  EXPECT_EQ(spans[0].end_s, 11);
  EXPECT_EQ(spans[1].name, "pp64");
  EXPECT_EQ(spans[2].name, "tg8");
  EXPECT_EQ(spans[2].end_s, 12.5);
  EXPECT_TRUE(SpansOf(10, 15, "[]").empty());
  EXPECT_TRUE(SpansOf(10, 15, "no json").empty());
}

TEST(Spans, OverlapsAndWhatLiesOutsideAreNoPhases) {
  const auto spans = SpansOf(
      10, 15, R"([{"n_prompt": 1, "samples_at_s": [9, 11, 11.5, 14.5, "x"], "samples_ns": [1e9, 1e9, 1e9, 1e9, 1]}])");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[1].begin_s, 11);
  for (size_t i = 1; i < spans.size(); i++) EXPECT_GE(spans[i].begin_s, spans[i - 1].end_s);
}

TEST(Spans, OfALedgerEndWithTheRun) {
  const auto spans = SpansOf(10, 15, R"({"parts_ms": {"load": 1000, "tokenise": 0, "prefill": 2000, "decode": 500}})");
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans[0].name, "start");
  EXPECT_DOUBLE_EQ(spans[1].begin_s, 11.5);
  EXPECT_DOUBLE_EQ(spans[3].end_s, 15);
}

TEST(Steps, AreThoseWhoseOpsWereTimed) {
  const std::string row = R"([{"n_gen": 8, "op_trace": {"every": 16, "ops": ["embed", "head"], "steps": [
      {"at_s": 12, "tokens": 1, "phase": "decode", "us": [100, 300]}, {"at_s": 11, "tokens": 8, "phase": "prefill", "us": [1000, 0]},
      {"at_s": 12.0002, "tokens": 1, "phase": "decode", "us": [1, 1]}, {"at_s": 99, "us": [1, 1]}, {"at_s": 13, "us": [1]},
      {"at_s": 13, "us": [1, "x"]}, {"at_s": 13, "us": [-1, 1]}, {"us": [1, 1]}, 7]}}, {"op_trace": 3}, {"op_trace": {"ops": 1}}, 4])";
  const auto steps = StepsOf(10, 15, row);
  ASSERT_EQ(steps.size(), 2u);  // of two that overlap the first; nothing outside of the run, and nothing damaged
  EXPECT_EQ(steps[0].phase, "prefill");
  EXPECT_EQ(steps[0].tokens, 8);
  EXPECT_EQ(steps[1].every, 16);
  ASSERT_EQ(steps[1].ops.size(), 2u);
  EXPECT_EQ(steps[1].ops[1].name, "head");
  EXPECT_NEAR(steps[1].ops[1].begin_s, 12.0001, 1e-9);
  EXPECT_NEAR(steps[1].end_s, 12.0004, 1e-9);
  const std::string step = R"({"op_trace": {"every": 1, "ops": ["a"], "steps": [{"at_s": 12, "us": [5]}]}})";
  EXPECT_EQ(StepsOf(10, 15, step).size(), 1u);
  EXPECT_EQ(StepsOf(10, 15, R"({"requests": [{"timings": )" + step + "}, {}, 3]}").size(), 1u);
  EXPECT_TRUE(StepsOf(10, 15, "no json").empty());
}

TEST(Requests, AreStampedOrCountFromTheClientsClock) {
  const std::string text = R"({"clock_s": 11, "requests": [
      {"prompt_id": "zh-1", "sent_s": 0, "first_token_s": 0.25, "done_s": 1, "ended_s": null, "timings": {"parts_ms": {"queue": 1}}}, {"prompt_id": "en-1", "sent_s": 0.5, "done_s": 2},
      {"sent_s": 3, "done_s": 9}, {"prompt_id": "x"}, 7,
      {"prompt_id": "cli", "began_s": 12, "ended_s": 14, "timings": {"parts_ms": {"load": 500, "prefill": 1000}}}]})";
  const auto requests = RequestsOf(10, 15, text);
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].prompt, "zh-1");
  EXPECT_DOUBLE_EQ(requests[0].first_token_s.value(), 11.25);
  EXPECT_DOUBLE_EQ(requests[1].begin_s, 11.5);
  EXPECT_DOUBLE_EQ(requests[2].end_s, 14);
  EXPECT_TRUE(RequestsOf(10, 15, R"({"requests": [{"sent_s": 0, "done_s": 1}]})").empty());
  const auto spans = SpansOf(10, 15, text);
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[1].name, "load");
  EXPECT_DOUBLE_EQ(spans[1].begin_s, 12.5);
  EXPECT_DOUBLE_EQ(spans[2].end_s, 14);
}

TEST(Align, RefusesPhasesThatTheMonitorCannotSee) {
  const std::vector<Span> spans = {{"long", 0, 1, ""}, {"short", 1, 1.3, ""}, {"none", 5, 6, ""}};
  const auto readings = Align(spans, Every(0.2, 0, 3));
  ASSERT_EQ(readings.size(), 3u);
  EXPECT_EQ(readings[0].samples, 4u);  // 0.2 to 0.8: the rate at 0 counts from before
  EXPECT_NEAR(readings[0].mean.value(), 0.5, 1e-9);
  EXPECT_FALSE(readings[1].mean);
  EXPECT_FALSE(readings[2].mean);
}

}  // namespace
}  // namespace ridge::lab
