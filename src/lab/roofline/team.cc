#include "lab/roofline/team.h"

#include <ctime>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace ridge::lab {
namespace {

using Clock = std::chrono::steady_clock;

double ThreadCpuSeconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

struct Timing {
  Clock::time_point begin, end;
  double cpu_s = 0;
};

}  // namespace

Result<TeamRun> RunTogether(int n_threads, const std::function<void(int)>& fn) {
  std::vector<Timing> timings(static_cast<size_t>(n_threads));
  std::atomic<int> ready{0};
  std::atomic<bool> go{false}, stop{false};
  const auto work = [&](int worker) {
    ready.fetch_add(1);
    while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
    if (stop.load()) return;
    Timing& timing = timings[static_cast<size_t>(worker)];
    const double cpu = ThreadCpuSeconds();
    timing.begin = Clock::now();
    fn(worker);
    timing.end = Clock::now();
    timing.cpu_s = ThreadCpuSeconds() - cpu;
  };
  std::vector<std::thread> threads;
  try {
    for (int i = 1; i < n_threads; i++) threads.emplace_back(work, i);
  } catch (const std::exception& refused) {
    stop.store(true);
    go.store(true);
    for (std::thread& thread : threads) thread.join();
    return Fail(Code::kResourceExhausted, "the system gives no more threads")
        .Found(std::to_string(threads.size() + 1) + " (" + refused.what() + ")")
        .Expected(std::to_string(n_threads))
        .Remedy("raise the limit on processes");
  }
  while (ready.load() < n_threads - 1) std::this_thread::yield();
  go.store(true, std::memory_order_release);
  work(0);
  for (std::thread& thread : threads) thread.join();

  Clock::time_point begin = timings[0].begin, end = timings[0].end;
  double cpu_s = 0, wall_s = 0;
  for (const Timing& t : timings) {
    begin = std::min(begin, t.begin);
    end = std::max(end, t.end);
    cpu_s += t.cpu_s;
    wall_s += std::chrono::duration<double>(t.end - t.begin).count();
  }
  return TeamRun{std::chrono::duration<double>(end - begin).count(), wall_s > 0 ? std::min(1.0, cpu_s / wall_s) : 1};
}

}  // namespace ridge::lab
