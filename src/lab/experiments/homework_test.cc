#include "lab/experiments/homework.h"

#include <gtest/gtest.h>

namespace ridge::lab {
namespace {

Experiment Depth() { return {.name = "homework-7", .base = {{"m", "tiny"}}, .flag = "d", .values = {"0", "512"}}; }

RunOutput Output(const char* test, double speed, double read) {
  RunOutput out;
  Measured m{.test = test, .value = speed};
  m.bound = "memory", m.read_gbps = read, m.read_ceiling_gbps = 9;
  out.tests.push_back(m);
  out.measures.model_bytes = 100e6;
  return out;
}

Finding Of(const char* test, const char* value, size_t arm, double median, double ratio) {
  Finding f{.test = test, .value = value, .unit = "t/s", .arm = arm, .blocks = 6};
  f.median = median, f.ratio = ratio, f.verdict = arm == 0 ? "reference" : "slower";
  return f;
}

TEST(Homework, NumberIsThatOfTheName) {
  EXPECT_EQ(HomeworkNumber(Depth()), 7);
  EXPECT_EQ(HomeworkNumber({.name = "threads"}), 0);
  EXPECT_EQ(HomeworkNumber({.name = "homework-12"}), 0);
}

TEST(Homework, SevenHoldsTheCeilingAgainstWhatIsMeasured) {
  const Experiment e = Depth();
  Homework h{.number = 7, .experiment = &e};
  h.findings = {Of("tg32", "0", 0, 80, 1), Of("tg32 @ d512", "512", 2, 60, 0.75)};
  h.arms = {{0, Output("tg32", 80, 8)}, {2, Output("tg32 @ d512", 60, 7.5)}};
  h.ceiling_gbps = {{0, 10}, {2, 10}};
  std::string text = AnswerHomework(h);
  // 10 GB/s over 100 MB; 8 GB/s at 80 t/s are 100 MB a token; at depth 512 they are 125 MB.
  EXPECT_NE(text.find("| 0 | 10.0 GB/s | 100.0 MB | 100.0 t/s | 100.0 MB | 100.0 t/s | 80.0 t/s | 80 % |"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("| 512 | 10.0 GB/s | 100.0 MB | 100.0 t/s | 125.0 MB | 80.0 t/s | 60.0 t/s | 75 % |"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("too low"), std::string::npos);
  EXPECT_NE(text.find("nearest to here: memory"), std::string::npos);
  h.ceiling_gbps = {{0, 6}, {2, 6}};
  EXPECT_NE(AnswerHomework(h).find("the ceiling is too low"), std::string::npos);
  h.ceiling_gbps.clear();
  EXPECT_NE(AnswerHomework(h).find("Undetermined"), std::string::npos);
}

TEST(Homework, WhatWasNotRunIsNotAnsweredButShownFromALog) {
  const Experiment e{.name = "homework-6", .flag = "ngl", .values = {"0"}, .not_run = {{"99", "no NVIDIA driver"}}};
  Homework h{.number = 6, .experiment = &e};
  std::string text = AnswerHomework(h);
  EXPECT_NE(text.find("Not run on this device: ngl = 99: no NVIDIA driver"), std::string::npos);
  EXPECT_NE(text.find("Nothing is filled in"), std::string::npos);
  h.recorded = ParseRecorded(
                   "# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec\n# Idx      W      C      C      %      %   "
                   "   %      %\n"
                   "    0     60     40      -     90     70      0      0\n    0     62     41      -     94     74   "
                   "   0      0\n")
                   .value();
  h.recorded_name = "dmon.txt";
  text = AnswerHomework(h);
  EXPECT_NE(text.find("As recorded in dmon.txt (dmon, 2 samples)"), std::string::npos) << text;
  EXPECT_NE(text.find("had a kernel running 92 % of the time and touched its memory 72 % of it"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace ridge::lab
