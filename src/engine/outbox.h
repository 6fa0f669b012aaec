// The events of one request, from the engine's thread to whoever submitted it.
//
//   TokenEvent event;
//   while (outbox.Next(100ms, event) != Outbox::Got::kEnd) ...;
//   outbox.summary().reason;
//
// Guarantees: events come in order, then the end, once. Thread-safe between one writer and one reader.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/request.h"

namespace ridge::engine {

class Outbox {
 public:
  enum class Got { kToken, kEnd, kNothing };

  // notify: see Request.
  explicit Outbox(std::function<void()> notify = {}) : notify_(std::move(notify)) {}

  void Push(TokenEvent event);  // where there is no memory (std::bad_alloc) nothing has come
  void Finish(Summary summary);

  // Waits at most `timeout` for the next event. kNothing: none came in that time.
  Got Next(std::chrono::milliseconds timeout, TokenEvent& event);
  bool finished() const;           // the engine is done with the request; events may still be waiting
  const Summary& summary() const;  // only after kEnd

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TokenEvent> events_;
  std::optional<Summary> summary_;
  std::function<void()> notify_;
};

}  // namespace ridge::engine
