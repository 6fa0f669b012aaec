// What all routes share: the service, how this server names its model, and the server's own counts.
//
//   Reply Models(const Context& context, const Request&) { return JsonReply({{"id", context.model_id}, ...}); }
//
// Guarantees: immutable while requests are served, but for the counts, which are atomic. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "server/http.h"
#include "server/json_reader.h"
#include "service/embedder.h"
#include "service/service.h"

namespace ridge::server {

struct Counts {
  std::atomic<int64_t> connections = 0;  // open now
  std::atomic<uint64_t> connections_refused = 0;
  std::atomic<uint64_t> requests = 0;
  std::atomic<uint64_t> answers_2xx = 0, answers_4xx = 0, answers_5xx = 0;
  std::atomic<uint64_t> body_bytes = 0;   // of requests that are being read or tokenized, now
  std::atomic<uint64_t> disconnects = 0;  // requests whose client went away before the end
  std::atomic<uint64_t> stopped = 0, full = 0, cancelled = 0, failed = 0;  // answers by finish reason
};

struct Context {
  // One of them, once the model is loaded: text or embeddings.
  service::Service* service = nullptr;
  service::Embedder* embedder = nullptr;
  std::string model_id;
  std::vector<std::string> aliases = {};  // also accepted in a request
  int64_t created = 0;                    // Unix seconds
  engine::Speculation speculation = engine::Speculation::kOff;
  double stall_s = 120;      // a step that lasts longer: /health says no
  std::string version = {};  // of the program
  Counts* counts = nullptr;

  bool loaded() const { return service != nullptr || embedder != nullptr; }
  const service::Runtime& runtime() const { return service != nullptr ? service->runtime() : embedder->runtime(); }
  const text::Tokenizer& tokenizer() const { return service != nullptr ? service->tokenizer() : embedder->tokenizer(); }
};

Reply JsonReply(const Json& document);

}  // namespace ridge::server
