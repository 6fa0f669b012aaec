#include <gtest/gtest.h>

#include "lab/evidence/report.h"

namespace ridge::lab {
namespace {

EvidenceRun RunOf(size_t arm, const char* test, double speed, double read, double ceiling) {
  EvidenceRun r;
  r.plan.arm = arm;
  r.record.done = true;
  Measured m{.test = test, .value = speed};
  m.bound = "memory", m.read_gbps = read;
  if (ceiling > 0) m.read_ceiling_gbps = ceiling;
  r.record.output.tests.push_back(m);
  r.record.output.measures.model_bytes = 100e6;
  return r;
}

Finding Of(const char* test, const char* value, size_t arm, double median, double ratio) {
  Finding f{.test = test, .value = value, .unit = "t/s", .arm = arm, .blocks = 6};
  f.median = median, f.ratio = ratio, f.verdict = arm == 0 ? "reference" : "slower";
  return f;
}

std::string TextOf(const BundleEvidence& e, ReportLanguage language = ReportLanguage::kEnglish) {
  Document d{.language = language, .title = "t"};
  for (Block& b : HomeworkOf(e, {language})) d.Add(std::move(b));
  return ToMarkdown({d});
}

TEST(Homework, NumberIsThatOfTheName) {
  EXPECT_EQ(HomeworkNumber({.name = "homework-7"}), 7);
  EXPECT_EQ(HomeworkNumber({.name = "threads"}), 0);
  EXPECT_EQ(HomeworkNumber({.name = "homework-12"}), 0);
  BundleEvidence e;
  e.experiment.name = "threads";
  EXPECT_TRUE(HomeworkOf(e, {}).empty());
}

BundleEvidence Seven(double ceiling) {
  BundleEvidence e;
  e.experiment = {.name = "homework-7", .base = {{"m", "tiny"}}, .flag = "d", .values = {"0", "512"}};
  e.runs = {RunOf(0, "tg32", 80, 8, ceiling), RunOf(2, "tg32 @ d512", 60, 7.5, ceiling)};
  e.findings = {Of("tg32", "0", 0, 80, 1), Of("tg32 @ d512", "512", 2, 60, 0.75)};
  return e;
}

TEST(Homework, SevenHoldsTheCeilingAgainstWhatIsMeasured) {
  const std::string text = TextOf(Seven(10));
  // 10 GB/s over 100 MB; 8 GB/s at 80 t/s are 100 MB a token; at depth 512 they are 125 MB.
  EXPECT_NE(text.find("| 0 | 10.0 GB/s | 100.0 MB | 100.0 t/s | 100.0 MB | 100.0 t/s | 80.0 t/s | 80 % |"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("| 512 | 10.0 GB/s | 100.0 MB | 100.0 t/s | 125.0 MB | 80.0 t/s | 60.0 t/s | 75 % |"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("too low"), std::string::npos);
  EXPECT_NE(text.find("nearest to here: memory bandwidth"), std::string::npos);
  EXPECT_NE(TextOf(Seven(6)).find("the ceiling is too low"), std::string::npos);
  EXPECT_NE(TextOf(Seven(0)).find("Undetermined"), std::string::npos);
  const std::string chinese = TextOf(Seven(10), ReportLanguage::kChinese);
  EXPECT_NE(chinese.find("作业 7"), std::string::npos);
  EXPECT_NE(chinese.find("差距来源"), std::string::npos);
  EXPECT_EQ(chinese.find("Where the gap"), std::string::npos);
}

TEST(Homework, SixSaysWhichConfigurationIsNearerToMemoryBound) {
  BundleEvidence e;
  e.experiment = {.name = "homework-6", .flag = "ngl", .values = {"0", "99"}};
  e.runs = {RunOf(0, "tg32", 50, 0, 0), RunOf(2, "tg32", 500, 0, 0)};
  e.findings = {Of("pp128", "0", 0, 70, 1), Of("tg32", "0", 0, 50, 1), Of("pp128", "99", 2, 9000, 1),
                Of("tg32", "99", 2, 500, 1)};
  const std::string text = TextOf(e);
  EXPECT_NE(text.find("| ngl = 0 | 70.0 t/s | 50.0 t/s | 1.40 | 5.00 GB/s | not memory-bound |"), std::string::npos)
      << text;
  EXPECT_NE(text.find("| ngl = 99 | 9000 t/s | 500 t/s | 18.0 | 50.0 GB/s | memory-bound |"), std::string::npos)
      << text;
  EXPECT_NE(text.find("Nearer to memory-bound: ngl = 99."), std::string::npos);
  // The same from what llama-bench said on a machine that has a GPU.
  BundleEvidence recorded;
  recorded.experiment = {.name = "homework-6", .flag = "ngl", .values = {"0"}, .not_run = {{"99", "no NVIDIA driver"}}};
  recorded.recorded = ParseRecorded(
                          "[\n"
                          R"({"model_size": 100000000, "n_gpu_layers": 99, "n_prompt": 512, "n_gen": 0, "avg_ts": 9000},
 {"model_size": 100000000, "n_gpu_layers": 99, "n_prompt": 0, "n_gen": 128, "avg_ts": 500},
 {"model_size": 100000000, "n_gpu_layers": 0, "n_prompt": 512, "n_gen": 0, "avg_ts": 70},
 {"model_size": 100000000, "n_gpu_layers": 0, "n_prompt": 0, "n_gen": 128, "avg_ts": 50}])",
                          LogKind::kLlamaBench)
                          .value();
  recorded.recorded_name = "bench.json";
  const std::string shown = TextOf(recorded, ReportLanguage::kChinese);
  EXPECT_NE(shown.find("更接近 memory-bound 的配置：ngl = 99"), std::string::npos) << shown;
  EXPECT_NE(shown.find("没有 NVIDIA 驱动"), std::string::npos);
  // And as it stands in a course's log.
  recorded.recorded =
      ParseRecorded(
          "| model | size | params | backend | ngl | test | t/s |\n| --- | ---: | ---: | --- | --: | ---: | ---: |\n"
          "| qwen2 1.5B Q4_K | 1.04 GiB | 1.54 B | CUDA | 99 | pp512 | 9000.00 ± 20.00 |\n"
          "| qwen2 1.5B Q4_K | 1.04 GiB | 1.54 B | CUDA | 99 | tg128 | 500.00 ± 2.00 |\n")
          .value();
  EXPECT_NE(TextOf(recorded).find("| ngl = 99 | 9000 t/s | 500 t/s | 18.0 | \\- | memory-bound |"), std::string::npos)
      << TextOf(recorded);
}

TEST(Homework, WhatWasNotRunIsNotAnsweredButShownFromALog) {
  BundleEvidence e;
  e.experiment = {
      .name = "homework-5", .flag = "power-mode", .values = {"0"}, .not_run = {{"(every mode)", "no NVIDIA driver"}}};
  std::string text = TextOf(e);
  EXPECT_NE(text.find("Not run on this device: power-mode = (every mode): no NVIDIA driver"), std::string::npos)
      << text;
  EXPECT_NE(text.find("Nothing is filled in"), std::string::npos);
  e.recorded = ParseRecorded(
                   "# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec\n# Idx      W      C      C      %      %   "
                   "   %      %\n"
                   "    0     60     40      -     90     70      0      0\n    0     62     41      -     94     74   "
                   "   0      0\n")
                   .value();
  e.recorded_name = "dmon.txt";
  text = TextOf(e);
  EXPECT_NE(text.find("As recorded in dmon.txt (dmon, 2 samples)"), std::string::npos) << text;
  EXPECT_NE(text.find("had a kernel running 92 % of the time and touched its memory 72 % of it"), std::string::npos)
      << text;
  // A log that is long enough has a beginning and an end.
  std::string log;
  for (int i = 0; i < 12; i++)
    log += "RAM 330/3964MB (lfb 758x4MB) CPU [1%@102] GR3D_FREQ 7%@76 CPU@" + std::to_string(40 + i) +
           "C POM_5V_IN 933/933\n";
  e.recorded = ParseRecorded(log).value();
  EXPECT_NE(TextOf(e).find("still getting warmer at the end: temp_cpu_c 41.0 → 50.0"), std::string::npos) << TextOf(e);
}

}  // namespace
}  // namespace ridge::lab
