#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

namespace ridge {
namespace {

std::unique_ptr<ThreadPool> Pool(int n) {
  auto pool = ThreadPool::Create(n);
  EXPECT_TRUE(pool.has_value());
  return std::move(*pool);
}

TEST(ThreadPool, EveryIndexOnceInPiecesOfAtMostTheGrain) {
  for (const int threads : {1, 2, 3, 8}) {
    const auto pool = Pool(threads);
    EXPECT_EQ(pool->size(), threads);
    for (const size_t n : {0, 1, 2, 7, 64, 1000, 4097}) {
      for (const size_t grain : {0, 1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> seen(n);
        std::atomic<bool> good = true;
        pool->ParallelFor(n, grain, [&](size_t begin, size_t end, int worker) {
          // A pool of one, and what fits one piece, is handed over whole.
          const size_t most = threads == 1 || n <= grain ? n : std::max<size_t>(grain, 1);
          if (begin >= end || end > n || end - begin > most || worker < 0 || worker >= threads) good = false;
          for (size_t i = begin; i < end; i++) seen[i]++;
        });
        EXPECT_TRUE(good) << threads << " threads, n " << n << ", grain " << grain;
        for (size_t i = 0; i < n; i++) ASSERT_EQ(seen[i], 1) << threads << " threads, n " << n << ", grain " << grain;
      }
    }
  }
}

// Plain memory written by one region is read by the next: the race detector proves the ordering, the sums the values.
TEST(ThreadPool, RegionsSeeWhatEarlierOnesWrote) {
  const auto pool = Pool(4);
  std::vector<uint64_t> a(512), b(512);
  std::iota(a.begin(), a.end(), 0);
  for (int round = 0; round < 2000; round++) {
    pool->ParallelFor(a.size(), 16, [&](size_t begin, size_t end, int) {
      for (size_t i = begin; i < end; i++) b[i] = a[a.size() - 1 - i] + 1;
    });
    pool->ParallelFor(a.size(), 7, [&](size_t begin, size_t end, int) {
      for (size_t i = begin; i < end; i++) a[i] = b[i];
    });
  }
  EXPECT_EQ(std::accumulate(a.begin(), a.end(), uint64_t{0}), 512u * 511 / 2 + 512u * 2000);
}

TEST(ThreadPool, NoWorkerIsInTwoPlacesAtOnce) {
  const auto pool = Pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<bool> good = true;
  for (int round = 0; round < 200; round++) {
    pool->ParallelFor(64, 1, [&](size_t, size_t, int worker) {
      if (inside[static_cast<size_t>(worker)].fetch_add(1) != 0) good = false;
      inside[static_cast<size_t>(worker)].fetch_sub(1);
    });
  }
  EXPECT_TRUE(good);
}

// Workers sleep between these regions and must be woken: two pieces that wait for one another need two threads.
TEST(ThreadPool, SleepersAreWoken) {
  const auto pool = Pool(2);
  for (int round = 0; round < 20; round++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> arrived = 0;
    std::atomic<bool> met = true;
    pool->ParallelFor(2, 1, [&](size_t, size_t, int) {
      arrived++;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (arrived < 2 && met) {
        if (std::chrono::steady_clock::now() > end) met = false;
        std::this_thread::yield();
      }
    });
    ASSERT_TRUE(met);
  }
}

// The caller sleeps while a worker holds the last piece, and is woken by its end.
TEST(ThreadPool, CallerSleepsUntilALongPieceIsDone) {
  const auto pool = Pool(2);
  for (int round = 0; round < 10; round++) {
    std::atomic<int> arrived = 0, done = 0;
    pool->ParallelFor(2, 1, [&](size_t, size_t, int worker) {
      arrived++;
      while (arrived < 2) std::this_thread::yield();  // each thread holds one piece
      if (worker != 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      done++;
    });
    ASSERT_EQ(done, 2);
  }
}

TEST(ThreadPool, ManyMoreThreadsThanCoresFinish) {
  const auto pool = Pool(32);
  std::atomic<size_t> sum = 0;
  for (int round = 0; round < 300; round++) {
    pool->ParallelFor(100, 1, [&](size_t begin, size_t end, int) {
      for (size_t i = begin; i < end; i++) sum += i;
    });
  }
  EXPECT_EQ(sum, 300u * 4950);
}

// Beside threads that take its cores, a pool moves its own: each index is still computed once, and all may use the cores that they might before.
TEST(ThreadPool, ComputesBesideBusyThreadsAndKeepsItsCores) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::atomic<bool> end = false;
  std::vector<std::jthread> busy;
  for (unsigned i = 0; i < std::thread::hardware_concurrency(); i++) {
    busy.emplace_back([&] {
      while (!end) {
      }
    });
  }
  for (const int threads : {2, 3, 8}) {
    const auto pool = Pool(threads);
    std::atomic<bool> kept = true;
    std::vector<std::atomic<int>> seen(64);
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    int rounds = 0;
    for (; std::chrono::steady_clock::now() < until || rounds < 20; rounds++) {
      pool->ParallelFor(seen.size(), 1, [&](size_t begin, size_t, int) {
        seen[begin]++;
        for (const auto stop = std::chrono::steady_clock::now() + std::chrono::microseconds(5);
             std::chrono::steady_clock::now() < stop;) {
        }
      });
    }
    for (const auto& n : seen) EXPECT_EQ(n, rounds);
    pool->ParallelFor(seen.size(), 1, [&](size_t, size_t, int) {
      // Who moves a thread narrows its set for a moment.
      bool same = false;
      for (int i = 0; i < 1000 && !same; i++) {
        cpu_set_t mine;
        same = sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_EQUAL(&mine, &allowed);
        if (!same) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      if (!same) kept = false;
    });
    EXPECT_TRUE(kept);
  }
  end = true;
}

TEST(ThreadPool, HugeCountsKeepTheirPieceNumbersInRange) {
  const auto pool = Pool(2);
  const size_t n = size_t{1} << 40;
  std::atomic<size_t> covered = 0;
  pool->ParallelFor(n, n / 3, [&](size_t begin, size_t end, int) { covered += end - begin; });
  EXPECT_EQ(covered, n);
}

TEST(ThreadPool, PoolsComeAndGo) {
  for (int i = 0; i < 50; i++) {
    const auto pool = Pool(3);
    std::atomic<int> n = 0;
    if (i % 2 == 0) pool->ParallelFor(10, 1, [&](size_t, size_t, int) { n++; });
    EXPECT_EQ(n, i % 2 == 0 ? 10 : 0);
  }
}

}  // namespace
}  // namespace ridge
