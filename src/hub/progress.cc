#include "hub/progress.h"

namespace ridge::hub {
namespace {

constexpr auto kWindow = std::chrono::seconds(5);
constexpr auto kInterval = std::chrono::milliseconds(100);

}  // namespace

void Meter::Start(std::string label, uint64_t done_bytes, uint64_t total_bytes, Clock::time_point now) {
  label_ = std::move(label);
  done_bytes_ = done_bytes;
  total_bytes_ = total_bytes;
  samples_.assign(1, {now, done_bytes});
  shown_ = {};
}

void Meter::SetDone(uint64_t done_bytes, Clock::time_point now) {
  if (done_bytes < done_bytes_) samples_.assign(1, {now, done_bytes});  // started over
  done_bytes_ = done_bytes;
  if (shown_ != Clock::time_point{} && now - shown_ < kInterval) return;
  shown_ = now;
  samples_.push_back({now, done_bytes});
  while (samples_.size() > 2 && now - samples_[1].at >= kWindow) samples_.pop_front();
  Flush();
}

Progress Meter::Now() const {
  Progress progress{label_, done_bytes_, total_bytes_, 0, -1};
  if (samples_.size() >= 2) {
    const double seconds = std::chrono::duration<double>(samples_.back().at - samples_.front().at).count();
    if (seconds > 0)
      progress.bytes_per_second =
          static_cast<double>(samples_.back().done_bytes - samples_.front().done_bytes) / seconds;
  }
  if (progress.bytes_per_second > 0 && total_bytes_ >= done_bytes_ && total_bytes_ > 0) {
    progress.remaining_seconds = static_cast<double>(total_bytes_ - done_bytes_) / progress.bytes_per_second;
  }
  return progress;
}

void Meter::Flush() {
  if (callback_) callback_(Now());
}

}  // namespace ridge::hub
