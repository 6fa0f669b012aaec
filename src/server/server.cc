#include "server/server.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/write.hpp>
#include <csignal>
#include <future>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "server/api_error.h"
#include "server/arrival.h"
#include "server/hub.h"
#include "server/waker.h"
#include "server/wire.h"

namespace ridge::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::chrono::milliseconds kAcceptPause{50};
constexpr int64_t kOtherFiles = 64;  // descriptors that are not connections

Fail WrongFlag(const char* flag, std::string found, std::string expected) {
  return Fail(Code::kUsage, "wrong value").Where(flag).Found(std::move(found)).Expected(std::move(expected));
}

int64_t FileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return INT64_MAX;
  if (limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 65536);
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    (void)getrlimit(RLIMIT_NOFILE, &limit);
  }
  return static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace

struct Server::Impl {
  explicit Impl(const ServerOptions& options)
      : hub(options), acceptor(hub.io), signals(hub.io), drain(hub.io), work(asio::make_work_guard(hub.io)) {}

  Status Bind();
  asio::awaitable<void> AcceptLoop();
  void Start();
  void OnSignal();
  void Finish(End end);
  void Stop();

  Hub hub;
  tcp::acceptor acceptor;
  asio::signal_set signals;
  asio::steady_timer drain;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::string url;
  int signal_count = 0;
  std::optional<End> end;
  std::promise<End> ended;
  std::thread thread;
};

Status Server::Impl::Bind() {
  const ServerOptions& o = hub.options;
  if (o.port < 0 || o.port > 65535) return WrongFlag("--port", std::to_string(o.port), "0 to 65535");
  error_code error;
  const auto address = asio::ip::make_address(o.host == "localhost" ? "127.0.0.1" : o.host, error);
  if (error) return WrongFlag("--host", o.host, "an IP address, or localhost");
  if (!address.is_loopback() && o.api_key.empty() && !o.insecure) {
    return Fail(Code::kUsage, "everybody who reaches this address could use the server")
        .Where("--host")
        .Found(o.host)
        .Expected("a loopback address, or --api-key KEY beside it")
        .Remedy("give --api-key, or --insecure if that is meant");
  }
  const tcp::endpoint endpoint(address, static_cast<uint16_t>(o.port));
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) StampArrivals(acceptor.native_handle());
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return Fail(Code::kUnavailable, "cannot listen")
        .Where(fmt::format("{}:{}", o.host, o.port))
        .Found(error.message())
        .Remedy("give another --port; 0 takes any that is free");
  }
  const std::string host = address.is_v6() ? "[" + address.to_string() + "]" : address.to_string();
  url = fmt::format("http://{}:{}", host, acceptor.local_endpoint().port());
  hub.options.max_connections = std::max<int64_t>(1, std::min(o.max_connections, FileLimit() - kOtherFiles));
  return {};
}

asio::awaitable<void> Server::Impl::AcceptLoop() {
  asio::steady_timer pause(hub.io);
  const Response full =
      ErrorReply({.status = 503, .message = "too many connections", .type = "unavailable_error"}).response;
  const std::string refusal = Head(full, {}) + full.body;
  while (acceptor.is_open()) {
    error_code error;
    tcp::socket socket = co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
    if (error == asio::error::operation_aborted) co_return;
    if (error) {  // no descriptors left, most likely
      pause.expires_after(kAcceptPause);
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    if (static_cast<int64_t>(hub.connections.size()) >= hub.options.max_connections) {
      hub.counts.connections_refused++;
      socket.non_blocking(true, error);
      socket.write_some(asio::buffer(refusal), error);
      continue;
    }
    Accept(hub, std::move(socket));
  }
}

void Server::Impl::Start() {
  asio::co_spawn(hub.io, [this]() -> asio::awaitable<void> { co_await AcceptLoop(); }, asio::detached);
  thread = std::thread([this] {
    for (;;) {
      try {
        hub.io.run();
        return;
      } catch (const std::bad_alloc&) {
        // Of something that belongs to no connection; what it was for is over, the others go on.
      }
    }
  });
}

void Server::Impl::Finish(End how) {
  if (end) return;
  end = how;
  drain.cancel();
  signals.cancel();
  ended.set_value(how);
}

// The first signal: no new requests, what runs ends in peace. Another one: at once.
void Server::Impl::OnSignal() {
  error_code ignored;
  if (++signal_count > 1) {
    hub.on_empty = [this] { Finish(End::kInterrupted); };
    CloseAll(hub);
    if (hub.connections.empty()) Finish(End::kInterrupted);
    return;
  }
  hub.draining = true;
  acceptor.close(ignored);
  hub.on_empty = [this] { Finish(End::kDrained); };
  CloseIdle(hub);
  if (hub.connections.empty()) return Finish(End::kDrained);
  drain.expires_after(std::chrono::milliseconds(static_cast<int64_t>(1000 * hub.options.drain_s)));
  drain.async_wait([this](error_code error) {
    if (error) return;
    hub.on_empty = [this] { Finish(End::kCutOff); };
    CloseAll(hub);
    if (hub.connections.empty()) Finish(End::kCutOff);
  });
}

void Server::Impl::Stop() {
  hub.workers.join();
  hub.long_workers.join();
  hub.computing.join();
  work.reset();
  hub.io.stop();
  if (thread.joinable()) thread.join();
  hub.on_empty = nullptr;
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() { impl_->Stop(); }
const std::string& Server::url() const { return impl_->url; }
Counts& Server::counts() { return impl_->hub.counts; }

Result<std::unique_ptr<Server>> Server::Listen(const ServerOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  RIDGE_RETURN_IF_ERROR(impl->Bind());
  impl->Start();
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

void Server::Open(Context context) {
  context.counts = &impl_->hub.counts;
  std::promise<void> opened;
  asio::post(impl_->hub.io, [this, &context, &opened] {
    Impl& impl = *impl_;
    impl.hub.context = std::move(context);
    impl.signals.add(SIGINT);
    impl.signals.add(SIGTERM);
    asio::co_spawn(
        impl.hub.io,
        [&impl]() -> asio::awaitable<void> {
          for (error_code error;;) {
            co_await impl.signals.async_wait(asio::redirect_error(asio::use_awaitable, error));
            if (error) co_return;
            impl.OnSignal();
          }
        },
        asio::detached);
    opened.set_value();
  });
  opened.get_future().wait();
}

Server::End Server::Wait() {
  const End how = impl_->ended.get_future().get();
  impl_->Stop();
  return how;
}

}  // namespace ridge::server
