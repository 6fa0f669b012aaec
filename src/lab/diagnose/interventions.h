// What `ridge diagnose` does to the machine, and how each part of the work would answer to it: measured on that part alone, at the same time.
//
//   RIDGE_ASSIGN_OR_RETURN(PartRates rates, PartRates::Create(step, machine));
//   RIDGE_ASSIGN_OR_RETURN(const Rates a, rates.Measure({.threads = 2, .isa = "avx512"}));
//   RIDGE_ASSIGN_OR_RETURN(const Rates b, rates.Measure({.threads = 1, .isa = "avx512"}));
//   response.factors = FactorsOf(a, b);          // memory: 1.7, compute: 2.0, overhead: 1
//
// Guarantee: nothing here outlives its object; an Antagonist's threads end with it. One thread at a time.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/probe.h"
#include "base/memory.h"
#include "base/result.h"
#include "lab/diagnose/diagnose.h"
#include "lab/machine.h"
#include "lab/roofline/meter.h"
#include "lab/roofline/work.h"

namespace ridge::lab {

struct Condition {
  int threads = 1;
  std::string isa;
};

// Seconds that one step's worth of each part takes alone; absent: this ISA has no such loop.
struct Rates {
  double read_s = 0, unpack_s = 0;
  std::optional<double> compute_s, float_s;
  double read_gbps = 0;
};

class PartRates {
 public:
  // Reads as many bytes as a step does (16 MiB to 1 GiB), so that caches hold of them what they hold of the model. Errors: kResourceExhausted.
  static Result<PartRates> Create(const Work& step, const Machine& machine);
  Result<Rates> Measure(const Condition& condition);
  // CPU time that threads which only compute were given, over their time.
  static Result<double> CpuShare(int n_threads, double seconds);

 private:
  PartRates(Work step, Meter meter) : step_(std::move(step)), meter_(std::move(meter)) {}
  Work step_;
  Meter meter_;
  std::map<std::string, int64_t> rounds_;  // of peak loops, by ISA and kind
  std::map<std::string, std::vector<backend::FormatProbe>> formats_;
};

// GB/s at which memory past the caches can be read now, as `ridge roofline` reads it: the best of some patterns.
Result<double> ReadNow(int n_threads, const Machine& machine);

// Of two conditions, how much longer each part takes in the second. What is not known (an ISA without the loop) follows unpacking, with doubt.
Factors FactorsOf(const Rates& without, const Rates& with);

// Threads that stream through memory of their own until they are destroyed, or Rest is called.
class Antagonist {
 public:
  static Result<std::unique_ptr<Antagonist>> Create(int n_threads, const Machine& machine);
  ~Antagonist();
  void Work();
  void Rest();

 private:
  Antagonist() = default;
  void Loop(size_t index);
  Buffer memory_;
  size_t each_bytes_ = 0;  // of memory_, a thread's part
  std::vector<std::thread> threads_;
  std::atomic<bool> working_{false}, stop_{false};
};

}  // namespace ridge::lab
