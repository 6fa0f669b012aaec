#include "lab/monitor/recorded.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

namespace ridge::lab {
namespace {

constexpr const char* kFolder = "tests/golden/monitor/";

std::string Read(const std::string& name) {
  std::ifstream file(kFolder + name, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// One reading a line, as the golden files hold it.
std::string Dump(const Recorded& log) {
  std::string out;
  for (const Row& row : log.rows) {
    out += fmt::format("line {}{}\n", row.line, row.time.empty() ? "" : " at " + row.time);
    for (const Field& f : row.fields)
      out += fmt::format("  {} {}\n", f.name,
                         f.value            ? fmt::format("{}", *f.value)
                         : f.reason.empty() ? "\"" + f.text + "\""
                                            : "null (" + f.reason + ")");
    for (const std::string& u : row.unknown) out += "  unknown: " + u + "\n";
  }
  return out;
}

// RIDGE_WRITE_GOLDEN=1 writes them anew; then read the difference.
void ExpectGolden(const std::string& name, LogKind kind, size_t rows) {
  const auto log = ParseRecorded(Read(name + ".txt"));
  ASSERT_TRUE(log) << name << ": " << log.error().Message();
  EXPECT_EQ(log->kind, kind) << name;
  EXPECT_EQ(log->rows.size(), rows) << name;
  const std::string dump = Dump(*log);
  if (std::getenv("RIDGE_WRITE_GOLDEN") != nullptr) std::ofstream(kFolder + name + ".golden", std::ios::binary) << dump;
  EXPECT_EQ(dump, Read(name + ".golden")) << name;
}

double Value(const Row& row, std::string_view name) {
  const Field* f = row.Find(name);
  if (f == nullptr || !f->value) {
    ADD_FAILURE() << name << " has no value";
    return 0;
  }
  return *f->value;
}

TEST(Recorded, GoldenLogs) {
  ExpectGolden("tegrastats", LogKind::kTegrastats, 30);
  ExpectGolden("dmon", LogKind::kDmon, 4);
  ExpectGolden("llama-server-old", LogKind::kLlamaServer, 2);
  ExpectGolden("llama-server-new", LogKind::kLlamaServer, 2);
  ExpectGolden("llama-cli", LogKind::kLlamaServer, 1);
  ExpectGolden("vllm", LogKind::kVllm, 3);
  ExpectGolden("sglang", LogKind::kSglang, 4);
  ExpectGolden("ollama", LogKind::kOllama, 4);
  for (const char* format : {"md", "csv", "json", "jsonl", "sql"})
    ExpectGolden(std::string("llama-bench-") + format, LogKind::kLlamaBench, 2);
}

// What the golden files say, said again where it matters most.
TEST(Recorded, TegrastatsMeansWhatTheBoardsMean) {
  const Recorded log = ParseRecorded(Read("tegrastats.txt")).value();
  const auto total = [&](size_t line) { return log.rows[line - 1].Find("power_total_from")->text; };
  EXPECT_EQ(Value(log.rows[0], "power_total_mw"), 1861);  // Nano: the input rail, not itself and its parts
  EXPECT_EQ(total(1), "rail POM_5V_IN");
  EXPECT_EQ(total(4), "rail VDD_IN");
  EXPECT_EQ(total(11), "sum of 4 rails");  // AGX Orin has no rail for all, and NC is not connected
  EXPECT_EQ(Value(log.rows[10], "power_total_mw"), 2390 + 797 + 3020 + 504);
  EXPECT_EQ(total(27), "rail VIN");
  EXPECT_EQ(Value(log.rows[5], "power_gpu_mw"), 310);  // Xavier's rail has the name of a sensor
  EXPECT_EQ(Value(log.rows[5], "temp_gpu_c"), 34);
  EXPECT_EQ(log.rows[10].time, "01-03-2023 16:07:54");
  const Field* gpu = log.rows[10].Find("temp_gpu_c");
  ASSERT_NE(gpu, nullptr);
  EXPECT_FALSE(gpu->value);
  EXPECT_EQ(gpu->reason, "sensor is off");
  EXPECT_EQ(Value(log.rows[8], "cpu0_mhz"), 1036);  // one clock for all
  EXPECT_FALSE(log.rows[8].Find("cpu2_use_percent")->value);
  EXPECT_EQ(Value(log.rows[15], "ram_lfb_block_kb"), 64);
  EXPECT_EQ(Value(log.rows[23], "gr3d_1_mhz"), 1300);
  EXPECT_FALSE(log.rows[26].Find("gr3d_use_percent")->value);  // Thor tells clocks only
  EXPECT_EQ(Value(log.rows[24], "power_vdd_gpu_soc_third_mw"), 26012);
  EXPECT_EQ(log.rows[21].unknown, (std::vector<std::string>{"FUTURE_ENGINE", "ready", "SOMETHING{x}"}));
  EXPECT_EQ(log.rows[22].unknown, (std::vector<std::string>{"CPU", "[1%@1113,broken]", "cpu@hotC"}));
  EXPECT_EQ(log.rows[20].unknown.size(), 0u);  // another order
}

TEST(Recorded, LlamaBenchSaysTheSameInEachFormat) {
  for (const char* format : {"csv", "json", "jsonl", "sql", "md"}) {
    const Recorded log = ParseRecorded(Read(std::string("llama-bench-") + format + ".txt")).value();
    ASSERT_EQ(log.rows.size(), 2u) << format;
    EXPECT_EQ(Value(log.rows[0], "n_prompt"), 16) << format;
    EXPECT_EQ(Value(log.rows[0], "n_gen"), 0) << format;
    EXPECT_EQ(Value(log.rows[1], "n_gen"), 8) << format;
    EXPECT_EQ(Value(log.rows[0], "n_threads"), 1) << format;
    EXPECT_GT(Value(log.rows[0], "avg_ts"), 1000) << format;
    EXPECT_GT(Value(log.rows[0], "stddev_ts"), 0) << format;
    EXPECT_EQ(log.rows[0].Find("model_type")->text, "llama ?B (guessed) all F32") << format;
  }
  const Recorded deep = ParseRecorded(
                            "| model | t/s | test |\n| --- | ---: | --- |\n| m | 12.50 ± 0.25 | pp512+tg128 @ d1024 "
                            "|\n| m | 3 ± 1 | broken\n")
                            .value();
  ASSERT_EQ(deep.rows.size(), 1u);
  EXPECT_EQ(Value(deep.rows[0], "n_prompt"), 512);
  EXPECT_EQ(Value(deep.rows[0], "n_gen"), 128);
  EXPECT_EQ(Value(deep.rows[0], "n_depth"), 1024);
  EXPECT_EQ(Value(deep.rows[0], "avg_ts"), 12.5);
  EXPECT_EQ(Value(deep.rows[0], "stddev_ts"), 0.25);
}

TEST(Recorded, RatesThatAreNoNumberAreNull) {
  const Recorded log = ParseRecorded(Read("llama-server-old.txt")).value();
  const Field* rate = log.rows[1].Find("prompt_per_second");
  ASSERT_NE(rate, nullptr);
  EXPECT_FALSE(rate->value);  // "inf"
  EXPECT_EQ(Value(log.rows[1], "task"), 9);
}

TEST(Recorded, OtherTextIsRefused) {
  EXPECT_FALSE(ParseRecorded(""));
  EXPECT_FALSE(ParseRecorded("hello\nworld\n"));
  EXPECT_FALSE(ParseRecorded(Read("vllm.txt"), LogKind::kDmon));
  EXPECT_FALSE(ParseLogKind("syslog"));
}

TEST(Recorded, CsvHasAColumnForEachReadingAndQuotes) {
  Recorded log;
  log.rows.resize(2);
  log.rows[0].line = 1;
  log.rows[0].Add("a", 1.5);
  log.rows[0].AddText("t", "x,\"y\"");
  log.rows[1].line = 2, log.rows[1].time = "now";
  log.rows[1].Add("a", {}, "off");
  log.rows[1].Add("b", 2);
  log.rows[1].unknown = {"p", "q"};
  EXPECT_EQ(RecordedCsv(log), "line,time,a,t,b,unknown\n1,,1.5,\"x,\"\"y\"\"\",,\n2,now,,,2,p q\n");
}

// Any bytes: no crash, and every parser ends.
TEST(Recorded, CutAndBrokenLogsAreParsed) {
  std::mt19937 random(1);
  for (const char* name : {"tegrastats", "dmon", "llama-server-new", "vllm", "sglang", "ollama", "llama-bench-md",
                           "llama-bench-csv", "llama-bench-json", "llama-bench-jsonl", "llama-bench-sql"}) {
    const std::string text = Read(std::string(name) + ".txt");
    ASSERT_GT(text.size(), 100u) << name;
    for (int i = 0; i < 60; i++) {
      std::string broken = text.substr(0, random() % text.size());
      for (int k = 0; k < 5 && !broken.empty(); k++) broken[random() % broken.size()] = static_cast<char>(random());
      for (const LogKind kind : {LogKind::kTegrastats, LogKind::kDmon, LogKind::kLlamaBench, LogKind::kLlamaServer,
                                 LogKind::kVllm, LogKind::kSglang, LogKind::kOllama}) {
        const auto log = ParseRecorded(broken, kind);
        EXPECT_TRUE(!log || !log->rows.empty());
      }
    }
  }
}

}  // namespace
}  // namespace ridge::lab
