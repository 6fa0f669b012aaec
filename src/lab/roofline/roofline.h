// The ceilings of this machine, measured: read bandwidth, arithmetic peaks per ISA, and the decode kernels' own bandwidth per tensor type.
//
//   RIDGE_ASSIGN_OR_RETURN(Roofline roofline, MeasureRoofline({.build = revision}));
//   roofline.ReadGbps(2)   roofline.Int8Gops("avx512", 2)   roofline.Format("Q4_K")->gbps_l2
//
// Guarantees: every figure was reached by work that ran here (the upper quartile of interleaved repetitions), so a ceiling is never above what the machine can
// do; `verdict` says whether others disturbed the measurement. docs/roofline.md tells the method.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/machine.h"
#include "lab/quiet.h"

namespace ridge::lab {

struct ReadRow {
  int threads = 1;
  double gbps = 0;
  std::string pattern;  // the one that was fastest: "avx512, 1 stream, prefetch 4096 bytes ahead"
};

struct PeakRow {
  std::string isa;
  std::optional<double> int8_gops, bf16_gflops, fp32_gflops;  // at all threads; absent: no such instruction
};

struct FormatRow {
  std::string type, kernel;
  bool integer = false;
  double layout_ratio = 1;              // bytes in memory per byte of the file
  double gbps_memory = 0, gbps_l2 = 0;  // at all threads, by the kernels of Roofline::isa; bytes in memory
  double gbps_decode =
      0;  // matrix after matrix, as a step does it: what is to be expected, no ceiling; 0: not measured
};

// Attention of one token, at all threads, from memory: by type of the KV, channels of a head and query heads that share a KV head.
struct AttentionRow {
  std::string kv_type;
  int64_t head_dim = 0, group = 0;
  double tokens_per_s = 0;  // of one KV head
};

struct Roofline {
  Machine machine;
  std::string fingerprint, build, measured_at;  // measured_at: UTC, ISO 8601
  int threads = 1;                              // "all threads"
  std::string isa;                              // of the formats: the best of this CPU
  std::vector<ReadRow> read;                    // by rising thread count
  std::vector<PeakRow> peaks;                   // worst ISA first
  std::vector<FormatRow> formats;
  std::vector<AttentionRow> attention;  // empty: of a version that did not measure it
  double dispatch_us = 0;               // of work that is handed to all threads and comes back; 0: likewise
  Disturbance disturbance;
  Verdict verdict;
  bool is_short = false;  // fewer repetitions on less memory: good to a few percent
  int rounds = 0;
  double seconds = 0;

  // For a thread count between two that were measured: the lower one's, which can only be too low.
  std::optional<double> ReadGbps(int n_threads) const;
  // Scaled to the thread count.
  std::optional<double> Int8Gops(const std::string& isa, int n_threads) const;
  std::optional<double> Fp32Gflops(const std::string& isa, int n_threads) const;
  const FormatRow* Format(const std::string& type) const;  // nullptr: has no kernel of its own
  // For one KV head and one token that is seen, at all threads: between the groups that were measured on a straight line, heads in proportion to those of
  // the nearest size.
  std::optional<double> AttentionSeconds(const std::string& kv_type, int64_t head_dim, double group) const;
};

struct RooflineOptions {
  std::string build;  // of this program: figures of the kernels hold for one build
  bool is_short = false;
  // Called between measurements with the share done, in 0 to 1.
  std::function<void(double)> progress;
};

// Takes 10 to 25 seconds, short about 2. Errors: kResourceExhausted where memory well past the caches is not to be had.
Result<Roofline> MeasureRoofline(const RooflineOptions& options);

}  // namespace ridge::lab
