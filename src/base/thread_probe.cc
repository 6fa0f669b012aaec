#include "base/thread_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "base/memory.h"
#include "base/thread_pool.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBytes = 64 << 20;  // past the caches of most machines
// One pass reads a quarter: shorter than the time for which the system leaves a thread on its core, so that beside busy neighbours the best
// of the passes is still one that nobody disturbed.
constexpr size_t kPassBytes = kBytes / 4;
constexpr size_t kRegionBytes = 512 << 10;  // about one matrix of a small model: a barrier after each
constexpr size_t kPieceBytes = 32 << 10;
constexpr int kRounds = 8;
constexpr std::chrono::milliseconds kLimit{45};
constexpr double kClearly = 1.10;

uint64_t Sum(const uint64_t* at, size_t bytes) {
  std::array<uint64_t, 8> sums{};
  for (size_t i = 0; i < bytes / 8; i += 8) {
    for (size_t j = 0; j < 8; j++) sums[j] += at[i + j];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

// GB/s of one pass, region by region as a step runs its matrices.
double Pass(ThreadPool& pool, const Buffer& buffer, size_t from_bytes, std::atomic<uint64_t>& sink) {
  const auto begin = Clock::now();
  for (size_t at = from_bytes; at < from_bytes + kPassBytes; at += kRegionBytes) {
    pool.ParallelFor(kRegionBytes / kPieceBytes, 1, [&](size_t from, size_t to, int) {
      sink.fetch_add(
          Sum(reinterpret_cast<const uint64_t*>(buffer.data() + at + from * kPieceBytes), (to - from) * kPieceBytes),
          std::memory_order_relaxed);
    });
  }
  return static_cast<double>(kPassBytes) / 1e9 / std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

int ChooseThreads(std::span<const ProbeSample> samples) {
  if (samples.empty()) return 1;
  ProbeSample best = samples.back();
  for (const ProbeSample& sample : samples) {
    if (sample.gbps > samples.back().gbps * kClearly && sample.gbps > best.gbps) best = sample;
  }
  return best.threads;
}

CpuBudget ProbeThreads(CpuBudget budget) {
  if (budget.asked || budget.threads < 2) return budget;
  if (budget.quota) {
    budget.reason += "; not probed: a quota rations time";
    return budget;
  }
  const auto begin = Clock::now();
  const auto unmeasured = [&](const char* why) {
    budget.reason += std::string("; not probed: ") + why;
    return budget;
  };
  std::vector<int> counts = {1, budget.threads / 2, budget.threads};
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  auto buffer = Buffer::Allocate(kBytes);
  if (!buffer) return unmeasured("no memory for it");
  std::vector<std::unique_ptr<ThreadPool>> pools;
  for (const int count : counts) {
    auto pool = ThreadPool::Create(count);
    if (!pool) return unmeasured("no threads for it");
    pools.push_back(std::move(*pool));
  }
  // Written by all threads: a page that was only read would be the kernel's one page of zeros.
  pools.back()->ParallelFor(kBytes / 4096, 512, [&](size_t from, size_t to, int) {
    for (size_t page = from; page < to; page++) buffer->data()[page * 4096] = std::byte{1};
  });
  std::vector<ProbeSample> samples;
  for (const int count : counts) samples.push_back({count, 0});
  std::atomic<uint64_t> sink = 0;
  for (int round = 0; round < kRounds; round++) {
    for (size_t i = 0; i < pools.size(); i++) {
      if (Clock::now() - begin > kLimit && round == 0) return unmeasured("the machine is too busy");
      if (Clock::now() - begin > kLimit) break;
      samples[i].gbps =
          std::max(samples[i].gbps, Pass(*pools[i], *buffer, static_cast<size_t>(round) * kPassBytes % kBytes, sink));
    }
  }
  budget.threads = ChooseThreads(samples);
  std::string figures;
  for (const ProbeSample& sample : samples) {
    figures += fmt::format("{}{} thread{} {:.1f} GB/s", figures.empty() ? "" : ", ", sample.threads,
                           sample.threads == 1 ? "" : "s", sample.gbps);
  }
  budget.reason += fmt::format("; a probe read {}{}", figures,
                               budget.threads < counts.back() ? ": fewer threads are faster here" : "");
  return budget;
}

}  // namespace ridge
