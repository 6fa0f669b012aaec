#include "base/off_core.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace ridge {
namespace {

cpu_set_t Allowed(pid_t thread) {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(thread, sizeof set, &set), 0);
  return set;
}

// A thread that does nothing until it goes out of scope.
struct Sleeper {
  std::atomic<pid_t> id = 0;
  std::atomic<bool> end = false;
  std::thread thread{[this] {
    id = ThisThread();
    id.notify_all();
    end.wait(false);
  }};
  Sleeper() { id.wait(0); }
  ~Sleeper() {
    end = true;
    end.notify_all();
    thread.join();
  }
};

TEST(OffCore, AThreadThatSleepsIsOffAndOneThatAsksIsNot) {
  Sleeper sleeper;
  bool off = false;
  for (int i = 0; i < 100000 && !off; i++) off = IsOffCore(sleeper.id);  // soon: it has to reach its sleep
  EXPECT_TRUE(off);
  EXPECT_FALSE(IsOffCore(ThisThread()));
  EXPECT_FALSE(IsOffCore((1 << 22) + 1)) << "no such thread";
}

TEST(OffCore, MovingLeavesTheSetOfCoresAsItWas) {
  Sleeper sleeper;
  const cpu_set_t all = Allowed(0);
  for (int core = -1; core <= CPU_SETSIZE; core++) {
    MoveTo(sleeper.id, core);
    LeaveFor(core);
  }
  LeaveFor(ThisCore());
  const cpu_set_t mine = Allowed(0), its = Allowed(sleeper.id);
  EXPECT_TRUE(CPU_EQUAL(&mine, &all));
  EXPECT_TRUE(CPU_EQUAL(&its, &all));
}

}  // namespace
}  // namespace ridge
