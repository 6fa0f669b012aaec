// Lets any thread wake a coroutine of the I/O thread.
//
//   const auto waker = std::make_shared<Waker>(io);
//   request.wake = [waker] { waker->Notify(); };     // any thread, any number of times
//   co_await waker->Wait();                            // I/O thread
//
// Guarantees: Notify never throws. A Notify after the last Wait ended makes the next one return; many of them cost one wake-up. One waiting coroutine.
#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <memory>
#include <new>
#include <thread>

namespace ridge::server {

class Waker : public std::enable_shared_from_this<Waker> {
 public:
  explicit Waker(boost::asio::io_context& io) : io_(&io), timer_(io, boost::asio::steady_timer::time_point::max()) {}

  void Notify() {
    if (posted_.exchange(true)) return;
    for (bool posted = false; !posted;) {
      try {
        boost::asio::post(*io_, [self = shared_from_this()] {
          self->posted_ = false;  // before the look at what is there: what comes later posts again
          self->Signal();
        });
        posted = true;
      } catch (const std::bad_alloc&) {  // who is not woken waits for ever
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  void Signal() {  // I/O thread
    signalled_ = true;
    timer_.cancel();
  }

  boost::asio::awaitable<void> Wait() {
    boost::system::error_code cancelled;
    if (!signalled_) co_await timer_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, cancelled));
    signalled_ = false;
  }

 private:
  boost::asio::io_context* io_;
  boost::asio::steady_timer timer_;
  std::atomic<bool> posted_ = false;
  bool signalled_ = false;
};

}  // namespace ridge::server
