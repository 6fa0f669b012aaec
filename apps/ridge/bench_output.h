// Rows of ridge bench in llama-bench's formats and with its field names.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench_sweep.h"
#include "command.h"
#include "lab/roofline/work.h"
#include "lab/statistics.h"

namespace ridge::app {

struct BenchRow {
  std::string model_filename, model_type, cpu, isa, type_k, type_v, fusion, matmul;
  std::string profile;  // that settings came from; empty: none
  bool flash_attention = true;
  uint64_t model_size_bytes = 0;
  int64_t model_parameters = 0, n_threads = 0, n_batch = 0, n_ubatch = 0, n_prompt = 0, n_gen = 0, n_depth = 0;
  std::vector<double> samples_ns, samples_ts;
  std::vector<double> samples_at_s;       // when each began: CLOCK_MONOTONIC_RAW
  Statistics time, speed;                 // of samples_ns and samples_ts
  std::optional<lab::Interval> interval;  // of the median speed
  std::optional<double> read_gbps;        // generation only: bytes that a token must read, times the median speed
  std::optional<double> read_ceiling_gbps;
  std::optional<lab::Bound> bound;
  std::string ceiling_reason;         // why there is no bound
  std::optional<lab::Floors> floors;  // of what one repetition does
  double bytes = 0, flops = 0;        // of the same, in the layout that is read
  bool with_sampling = false;
  int64_t trace_every = 0;  // steps of which one was timed op by op; 0: none
  Json op_trace = nullptr;  // see OpTraceJson
};

enum class BenchFormat { kMarkdown, kCsv, kJson, kJsonLines, kSql };
Result<BenchFormat> ParseBenchFormat(const std::string& name);

// Prints rows as they come, so that an interrupted sweep leaves what was measured; JSON is one document, written by End. Why a cell of the table holds "-"
// is said at the end, on stderr, each reason once; the other formats have it in the row.
class BenchPrinter {
 public:
  BenchPrinter(BenchFormat format, Output& out) : format_(format), out_(out) {}
  Status Begin();
  Status Row(const BenchRow& row);
  Status End();

 private:
  BenchFormat format_;
  Output& out_;
  bool first_ = true;
  Json rows_ = Json::array();
  std::set<std::string> reasons_;  // of cells without a figure
};

}  // namespace ridge::app
