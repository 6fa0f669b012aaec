// One HTTP GET on libcurl, with redirects followed by our own rules. Retries and files are in download.h.
//
//   HttpClient http({.connect_seconds = 5, .stall_seconds = 30});
//   HttpResult got = http.Get({.url = url, .bearer = token}, [&](const HttpHead&, std::span<const std::byte> bytes) {
//   ... return Status(); });
//
// Guarantees: the bearer token goes to the origin (scheme, host, port) of the first URL only; once a redirect has left
// that origin it is not sent again in this request. A redirect from https to http, to another scheme than these two, or
// (unless the first host is itself on a private network) to a loopback, private or link-local address is refused. At
// most 10 redirects. The sink sees bodies of 200 and 206 only. One thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ridge::hub {

struct HttpOptions {
  int connect_seconds = 5;
  int stall_seconds = 30;                     // no byte for so long ends the attempt
  const std::atomic<bool>* cancel = nullptr;  // may be nullptr
  std::function<void()> tick;                 // called at least once a second while waiting
};

struct HttpRequest {
  std::string url;
  std::string accept;
  std::string bearer;
  uint64_t range_start_bytes = 0;  // 0: the whole body
};

struct HttpHead {
  long status = 0;
  std::optional<uint64_t> content_length_bytes;
  std::optional<uint64_t> range_start_bytes;  // of Content-Range
  std::optional<uint64_t> range_total_bytes;
  std::optional<double> retry_after_seconds;
};

enum class Verdict {
  kDone,         // 200 or 206, the body complete
  kUnreachable,  // no connection: name, route, refusal, time-out
  kInterrupted,  // the connection broke or stalled
  kStatus,       // any other HTTP status
  kFatal,        // no use to try again: cancelled, refused by our rules, TLS, the sink's own error
};

struct HttpResult {
  Verdict verdict = Verdict::kFatal;
  HttpHead head;
  Error error;  // unless kDone
};

class HttpClient {
 public:
  using Sink = std::function<Status(const HttpHead& head, std::span<const std::byte> bytes)>;
  explicit HttpClient(HttpOptions options);
  ~HttpClient();
  HttpResult Get(const HttpRequest& request, const Sink& sink);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// "https://host:443", lower case; nullopt for text that is no http or https URL.
std::optional<std::string> OriginOf(const std::string& url);

// The parts of one header line, for tests: fills what `line` says.
void ParseHeader(std::string_view line, HttpHead& head);

// One path segment or query value with everything but unreserved characters percent-encoded.
std::string UrlEncode(std::string_view text);

}  // namespace ridge::hub
