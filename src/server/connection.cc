// One connection: reads requests with Beast's parser, lets a route answer, writes. All of it runs on the I/O thread; see server.h.
// Each co_await stands alone in its statement and takes no temporaries: GCC 12 destroys temporaries of compound ones twice.
#include <algorithm>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/planted.h"
#include "server/api_error.h"
#include "server/arrival.h"
#include "server/hub.h"
#include "server/routes.h"
#include "server/waker.h"
#include "server/wire.h"

namespace ridge::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::seconds;

constexpr uint64_t kBodyBytes = uint64_t{32} << 20;
constexpr uint32_t kHeaderBytes =
    64 << 10;  // the head; a line of a chunk or trailer; and, beside as many bytes as the body has, all of those
constexpr size_t kBodiesBytes = size_t{256} << 20;  // of all requests that are being read
constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kPipelinedBytes = 1 << 20;  // read ahead while an answer is under way
constexpr size_t kInlineBytes = 16 << 10;    // a longer body is parsed and tokenized by a worker
constexpr size_t kLongBytes = 1 << 20;       // an even longer one by another worker, so that it only waits for its like
constexpr seconds kIdle{75}, kHeader{10}, kBody{60}, kWrite{30};
constexpr size_t kWriteBytesPerSecond = 64 << 10;  // a large answer has as much longer
constexpr std::chrono::milliseconds kLinger{1000};

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

