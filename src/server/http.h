// A request and its answer as a route sees them: no sockets, no threads.
//
//   Reply Health(const Context&, const Request&) { return JsonReply({{"status", "ok"}}); }
//   Reply Chat(const Context&, const Request& request) { ...; return Reply{.response = head, .rest = std::move(source)}; }
//
// Guarantees: plain values. A Source belongs to one thread at a time; its destructor gives up what still runs.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ridge::server {

enum class Method { kGet, kHead, kPost, kOther };

struct Request {
  Method method = Method::kOther;
  std::string path;           // as it came, without the query
  std::string authorization;  // the header's value, or empty
  std::string body;
  std::chrono::steady_clock::time_point arrived = {};  // its first bytes were there, read or not
  // Thread-safe, cheap, may be called after the connection is gone: "look at the Source again".
  std::function<void()> wake;
  std::shared_ptr<const std::atomic<bool>> gone;  // the client went away: what is computed is for nobody
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;  // beside those that every answer has
  std::string body;
};

// The part of an answer that comes later.
class Source {
 public:
  virtual ~Source() = default;
  // Takes what is there, without waiting; the request's wake says when to look again. Streams append to `out`; an answer in one piece
  // writes `response`, which is sent when this returns true: there is nothing more.
  virtual bool Pull(Response& response, std::string& out) = 0;
  // The socket has taken all that Pull gave.
  virtual void Written() {}
};

struct Reply {
  Response response;
  std::unique_ptr<Source> rest;
  bool streamed = false;  // the head goes out at once and `rest` writes the body
};

}  // namespace ridge::server
