// The compute pool: a fixed set of threads that run one parallel region at a time; work is claimed in small pieces, so a thread that the
// system takes off its core delays nobody for long.
//
//   RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<ThreadPool> pool, ThreadPool::Create(4));
//   pool->ParallelFor(n_panels, 4, [&](size_t begin, size_t end, int worker) { ... });
//
// Guarantees: every index is given out once; ParallelFor returns when all are done; who computes an index never changes its result.
// Only workers that hold a piece are waited for: one that slept, or was off its core, when a region was opened is not needed to close it.
// One that was taken off its core in the middle of a piece gets the core of a thread that waits for it.
// The calling thread is worker 0. One caller at a time.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/result.h"

namespace ridge {

class ThreadPool {
 public:
  // Errors: kResourceExhausted when the system gives no more threads, with how many it gave.
  static Result<std::unique_ptr<ThreadPool>> Create(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // fn(begin, end, worker) over [0, n) in pieces of at most `grain`.
  template <class F>
  void ParallelFor(size_t n, size_t grain, const F& fn) {
    if (n == 0) return;
    if (threads_.empty() || n <= grain) {
      fn(size_t{0}, n, 0);
      return;
    }
    Run({n, grain, &fn, [](const void* context, size_t begin, size_t end, int worker) {
           (*static_cast<const F*>(context))(begin, end, worker);
         }});
  }

 private:
  ThreadPool() = default;
  struct Region {
    size_t n = 0, grain = 1;
    const void* context = nullptr;
    void (*call)(const void*, size_t, size_t, int) = nullptr;
    int32_t n_pieces = 0;
  };
  void Run(Region region);
  uint32_t Work(int worker);  // claims and computes until nothing is left; returns how many pieces that were
  void Loop(int worker);
  void AwaitPieces();
  void Sleep(int worker);
  void LendCore(int worker);  // to one that it waits for, before it sleeps

  // What the others know of a worker: where it began to compute, and whether it does.
  struct alignas(64) Worker {
    enum State : int { kIdle, kHolds, kMoved };
    std::atomic<pid_t> thread = 0;
    std::atomic<int> core = -1, state = kIdle;
  };
  std::vector<std::thread> threads_;
  std::vector<Worker> workers_;
  Region region_;  // written by the caller while no piece is held, read by whoever has claimed one
  // Pieces that nobody has claimed. A claim is one fetch_sub; a result of 0 or less claims nothing. It holds for whatever region is open
  // at that moment, and that region cannot close before the piece is done, so a worker that comes late does no harm.
  alignas(64) std::atomic<int32_t> unclaimed_{0};
  // Pieces that are not done, and kCallerSleeps. The caller's futex.
  alignas(64) std::atomic<uint32_t> open_{0};
  alignas(64) std::atomic<uint32_t> bell_{0};  // the workers' futex: counts calls for help
  std::atomic<int32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace ridge
