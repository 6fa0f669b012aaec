// What the connections of one server share. Only files that may see Asio include this.
//
//   asio::co_spawn(hub.io, Serve(hub, std::move(socket)), asio::detached);
//
// Guarantees: all members but the threads belong to the I/O thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstddef>
#include <functional>
#include <unordered_set>

#include "server/context.h"
#include "server/server.h"

namespace ridge::server {

class Connection;

struct Hub {
  explicit Hub(const ServerOptions& server_options) : options(server_options) {}

  ServerOptions options;
  Counts counts;
  Context context;  // its service is null until requests are taken
  bool draining = false;
  size_t body_bytes = 0;    // of requests that are being read or tokenized
  bool trim_waits = false;  // see TrimMemory
  std::unordered_set<Connection*> connections;
  std::function<void()> on_empty;  // the last connection is gone
  // Last: what still runs when the server goes uses the above.
  boost::asio::io_context io{1};
  // Read, tokenize and submit what is not done at once. What takes seconds, and what computes for minutes, goes to threads of its own, so that it
  // only waits for its like.
  boost::asio::thread_pool workers{2}, long_workers{1}, computing{2};
};

// Serves one connection until it ends.
void Accept(Hub& hub, boost::asio::ip::tcp::socket socket);
void CloseIdle(Hub& hub);  // those between two requests
// What large requests have freed goes back to the system, soon.
void TrimMemory(Hub& hub);
void CloseAll(Hub& hub);

}  // namespace ridge::server
