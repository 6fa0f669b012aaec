#include "base/thread_pool.h"

#include <algorithm>
#include <exception>
#include <string>

namespace ridge {
namespace {

// About 50 µs of spinning: longer than the gap between two operators, shorter than anyone would notice as load.
constexpr int kSpins = 4000;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::Create(int n_threads) {
  std::unique_ptr<ThreadPool> pool(new ThreadPool);
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
  {
    std::lock_guard lock(mutex_);
    stop_.store(true);
    generation_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Work(Region& region, int worker) {
  for (;;) {
    const size_t begin = region.next.fetch_add(region.grain, std::memory_order_relaxed);
    if (begin >= region.n) return;
    region.call(region.context, begin, std::min(begin + region.grain, region.n), worker);
  }
}

void ThreadPool::Run(Region& region) {
  running_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
  region_.store(&region, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) {
    std::lock_guard lock(mutex_);
    wake_.notify_all();
  }
  Work(region, 0);
  // The last piece may still be with a worker; it is short, and yielding lets it finish where threads outnumber cores.
  for (int spins = 0; running_.load(std::memory_order_acquire) > 0; spins++) {
    if (spins < kSpins)
      Pause();
    else
      std::this_thread::yield();
  }
}

void ThreadPool::Loop(int worker) {
  uint64_t seen = 0;
  for (;;) {
    int spins = 0;
    while (generation_.load(std::memory_order_acquire) == seen) {
      if (++spins < kSpins) {
        Pause();
        continue;
      }
      std::unique_lock lock(mutex_);
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      wake_.wait(lock, [&] { return generation_.load(std::memory_order_seq_cst) != seen; });
      sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    }
    seen++;
    if (stop_.load()) return;
    Work(*region_.load(std::memory_order_relaxed), worker);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace ridge
