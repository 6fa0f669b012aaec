// Turns byte counts into speed and remaining time, and passes them on a few times a second.
//
//   Meter meter(options.progress);
//   meter.Start("model.gguf", 0, total_bytes); meter.Advance(n); meter.Flush();
//
// Guarantees: the speed is that of the last few seconds, not since the start, so a resumed or stalled download shows
// what is true now. The callback runs on the calling thread, at most ten times a second (Flush always calls it).
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <string>

#include "hub/hub.h"

namespace ridge::hub {

class Meter {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Meter(std::function<void(const Progress&)> callback) : callback_(std::move(callback)) {}

  void Start(std::string label, uint64_t done_bytes, uint64_t total_bytes, Clock::time_point now = Clock::now());
  void SetTotal(uint64_t total_bytes) { total_bytes_ = total_bytes; }
  void SetDone(uint64_t done_bytes, Clock::time_point now = Clock::now());  // may go back
  void Advance(uint64_t bytes, Clock::time_point now = Clock::now()) { SetDone(done_bytes_ + bytes, now); }
  void Tick(Clock::time_point now = Clock::now()) { SetDone(done_bytes_, now); }
  void Flush();
  Progress Now() const;

 private:
  struct Sample {
    Clock::time_point at;
    uint64_t done_bytes;
  };
  std::function<void(const Progress&)> callback_;
  std::string label_;
  uint64_t done_bytes_ = 0;
  uint64_t total_bytes_ = 0;
  std::deque<Sample> samples_;
  Clock::time_point shown_{};
};

}  // namespace ridge::hub
