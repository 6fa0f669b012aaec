#include "server/arrival.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace ridge::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct Ends {
  int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), server = -1;
  explicit Ends(bool stamped) {
    if (stamped) StampArrivals(listener);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    EXPECT_EQ(connect(client, reinterpret_cast<sockaddr*>(&at), size), 0);
    server = accept(listener, nullptr, nullptr);
    EXPECT_GE(server, 0);
  }
  ~Ends() {
    for (int s : {listener, client, server}) close(s);
  }
};

// Whether the kernel stamps what comes to this socket, waited for: Linux turns the stamps on a moment after the first socket that asks for them, in its own time, and some kernels have none.
bool Stamps(const Ends& ends) {
  const auto deadline = steady_clock::now() + std::chrono::seconds(5);
  bool stamped = false;
  while (!stamped && steady_clock::now() < deadline) {
    EXPECT_EQ(send(ends.client, "a", 1, 0), 1);
    std::this_thread::sleep_for(milliseconds(20));
    const auto now = steady_clock::now();
    stamped = ArrivalOf(ends.server) < now;
    char byte = 0;
    EXPECT_EQ(recv(ends.server, &byte, 1, 0), 1);
  }
  return stamped;
}

TEST(Arrival, IsWhenTheBytesCameNotWhenTheyAreRead) {
  Ends ends(true);
  if (!Stamps(ends)) GTEST_SKIP() << "needs a kernel that stamps what comes to a TCP socket (SO_TIMESTAMPNS)";
  const auto before = steady_clock::now();
  ASSERT_EQ(send(ends.client, "abc", 3, 0), 3);
  std::this_thread::sleep_for(milliseconds(300));
  const auto at = ArrivalOf(ends.server), after = steady_clock::now();
  EXPECT_LT(at, after - milliseconds(200));
  EXPECT_GT(at, before - milliseconds(100));
  std::string bytes(8, '\0');
  EXPECT_EQ(recv(ends.server, bytes.data(), bytes.size(), 0), 3) << "none was taken";
  const auto empty = steady_clock::now();
  EXPECT_GE(ArrivalOf(ends.server), empty) << "nothing waits";
}

TEST(Arrival, IsNowWithoutAStamp) {
  Ends ends(false);
  ASSERT_EQ(send(ends.client, "abc", 3, 0), 3);
  std::this_thread::sleep_for(milliseconds(50));
  const auto before = steady_clock::now();
  EXPECT_GE(ArrivalOf(ends.server), before);
}

}  // namespace
}  // namespace ridge::server
