#include "base/thread_pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <exception>
#include <string>

#include "base/off_core.h"

namespace ridge {
namespace {

// Longer than the gap between two operators, shorter than anyone would notice as load.
constexpr std::chrono::microseconds kWorkerSpin{60};
// How long the caller spins for pieces that others hold: longer than a piece takes, much shorter than the milliseconds for which the
// system takes a thread off its core. Who sleeps then frees a core for the thread that is waited for.
constexpr std::chrono::microseconds kCallerSpin{60};
constexpr uint32_t kCallerSleeps = uint32_t{1} << 31;
constexpr int kPausesPerLook = 16;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Polls done() until it holds or the time is over; says whether it held.
template <class Done>
bool SpinUntil(std::chrono::microseconds limit, const Done& done) {
  const auto end = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < kPausesPerLook; i++) {
      if (done()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>& word, int count) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::Create(int n_threads) {
  std::unique_ptr<ThreadPool> pool(new ThreadPool);
  pool->workers_ = std::vector<Worker>(static_cast<size_t>(std::max(1, n_threads)));
  try {
    for (int i = 1; i < n_threads; i++) pool->threads_.emplace_back([p = pool.get(), i] { p->Loop(i); });
  } catch (const std::exception& refused) {  // the threads that did start end with the pool
    return Fail(Code::kResourceExhausted, "the system gives no more threads")
        .Found(std::to_string(pool->size()) + " (" + refused.what() + ")")
        .Expected(std::to_string(n_threads))
        .Remedy("use fewer threads with -t, or raise the limit on processes or memory");
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  bell_.fetch_add(1);
  FutexWake(bell_, INT_MAX);
  for (std::thread& thread : threads_) thread.join();
}

uint32_t ThreadPool::Work(int worker) {
  Worker& me = workers_[static_cast<size_t>(worker)];
  uint32_t done = 0;
  for (;;) {
    const int32_t left = unclaimed_.fetch_sub(1, std::memory_order_acq_rel);
    if (left <= 0) break;
    if (done == 0) {
      me.core.store(ThisCore(), std::memory_order_relaxed);
      me.state.store(Worker::kHolds, std::memory_order_release);
    }
    const size_t begin = static_cast<size_t>(region_.n_pieces - left) * region_.grain;
    region_.call(region_.context, begin, std::min(begin + region_.grain, region_.n), worker);
    done++;
  }
  return done;
}

// Two of the pool's threads on one core would take turns there and leave the other core to those who took it. So the threads change places: a worker
// goes where the thread that it waited for was held up, and one that the caller waited for goes back there (Loop), for the caller goes on here.
void ThreadPool::LendCore(int worker) {
  for (size_t i = 0; i < workers_.size(); i++) {
    // A look takes microseconds, and there may be many threads: it ends with the wait, the caller's for pieces, a worker's for new ones.
    if (worker == 0 ? (open_.load(std::memory_order_acquire) & ~kCallerSleeps) == 0
                    : unclaimed_.load(std::memory_order_relaxed) > 0)
      return;
    Worker& other = workers_[i];
    int state = other.state.load(std::memory_order_acquire);
    const bool waited_for =
        state == Worker::kHolds || (state == Worker::kIdle && i == 0);  // the caller, between regions too
    if (static_cast<int>(i) == worker || !waited_for) continue;
    const pid_t thread = other.thread.load(std::memory_order_relaxed);
    if (!IsOffCore(thread)) continue;
    if (state == Worker::kHolds && !other.state.compare_exchange_strong(state, Worker::kMoved)) continue;
    MoveTo(thread, ThisCore());
    if (worker != 0) LeaveFor(other.core.load(std::memory_order_relaxed));
    return;
  }
}

void ThreadPool::Run(Region region) {
  region.grain = std::max({region.grain, size_t{1}, region.n / (INT32_MAX / 2) + 1});
  region.n_pieces = static_cast<int32_t>((region.n + region.grain - 1) / region.grain);
  region_ = region;
  workers_[0].thread.store(ThisThread(), std::memory_order_relaxed);
  open_.store(static_cast<uint32_t>(region.n_pieces), std::memory_order_relaxed);
  // Sequentially consistent against Sleep(): either we see the sleeper or it sees the work.
  unclaimed_.store(region.n_pieces, std::memory_order_seq_cst);
  if (const int32_t sleepers = sleepers_.load(std::memory_order_seq_cst); sleepers > 0) {
    bell_.fetch_add(1, std::memory_order_seq_cst);
    FutexWake(bell_, std::min(sleepers, region.n_pieces - 1));
  }
  const uint32_t mine = Work(0);
  workers_[0].state.store(Worker::kIdle, std::memory_order_relaxed);
  if (open_.fetch_sub(mine, std::memory_order_acq_rel) != mine) AwaitPieces();
}

void ThreadPool::AwaitPieces() {
  const auto done = [this] { return (open_.load(std::memory_order_acquire) & ~kCallerSleeps) == 0; };
  if (SpinUntil(kCallerSpin, done)) return;
  LendCore(0);
  uint32_t seen = open_.fetch_or(kCallerSleeps, std::memory_order_acq_rel) | kCallerSleeps;
  while (seen != kCallerSleeps) {
    FutexWait(open_, seen);
    seen = open_.load(std::memory_order_acquire);
  }
}

void ThreadPool::Sleep(int worker) {
  LendCore(worker);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t rung = bell_.load(std::memory_order_seq_cst);
  if (unclaimed_.load(std::memory_order_seq_cst) <= 0 && !stop_.load(std::memory_order_seq_cst)) FutexWait(bell_, rung);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void ThreadPool::Loop(int worker) {
  Worker& me = workers_[static_cast<size_t>(worker)];
  me.thread.store(ThisThread(), std::memory_order_relaxed);
  const auto wanted = [this] {
    return unclaimed_.load(std::memory_order_relaxed) > 0 || stop_.load(std::memory_order_relaxed);
  };
  for (;;) {
    if (!SpinUntil(kWorkerSpin, wanted)) {
      Sleep(worker);
      continue;
    }
    if (stop_.load()) return;
    const uint32_t done = Work(worker);
    if (done == 0) continue;
    const bool moved = me.state.exchange(Worker::kIdle, std::memory_order_relaxed) == Worker::kMoved;
    if (open_.fetch_sub(done, std::memory_order_acq_rel) == (done | kCallerSleeps)) FutexWake(open_, 1);
    if (moved) LeaveFor(me.core.load(std::memory_order_relaxed));
  }
}

}  // namespace ridge
