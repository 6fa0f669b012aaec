// The HTTP server: listens, reads requests within limits, lets routes answer them, and ends in order.
//
//   RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<Server> server, Server::Listen({.port = 8080}));   // /health answers
//   server->Open(context);                                                                 // requests are taken
//   const Server::End end = server->Wait();                                                // until a signal, and drained
//
// Guarantees: one thread does all input and output and never waits for the engine; long requests are read and tokenized by helpers. The end of a
// client's side of its connection cancels its request. SIGTERM or SIGINT: no new requests, those that run finish within drain_s; a second signal ends
// at once. After Wait no thread of the server runs and no request is left. Destroy the service before the server: its wake-ups go there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/context.h"

namespace ridge::server {

struct ServerOptions {
  std::string host = "127.0.0.1";  // an address, or localhost
  int64_t port = 8080;             // 0: any that is free
  std::string api_key = {};        // empty: none asked for
  bool insecure = false;           // an address beyond loopback without a key
  int64_t max_connections = 1024;
  double drain_s = 30;
};

class Server {
 public:
  enum class End { kDrained, kCutOff, kInterrupted };  // kCutOff: drain_s was over and requests were cancelled

  // Errors: kUsage (--host, --port), kUnavailable (the port is taken).
  static Result<std::unique_ptr<Server>> Listen(const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& url() const;  // "http://127.0.0.1:8080"
  Counts& counts();
  void Open(Context context);
  End Wait();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ridge::server
