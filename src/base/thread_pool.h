// The compute pool: a fixed set of threads that run one parallel region at a time; work is claimed in small pieces, so a thread that the
// system takes off its core delays nobody for long.
//
//   RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<ThreadPool> pool, ThreadPool::Create(4));
//   pool->ParallelFor(n_panels, 4, [&](size_t begin, size_t end, int worker) { ... });
//
// Guarantees: every index is given out once; ParallelFor returns when all are done; who computes an index never changes its result.
// The calling thread is worker 0. One caller at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
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
    Region region;
    region.n = n;
    region.grain = grain == 0 ? 1 : grain;
    region.context = &fn;
    region.call = [](const void* context, size_t begin, size_t end, int worker) {
      (*static_cast<const F*>(context))(begin, end, worker);
    };
    Run(region);
  }

 private:
  ThreadPool() = default;
  struct Region {
    size_t n = 0, grain = 1;
    const void* context = nullptr;
    void (*call)(const void*, size_t, size_t, int) = nullptr;
    alignas(64) std::atomic<size_t> next{0};
  };
  void Run(Region& region);
  static void Work(Region& region, int worker);
  void Loop(int worker);

  std::vector<std::thread> threads_;
  alignas(64) std::atomic<uint64_t> generation_{0};  // counts regions; workers wait for a change
  std::atomic<Region*> region_{nullptr};
  alignas(64) std::atomic<int> running_{0};  // workers still inside the present region
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace ridge
