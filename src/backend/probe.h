// Work that finds the limits of the CPU: arithmetic in registers, plain reading, and the decode matmul of each tensor type and the attention of each
// KV type on bytes that the caller holds. Only the work; who times it is `lab`.
//
//   for (const PeakProbe& isa : CpuPeaks()) operations += isa.int8(rounds);
//   for (const FormatProbe& format : *CpuFormats("", 2048)) format.Run(panels, n_panels, out);
//
// Guarantees: enumerated from the kernel tables, so a new ISA or tensor type appears unasked. Immutable and thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace ridge::backend {

struct ReadPattern {
  int streams = 1;          // 1, 2, 4 or 8, side by side over equal parts of the bytes
  int64_t ahead_bytes = 0;  // distance of the software prefetch; 0: none
};

// Loops of one ISA target that this CPU runs. Each of the first three makes about `rounds` short rounds and returns how many products and sums
// they were; empty where the target has no such instruction.
struct PeakProbe {
  std::string isa;
  std::function<double(int64_t rounds)> int8, bf16, fp32;
  std::function<void(const std::byte* data, size_t size_bytes, ReadPattern pattern)> read;  // size_bytes % 2048 == 0
};
std::vector<PeakProbe> CpuPeaks();  // worst first

// One token times a matrix of one tensor type, by the kernel and in the layout that decoding uses.
class FormatProbe {
 public:
  std::string type;         // "Q4_K"
  std::string kernel;       // "panel16.q4_k"; types with one kernel need be timed only once
  bool integer = false;     // multiplies in int8, else in float32
  double layout_ratio = 1;  // bytes of the layout per byte of the GGUF type
  size_t panel_bytes = 0;   // of 16 rows
  static constexpr int kPanelRows = 16;

  // panels [n_panels, panel_bytes] -> out [n_panels * 16]. Any bytes do, though only normal numbers take the usual time.
  void Run(const std::byte* panels, int64_t n_panels, float* out) const { run_(panels, n_panels, out); }

 private:
  friend Result<std::vector<FormatProbe>> CpuFormats(const std::string& isa, int64_t columns);
  std::function<void(const std::byte*, int64_t, float*)> run_;
};
// Every type with a kernel of its own, for rows of `columns` (a multiple of 256). Errors: those of an unknown or missing ISA; empty: the best.
Result<std::vector<FormatProbe>> CpuFormats(const std::string& isa, int64_t columns);

// One token's attention over the keys and values of one KV head, by the kernel that decoding uses and in its layout.
class AttentionProbe {
 public:
  std::string kv_type;                      // "f16", of keys and of values
  int64_t head_dim = 0, group = 0;          // query heads that share the KV head
  static constexpr int64_t kTokens = 1024;  // seen by the token
  size_t bytes = 0;                         // of their keys and values

  void Run(const std::byte* kv) const { run_(kv); }  // any bytes do, as above

 private:
  friend std::vector<AttentionProbe> CpuAttention();
  std::function<void(const std::byte*)> run_;
};
// Every KV type, for heads of 64 and 128 channels in groups of 1, 2, 4 and 8, by the best ISA.
std::vector<AttentionProbe> CpuAttention();

}  // namespace ridge::backend