using Parser = http::request_parser<http::string_body>;

}  // namespace

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Hub& hub, tcp::socket socket)
      : hub_(hub), socket_(std::move(socket)), deadline_(hub.io), waker_(std::make_shared<Waker>(hub.io)) {
    hub_.connections.insert(this);
    hub_.counts.connections++;
  }
  ~Connection() {
    Charge(0);
    hub_.counts.connections--;
    hub_.connections.erase(this);
    if (hub_.connections.empty() && hub_.on_empty) hub_.on_empty();
  }

  asio::awaitable<void> Run() {
    for (bool more = true; more && socket_.is_open() && !(hub_.draining && served_);) more = co_await ServeOne();
    Close();
  }

  bool idle() const { return idle_; }
  void Close() {
    gone_ = true;
    *shared_gone_ = true;
    error_code ignored;
    socket_.close(ignored);
    deadline_.cancel();
    waker_->Signal();
  }

 private:
  struct Task {
    Request request;
    Reply reply;
    std::atomic<bool> done = false;
  };

  // ---- time

  void Arm(std::chrono::milliseconds time) {
    timed_out_ = false;
    deadline_.expires_after(time);
    deadline_.async_wait([self = shared_from_this()](error_code error) {
      if (error || self->deadline_.expiry() > std::chrono::steady_clock::now()) return;
      self->timed_out_ = true;
      error_code ignored;
      self->socket_.cancel(ignored);
    });
  }

  // ---- reading

  // Bytes that came; 0 at the end of the client's side, on errors and when time is up.
  asio::awaitable<size_t> Read() {
    error_code error;
    const size_t n =
        co_await socket_.async_read_some(buffer_.prepare(kReadBytes), asio::redirect_error(asio::use_awaitable, error));
    buffer_.commit(error ? 0 : n);
    co_return error ? 0 : n;
  }

  // False: time is up, or the connection was closed here.
  asio::awaitable<bool> Readable() {
    error_code error;
    co_await socket_.async_wait(tcp::socket::wait_read, asio::redirect_error(asio::use_awaitable, error));
    co_return !error;
  }

  // What stands in the head and cannot be served.
  std::optional<ApiError> CheckHead(const Parser& parser) const {
    const auto& head = parser.get();
    const auto bad = Plain;
    if (head.version() != 10 && head.version() != 11) return bad(505, "HTTP/1.0 and HTTP/1.1 are spoken here");
    if (head.version() == 11 && head.count(http::field::host) != 1) return bad(400, "one Host header is needed");
    if (head.count(http::field::transfer_encoding) > 0) {
      if (!parser.chunked() || !boost::beast::iequals(head[http::field::transfer_encoding], "chunked"))
        return bad(501, "the only transfer coding is chunked");
      if (head.version() == 10 || head.count(http::field::content_length) > 0)
        return bad(400, "a transfer coding and a Content-Length, or HTTP/1.0, do not go together");
    }
    if (head.count(http::field::content_encoding) > 0 &&
        !boost::beast::iequals(head[http::field::content_encoding], "identity"))
      return bad(400, "the body must not be compressed");
    if (head.count(http::field::expect) > 0 && !boost::beast::iequals(head[http::field::expect], "100-continue"))
      return bad(417, "the only expectation is 100-continue");
    if (!hub_.options.api_key.empty() && !Public(head.target()) &&
        !Authorized(hub_.options.api_key, std::string_view(head[http::field::authorization]))) {
      return ApiError{.status = 401,
                      .message = head.count(http::field::authorization) == 0
                                     ? "this server asks for a key: Authorization: Bearer KEY"
                                     : "wrong key",
                      .type = "authentication_error",
                      .code = "invalid_api_key"};
    }
    return std::nullopt;
  }

  // Of "/path?query", or of "http://host/path", which clients send that think of a proxy.
  static std::string_view PathOf(std::string_view target) {
    constexpr std::string_view kScheme = "http://";
    if (target.starts_with(kScheme)) target = target.substr(std::min(target.find('/', kScheme.size()), target.size()));
    return target.substr(0, target.find('?'));
  }
  static bool Public(std::string_view target) { return PathOf(target) == "/health" || PathOf(target) == "/ready"; }

  static ApiError Plain(int status, const char* what) {
    return {.status = status, .message = what, .type = status == 503 ? "unavailable_error" : "invalid_request_error"};
  }
  bool Wrong(ApiError error) {
    wrong_ = std::move(error);
    return false;
  }

  static ApiError Unreadable(error_code error) {
    if (error == http::error::body_limit)
      return {.status = 413, .message = "the body is over 32 MiB", .code = "body_too_large"};
    if (error == http::error::header_limit) return {.status = 431, .message = "the head of the request is over 64 KiB"};
    return {.status = 400, .message = "this is not HTTP: " + error.message()};
  }

  // Beast says the same of a version that is not spoken here, of what is no version, and of a request line that does not end in CR LF. `head` begins
  // with that line.
  static ApiError WrongVersion(std::string_view head) {
    const size_t end = std::min(head.find_first_of("\r\n"), head.size());
    const std::string_view line = head.substr(0, end), version = line.substr(line.rfind(' ') + 1);
    const auto digit = [&](size_t at) { return version[at] >= '0' && version[at] <= '9'; };
    const bool told = version.size() == 8 && version.starts_with("HTTP/") && digit(5) && version[6] == '.' && digit(7);
    if (told && version != "HTTP/1.0" && version != "HTTP/1.1")
      return Plain(505, "HTTP/1.0 and HTTP/1.1 are spoken here");
    if (told) return Plain(400, "this is not HTTP: the request line ends in a bare CR or LF instead of CR LF");
    return Plain(400, "this is not HTTP: a request line is METHOD TARGET HTTP/1.1");
  }

  // Reads one request. False: the connection ends, after an answer if something is wrong_.
  asio::awaitable<bool> ReadRequest(Parser& parser) {
    parser.header_limit(kHeaderBytes);
    parser.body_limit(kBodyBytes);
    parser.eager(false);
    idle_ = buffer_.size() == 0;
    arrived_ = std::chrono::steady_clock::now();  // of what came while an answer was under way: its turn
    Arm(idle_ ? kIdle : kHeader);
    bool checked = false;
    size_t head_bytes = 0, rest_bytes = 0;  // consumed before and after the end of the head
    while (!parser.is_done()) {
      error_code error = http::error::need_more;
      if (buffer_.size() > 0) {
        if (std::exchange(idle_, false)) Arm(kHeader);
        const size_t consumed = parser.put(buffer_.data(), error);
        buffer_.consume(consumed);
        (checked ? rest_bytes : head_bytes) += consumed;
      }
      const size_t body_bytes = parser.get().body().size();
      if (head_bytes > kHeaderBytes) co_return Wrong(Unreadable(http::error::header_limit));
      if (rest_bytes > 2 * body_bytes + kHeaderBytes ||
          (error == http::error::need_more && buffer_.size() > kHeaderBytes))
        co_return Wrong(
            Plain(431, "what stands around the chunks of the body is over 64 KiB and longer than the body"));
      if (parser.is_header_done() && !checked && (!error || error == http::error::need_more)) {
        checked = true;
        hub_.counts.requests++;
        if ((wrong_ = CheckHead(parser))) co_return false;
        parser.eager(true);
        Arm(kBody);
        if (parser.get().count(http::field::expect) > 0 && !parser.is_done() && buffer_.size() == 0) {
          const bool written = co_await Write(kContinue);
          if (!written) co_return false;
          Arm(kBody);
        }
        if (buffer_.size() > 0) continue;
      }
      if (error == http::error::bad_version)
        co_return Wrong(WrongVersion({static_cast<const char*>(buffer_.data().data()), buffer_.size()}));
      if (error && error != http::error::need_more) co_return Wrong(Unreadable(error));
      if (!Charge(std::max(body_bytes, rest_bytes))) co_return Wrong(Plain(503, "too many large requests at once"));
      if (parser.is_done()) break;
      if (error != http::error::need_more && buffer_.size() > 0) continue;
      bool there = true;
      if (idle_) {
        there = co_await Readable();
        if (there) arrived_ = ArrivalOf(socket_.native_handle());
      }
      size_t came = 0;
      if (there) came = co_await Read();
      if (came > 0) continue;
      if (timed_out_ && !idle_) co_return Wrong(Plain(408, "the request took too long to arrive"));
      if (!idle_ && !gone_) co_return Wrong(Plain(400, "the request ends before its end"));
      co_return false;
    }
    idle_ = false;
    deadline_.cancel();
    co_return true;
  }

  bool Charge(size_t bytes) {
    hub_.body_bytes += bytes - charged_bytes_;
    hub_.counts.body_bytes = hub_.body_bytes;
    charged_bytes_ = bytes;
    return hub_.body_bytes <= kBodiesBytes;
  }

  // While an answer is under way: sees the client's end, and keeps what it sends early for the next request.
  void Watch() {
    if (watching_ || gone_) return;
    watching_ = true;
    socket_.async_read_some(buffer_.prepare(kReadBytes), [self = shared_from_this()](error_code error, size_t n) {
      self->watching_ = false;
      if (!error) self->buffer_.commit(n);
      const bool end = (error && error != asio::error::operation_aborted) || self->buffer_.size() > kPipelinedBytes;
      if (end) {
        self->hub_.counts.disconnects++;
        return self->Close();
      }
      if (self->stop_watch_) return self->waker_->Signal();
      self->Watch();
    });
  }

  asio::awaitable<void> StopWatch() {
    stop_watch_ = true;
    error_code ignored;
    if (watching_) socket_.cancel(ignored);
    while (watching_) co_await waker_->Wait();
    stop_watch_ = false;
  }

  // ---- answering

  asio::awaitable<bool> Write(std::string_view bytes) {
    Arm(kWrite + seconds(bytes.size() / kWriteBytesPerSecond));
    error_code error;
    co_await asio::async_write(socket_, asio::buffer(bytes), asio::redirect_error(asio::use_awaitable, error));
    deadline_.cancel();
    co_return !error && !gone_;
  }

  void Count(int status) {
    Counts& counts = hub_.counts;
    (status < 400 ? counts.answers_2xx : status < 500 ? counts.answers_4xx : counts.answers_5xx)++;
  }

  // Answers and ends the connection. What the client still sends is read for a moment: closing on it would take the answer away.
  asio::awaitable<void> Refuse() {
    const Response response = ErrorReply(*wrong_).response;
    Count(response.status);
    const std::string out = Head(response, {}) + response.body;
    const bool written = co_await Write(out);
    if (written) {
      error_code ignored;
      socket_.shutdown(tcp::socket::shutdown_send, ignored);
      Arm(kLinger);
      for (size_t came = 1; came > 0 && !timed_out_;) {
        buffer_.consume(buffer_.size());
        came = co_await Read();
      }
    }
  }

  static Method MethodOf(http::verb verb) {
    switch (verb) {
      case http::verb::get: return Method::kGet;
      case http::verb::head: return Method::kHead;
      case http::verb::post: return Method::kPost;
      default: return Method::kOther;
    }
  }

  void TakeRequest(Parser& parser, Request& request, bool& keep_alive, bool& old) {
    auto message = parser.release();
    keep_alive = message.keep_alive();
    old = message.version() == 10;
    request.method = MethodOf(message.method());
    request.path = PathOf(message.target());
    request.body = std::move(message.body());
    request.wake = [waker = waker_] { waker->Notify(); };
    request.gone = shared_gone_;
    request.arrived = arrived_;
  }

  // True: the connection may carry another request.
  asio::awaitable<bool> ServeOne() {
    auto task = std::make_shared<Task>();
    bool whole = false, keep_alive = false, old = false;
    {
      Parser parser;
      const bool read = co_await ReadRequest(parser);
      whole = read;
      if (whole) TakeRequest(parser, task->request, keep_alive, old);
    }
    if (!whole) {
      // What came of it is for nobody: the room is others' while the client is told.
      const bool was_long = charged_bytes_ > kLongBytes;
      Charge(0);
      if (was_long) TrimMemory(hub_);
      if (wrong_) co_await Refuse();
      co_return false;
    }
    SleepIfPlanted(Stage::kReceive);
    if (task->request.body.size() <= kInlineBytes && !Computes(task->request)) {
      task->reply = Dispatch(hub_.context, task->request);
    } else {
      const bool there = co_await Offload(task);
      if (!there) co_return false;
    }
    // It must not lie there as long as the answer takes: nobody counts it any more.
    const bool was_long = std::exchange(task->request.body, {}).size() > kLongBytes;
    if (was_long) TrimMemory(hub_);
    Charge(0);
    served_ = true;
    keep_alive = keep_alive && !hub_.draining;
    const bool more = co_await Answer(task->reply, task->request.method == Method::kHead, keep_alive, old);
    if (buffer_.size() == 0 && buffer_.capacity() > kReadBytes) buffer_.shrink_to_fit();
    const bool large = task->reply.response.body.size() > kLongBytes;
    task.reset();
    if (large) TrimMemory(hub_);
    co_return more;
  }

  asio::awaitable<bool> Offload(const std::shared_ptr<Task>& task) {
    asio::thread_pool& workers = Computes(task->request)                  ? hub_.computing
                                 : task->request.body.size() > kLongBytes ? hub_.long_workers
                                                                          : hub_.workers;
    asio::post(workers, [task, &context = std::as_const(hub_.context)] {
      if (!*task->request.gone) task->reply = Dispatch(context, task->request);
      task->done = true;
      task->request.wake();
    });
    Watch();
    while (!task->done && !gone_) co_await waker_->Wait();
    co_await StopWatch();
    co_return !gone_;
  }

  asio::awaitable<bool> Answer(Reply& reply, bool head_only, bool keep_alive, bool old) {
    if (reply.rest == nullptr) {
      Count(reply.response.status);
      std::string out = Head(reply.response, {.keep_alive = keep_alive});
      if (!head_only) out += reply.response.body;
      const bool written = co_await Write(out);
      co_return written&& keep_alive;
    }
    Watch();
    const bool streamed = reply.streamed;
    if (streamed && old) keep_alive = false;  // the end of the connection ends the body
    std::string out, events;
    if (streamed) {
      Count(reply.response.status);
      out = Head(reply.response, {.keep_alive = keep_alive, .chunked = !old, .until_end = old});
    }
    for (bool done = false; !done && !gone_;) {
      done = reply.rest->Pull(reply.response, events);
      if (done && !streamed) {
        Count(reply.response.status);
        out = Head(reply.response, {.keep_alive = keep_alive}) + reply.response.body;
      }
      if (!events.empty()) out += old ? events : Chunk(events);
      if (done && streamed && !old) out += kLastChunk;
      if (!out.empty()) {
        if (!events.empty()) SleepIfPlanted(Stage::kWrite);
        const bool written = co_await Write(out);
        if (!written) break;
        reply.rest->Written();
      }
      if (done) {
        reply.rest.reset();
        co_await StopWatch();
        co_return keep_alive && !gone_;
      }
      out.clear();
      events.clear();
      co_await waker_->Wait();
    }
    reply.rest.reset();
    Close();
    co_await StopWatch();
    co_return false;
  }

  Hub& hub_;
  tcp::socket socket_;
  asio::steady_timer deadline_;
  std::shared_ptr<Waker> waker_;
  boost::beast::flat_buffer buffer_;
  size_t charged_bytes_ = 0;
  std::optional<ApiError> wrong_;
  std::shared_ptr<std::atomic<bool>> shared_gone_ = std::make_shared<std::atomic<bool>>(false);
  std::chrono::steady_clock::time_point arrived_;  // the first bytes of this request
  bool served_ = false;                            // a request at least
  bool idle_ = true, timed_out_ = false, gone_ = false, watching_ = false, stop_watch_ = false;
};

void Accept(Hub& hub, tcp::socket socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  auto connection = std::make_shared<Connection>(hub, std::move(socket));
  asio::co_spawn(
      hub.io,
      [connection]() -> asio::awaitable<void> {
        try {
          co_await connection->Run();
        } catch (const std::bad_alloc&) {  // only this connection is to blame
          connection->Close();
        }
      },
      asio::detached);
}

void TrimMemory(Hub& hub) {
  if (std::exchange(hub.trim_waits, true)) return;
  asio::post(hub.long_workers, [&hub] {
    ReleaseFreeMemory();
    asio::post(hub.io, [&hub] { hub.trim_waits = false; });
  });
}

void CloseIdle(Hub& hub) {
  for (Connection* connection : std::vector<Connection*>(hub.connections.begin(), hub.connections.end())) {
    if (connection->idle()) connection->Close();
  }
}

void CloseAll(Hub& hub) {
  for (Connection* connection : std::vector<Connection*>(hub.connections.begin(), hub.connections.end()))
    connection->Close();
}

}  // namespace ridge::server
