#include "server/arrival.h"

#include <sys/socket.h>
#include <time.h>

#include <cstring>

namespace ridge::server {
namespace {

using std::chrono::nanoseconds;

nanoseconds Of(const timespec& t) { return std::chrono::seconds(t.tv_sec) + nanoseconds(t.tv_nsec); }

}  // namespace

void StampArrivals(int socket) {
  const int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);  // where it cannot be, ArrivalOf finds no stamp
}

std::chrono::steady_clock::time_point ArrivalOf(int socket) {
  char byte = 0;
  alignas(cmsghdr) char control[128];
  iovec into{.iov_base = &byte, .iov_len = 1};
  msghdr message{};
  message.msg_iov = &into;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
  timespec clock{};
  clock_gettime(CLOCK_REALTIME, &clock);  // that of the stamp
  const auto now = std::chrono::steady_clock::now();
  if (n <= 0) return now;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
    timespec stamp{};
    std::memcpy(&stamp, CMSG_DATA(c), sizeof stamp);
    const nanoseconds ago = Of(clock) - Of(stamp);
    if (ago >= nanoseconds(0) && ago < std::chrono::minutes(1)) return now - ago;
  }
  return now;
}

}  // namespace ridge::server
