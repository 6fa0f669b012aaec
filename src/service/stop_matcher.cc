#include "service/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace ridge::service {

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

// The longest end of pending_ that a stop string begins with.
size_t StopMatcher::HeldBytes() const {
  size_t held = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, pending_.size()); n > held; n--) {
      if (std::string_view(pending_).ends_with(std::string_view(stop).substr(0, n))) held = n;
    }
  }
  return held;
}

std::string StopMatcher::Push(std::string_view text) {
  if (matched_) return {};
  pending_ += text;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, pending_.find(stop));
  if (first != std::string::npos) {
    matched_ = true;
    std::string shown = pending_.substr(0, first);
    pending_.clear();
    return shown;
  }
  std::string shown = pending_.substr(0, pending_.size() - HeldBytes());
  pending_.erase(0, shown.size());
  return shown;
}

std::string StopMatcher::Flush() { return std::exchange(pending_, {}); }

}  // namespace ridge::service
