// The measurements that a roofline is made of, each of one rate, on one block of memory. See docs/roofline.md.
//
//   RIDGE_ASSIGN_OR_RETURN(Meter meter, Meter::Create(machine, 256 << 20, 0.02));
//   RIDGE_ASSIGN_OR_RETURN(double gbps, meter.Read(2, peaks.back(), {.streams = 2}));
//
// Guarantees: rates are of work that all threads did at the same time; memory is past the caches and on huge pages where the system gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "backend/probe.h"
#include "base/memory.h"
#include "base/result.h"
#include "lab/machine.h"

namespace ridge::lab {

class Meter {
 public:
  // memory_bytes is filled with bytes that are normal numbers in every format; least_s is how long one measurement should take.
  // Errors: kResourceExhausted.
  static Result<Meter> Create(const Machine& machine, size_t memory_bytes, double least_s);

  // GB/s, threads claiming pieces of the memory.
  Result<double> Read(int n_threads, const backend::PeakProbe& probe, backend::ReadPattern pattern);
  // Billions of operations a second; `rounds` is remembered by the caller and found by itself where it is 0.
  Result<double> Peak(int n_threads, const std::function<double(int64_t)>& loop, int64_t& rounds);
  // GB/s of the layout's bytes.
  Result<double> FormatInMemory(int n_threads, const backend::FormatProbe& format, size_t bytes);
  // The same as a step of decoding does it: matrices of 8 MiB one after the other, each cut for a pool of threads and waited for.
  Result<double> FormatAsDecoding(int n_threads, const backend::FormatProbe& format, size_t bytes);
  Result<double> FormatInL2(int n_threads, const backend::FormatProbe& format);
  // Tokens a second that one token's attention sees of one KV head; `bytes` of memory are walked through, another part each time.
  Result<double> Attention(int n_threads, const backend::AttentionProbe& probe, size_t bytes);
  // Microseconds of a piece of work that is nothing, handed to all threads of a pool.
  Result<double> Dispatch(int n_threads);

  // Of all measurements so far: CPU time of their threads over their time.
  double cpu_share() const { return wall_s_ > 0 ? cpu_s_ / wall_s_ : 1; }

 private:
  // Where the next `bytes` of the memory begin that were not read just now.
  size_t NextPart(size_t bytes);
  size_t part_at_ = 0;
  Status Fill();
  Result<double> Timed(int n_threads, const std::function<void(int)>& fn);

  Buffer memory_;
  uint64_t l2_bytes_ = 0;
  int cpus_ = 1;
  double least_s_ = 0.02;
  double cpu_s_ = 0, wall_s_ = 0;
};

}  // namespace ridge::lab
