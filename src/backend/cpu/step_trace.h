// Which steps of a program are traced op by op, and what they took.
//
//   StepTrace trace;   trace.Start(16, names);             // one step in 16 of each kind
//   if (trace.Takes(decode)) { trace.Begin(tokens, decode);  …  trace.Add(ns); }   // an Add for each op
//
// Guarantees: the first step of each kind is traced. At most kMostSteps of a kind are kept: when there would be more, every second one is dropped and from then on half as
// many are taken, so that those that are there cover the whole run.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"

namespace ridge::cpu {

class StepTrace {
 public:
  static constexpr size_t kMostSteps = 32;

  // 0: nothing is traced.
  void Start(int64_t every, std::vector<std::string> ops) {
    trace_ = {.every = every, .ops = std::move(ops)};
    for (int kind = 0; kind < 2; kind++) every_[kind] = every, seen_[kind] = 0;
  }

  // The next step of each kind is traced, and one in so many after it.
  void TakeNext() { seen_[0] = seen_[1] = 0; }

  bool Takes(bool decode) {
    const int64_t every = every_[decode ? 1 : 0];
    return every > 0 && seen_[decode ? 1 : 0]++ % every == 0;
  }

  void Begin(int64_t tokens, bool decode) {
    MakeRoom(decode);
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    trace_.steps.push_back({.begin_s = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9,
                            .tokens = tokens,
                            .decode = decode});
    trace_.steps.back().us.reserve(trace_.ops.size());
  }
  void Add(double ns) { trace_.steps.back().us.push_back(static_cast<float>(ns / 1e3)); }

  const backend::OpTrace& trace() const { return trace_; }

 private:
  void MakeRoom(bool decode) {
    const auto of_kind = [&](const backend::TracedStep& s) { return s.decode == decode; };
    if (static_cast<size_t>(std::ranges::count_if(trace_.steps, of_kind)) < kMostSteps) return;
    size_t at = 0;
    std::erase_if(trace_.steps, [&](const backend::TracedStep& s) { return of_kind(s) && at++ % 2 == 1; });
    every_[decode ? 1 : 0] *= 2;
  }

  backend::OpTrace trace_;
  int64_t every_[2] = {}, seen_[2] = {};
};

}  // namespace ridge::cpu
