#include "base/off_core.h"

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace ridge {
namespace {

// Longer than a clock's step on any system that counts the time of threads in nanoseconds.
constexpr std::chrono::microseconds kLook{4};

// Nanoseconds that the thread has run, -1 if the system does not say. Source: clock ids of threads, linux/posix-timers.h.
int64_t TimeOf(pid_t thread) {
  constexpr clockid_t kOneThread = 4, kScheduled = 2;
  timespec t{};
  if (clock_gettime(static_cast<clockid_t>(~static_cast<uint32_t>(thread) << 3) | kOneThread | kScheduled, &t) != 0)
    return -1;
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

std::atomic_flag moving;

// Of the cores that the thread may use, now those that `keep` leaves; then all of them again. One thread at a time in the process: a second one
// would take the few for all. Who comes meanwhile moves nothing.
template <class Keep>
void Move(pid_t thread, const Keep& keep) {
  if (moving.test_and_set(std::memory_order_acquire)) return;
  cpu_set_t allowed;
  if (sched_getaffinity(thread, sizeof allowed, &allowed) == 0) {
    cpu_set_t cores = allowed;
    keep(cores);
    cpu_set_t now;  // another one: somebody has chosen it meanwhile
    if (CPU_COUNT(&cores) > 0 && sched_setaffinity(thread, sizeof cores, &cores) == 0 &&
        sched_getaffinity(thread, sizeof now, &now) == 0 && CPU_EQUAL(&now, &cores))
      sched_setaffinity(thread, sizeof allowed, &allowed);
  }
  moving.clear(std::memory_order_release);
}

}  // namespace

pid_t ThisThread() {
  thread_local const auto id = static_cast<pid_t>(syscall(SYS_gettid));
  return id;
}

int ThisCore() { return sched_getcpu(); }

bool IsOffCore(pid_t thread) {
  const int64_t before = TimeOf(thread);
  const auto end = std::chrono::steady_clock::now() + kLook;
  while (std::chrono::steady_clock::now() < end) {
  }
  return before >= 0 && TimeOf(thread) == before;
}

void MoveTo(pid_t thread, int core) {
  Move(thread, [core](cpu_set_t& cores) {
    const bool may = core >= 0 && CPU_ISSET(static_cast<size_t>(core), &cores);
    CPU_ZERO(&cores);
    if (may) CPU_SET(static_cast<size_t>(core), &cores);
  });
}

void LeaveFor(int core) {
  if (core != ThisCore()) return MoveTo(ThisThread(), core);
  if (core >= 0) Move(ThisThread(), [core](cpu_set_t& cores) { CPU_CLR(static_cast<size_t>(core), &cores); });
}

}  // namespace ridge
