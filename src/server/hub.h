// What the connections of one server share. Only files that may see Asio include this.
//
//   asio::co_spawn(hub.io, Serve(hub, std::move(socket)), asio::detached);
//
// Guarantees: all members but `workers` belong to the I/O thread.
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
  size_t body_bytes = 0;  // of requests that are being read or tokenized
  std::unordered_set<Connection*> connections;
  std::function<void()> on_empty;  // the last connection is gone
  // Last: what still runs when the server goes uses the above.
  boost::asio::io_context io{1};
  boost::asio::thread_pool workers{2};  // read, tokenize and submit what is long
};

// Serves one connection until it ends.
void Accept(Hub& hub, boost::asio::ip::tcp::socket socket);
void CloseIdle(Hub& hub);  // those between two requests
void CloseAll(Hub& hub);

}  // namespace ridge::server
