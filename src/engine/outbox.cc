#include "engine/outbox.h"

#include <utility>

namespace ridge::engine {

std::string_view Name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kFailed: return "failed";
  }
  return "?";
}

std::string_view Name(Speculation speculation) {
  switch (speculation) {
    case Speculation::kOff: return "off";
    case Speculation::kLookup: return "lookup";
    case Speculation::kDraft: return "draft";
    case Speculation::kAuto: return "auto";
  }
  return "?";
}

void Outbox::Push(TokenEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  changed_.notify_one();
  if (notify_) notify_();
}

void Outbox::Finish(Summary summary) {
  {
    const std::lock_guard lock(mutex_);
    summary_ = std::move(summary);
  }
  changed_.notify_one();
  if (notify_) notify_();
}

Outbox::Got Outbox::Next(std::chrono::milliseconds timeout, TokenEvent& event) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return !events_.empty() || summary_; });
  if (!events_.empty()) {
    event = std::move(events_.front());
    events_.pop_front();
    return Got::kToken;
  }
  return summary_ ? Got::kEnd : Got::kNothing;
}

bool Outbox::finished() const {
  const std::lock_guard lock(mutex_);
  return summary_.has_value();
}

const Summary& Outbox::summary() const {
  const std::lock_guard lock(mutex_);
  RIDGE_CHECK(summary_.has_value());
  return *summary_;  // never changed once it is set
}

}  // namespace ridge::engine
