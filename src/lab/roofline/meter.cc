#include "lab/roofline/meter.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/thread_pool.h"
#include "lab/roofline/team.h"

namespace ridge::lab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPiece = 4 << 20;  // what a thread claims at a time: long against the claim, short against the whole

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

Result<Meter> Meter::Create(const Machine& machine, size_t memory_bytes, double least_s) {
  Meter meter;
  meter.l2_bytes_ = machine.l2_bytes;
  meter.cpus_ = machine.cpus;
  meter.least_s_ = least_s;
  RIDGE_ASSIGN_OR_RETURN(meter.memory_, Buffer::Allocate((memory_bytes + kPiece - 1) / kPiece * kPiece));
  RIDGE_RETURN_IF_ERROR(meter.Fill());
  return meter;
}

// Bytes between 0x20 and 0x3b, so that any two or four of them are a normal half, bfloat16 or float, and any one a small scale: subnormals and NaN could
// take a slower path. Each page is first touched by the threads that will read.
Status Meter::Fill() {
  std::vector<std::byte> pattern(1 << 20);
  uint32_t state = 1;
  for (std::byte& b : pattern) {
    state = state * 1664525 + 1013904223;
    b = static_cast<std::byte>(0x20 + (state >> 24) % 28);
  }
  std::atomic<size_t> next{0};
  const Result<TeamRun> run = RunTogether(cpus_, [&](int) {
    for (size_t at; (at = next.fetch_add(kPiece)) < memory_.size_bytes();) {
      for (size_t i = 0; i < kPiece; i += pattern.size())
        std::memcpy(memory_.data() + at + i, pattern.data(), pattern.size());
    }
  });
  if (!run) return std::unexpected(run.error());
  return {};
}

Result<double> Meter::Timed(int n_threads, const std::function<void(int)>& fn) {
  RIDGE_ASSIGN_OR_RETURN(const TeamRun run, RunTogether(n_threads, fn));
  wall_s_ += run.seconds;
  cpu_s_ += run.seconds * run.cpu_share;
  return run.seconds;
}

Result<double> Meter::Read(int n_threads, const backend::PeakProbe& probe, backend::ReadPattern pattern) {
  const size_t size = memory_.size_bytes();
  double total_s = 0, bytes = 0;
  while (total_s < least_s_) {  // whole passes: a part of the memory could lie in the caches
    std::atomic<size_t> next{0};
    RIDGE_ASSIGN_OR_RETURN(const double seconds, Timed(n_threads, [&](int) {
                             for (size_t at; (at = next.fetch_add(kPiece)) < size;)
                               probe.read(memory_.data() + at, kPiece, pattern);
                           }));
    total_s += seconds;
    bytes += static_cast<double>(size);
  }
  return bytes / total_s / 1e9;
}

Result<double> Meter::Peak(int n_threads, const std::function<double(int64_t)>& loop, int64_t& rounds) {
  if (rounds == 0) {
    double seconds = 0;
    for (rounds = 1000; rounds < int64_t{1} << 40; rounds *= 4) {
      const auto begin = Clock::now();
      loop(rounds);
      seconds = SecondsSince(begin);
      if (seconds > least_s_ / 8) break;
    }
    rounds = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(rounds) * least_s_ / seconds));
  }
  std::vector<double> operations(static_cast<size_t>(n_threads));
  RIDGE_ASSIGN_OR_RETURN(const double seconds,
                         Timed(n_threads, [&](int worker) { operations[static_cast<size_t>(worker)] = loop(rounds); }));
  double total = 0;
  for (double n : operations) total += n;
  return total / seconds / 1e9;
}

Result<double> Meter::FormatInMemory(int n_threads, const backend::FormatProbe& format, size_t bytes) {
  const int64_t panels = static_cast<int64_t>(std::min(bytes, memory_.size_bytes()) / format.panel_bytes);
  const int64_t piece = std::max<int64_t>(1, static_cast<int64_t>((1 << 20) / format.panel_bytes));
  std::vector<std::vector<float>> out(static_cast<size_t>(n_threads));
  for (auto& rows : out) rows.resize(static_cast<size_t>(piece * backend::FormatProbe::kPanelRows));
  std::atomic<int64_t> next{0};
  RIDGE_ASSIGN_OR_RETURN(const double seconds, Timed(n_threads, [&](int worker) {
                           for (int64_t p; (p = next.fetch_add(piece)) < panels;) {
                             format.Run(memory_.data() + static_cast<size_t>(p) * format.panel_bytes,
                                        std::min(piece, panels - p), out[static_cast<size_t>(worker)].data());
                           }
                         }));
  return static_cast<double>(panels) * static_cast<double>(format.panel_bytes) / seconds / 1e9;
}

Result<double> Meter::FormatInL2(int n_threads, const backend::FormatProbe& format) {
  const int64_t panels = std::max<int64_t>(1, static_cast<int64_t>(l2_bytes_ / 2 / format.panel_bytes));
  const size_t slice = static_cast<size_t>(panels) * format.panel_bytes;
  if (slice * static_cast<size_t>(n_threads) > memory_.size_bytes())
    return Fail(Code::kResourceExhausted, "not enough memory for one slice a thread");
  std::vector<double> bytes(static_cast<size_t>(n_threads));
  const auto work = [&](int worker) {
    std::vector<float> out(static_cast<size_t>(panels * backend::FormatProbe::kPanelRows));
    const std::byte* data = memory_.data() + static_cast<size_t>(worker) * slice;
    const auto begin = Clock::now();
    do {
      for (int i = 0; i < 8; i++) format.Run(data, panels, out.data());
      bytes[static_cast<size_t>(worker)] += 8 * static_cast<double>(slice);
    } while (SecondsSince(begin) < least_s_ / 4);
  };
  RIDGE_ASSIGN_OR_RETURN(const double seconds, Timed(n_threads, work));
  double total = 0;
  for (double n : bytes) total += n;
  return total / seconds / 1e9;
}

size_t Meter::NextPart(size_t bytes) {
  if (part_at_ + bytes > memory_.size_bytes()) part_at_ = 0;
  const size_t at = part_at_;
  part_at_ += (bytes + 4095) / 4096 * 4096;
  return at;
}

Result<double> Meter::FormatAsDecoding(int n_threads, const backend::FormatProbe& format, size_t bytes) {
  constexpr size_t kMatrix = 8 << 20;
  const size_t panels = kMatrix / format.panel_bytes, matrix = panels * format.panel_bytes,
               n = std::max<size_t>(1, std::min(bytes, memory_.size_bytes()) / matrix);
  const std::byte* data = memory_.data() + NextPart(n * matrix);
  // Cut as CpuProgram::RunProducts does: eight strips a thread, of 64 panels at most.
  const size_t strip = std::clamp<size_t>(panels / (8 * static_cast<size_t>(n_threads)), 1, 64);
  std::vector<float> out(panels * backend::FormatProbe::kPanelRows);
  RIDGE_ASSIGN_OR_RETURN(const std::unique_ptr<ThreadPool> pool, ThreadPool::Create(n_threads));
  const auto begin = Clock::now();
  for (size_t m = 0; m < n; m++) {
    const std::byte* at = data + m * matrix;
    pool->ParallelFor((panels + strip - 1) / strip, 1, [&](size_t first, size_t last, int) {
      for (size_t s = first; s < last; s++) {
        const size_t p = s * strip;
        format.Run(at + p * format.panel_bytes, static_cast<int64_t>(std::min(strip, panels - p)),
                   out.data() + p * backend::FormatProbe::kPanelRows);
      }
    });
  }
  return static_cast<double>(n * matrix) / SecondsSince(begin) / 1e9;
}

Result<double> Meter::Attention(int n_threads, const backend::AttentionProbe& probe, size_t bytes) {
  const size_t blocks =
      std::max<size_t>(static_cast<size_t>(n_threads), std::min(bytes, memory_.size_bytes()) / probe.bytes);
  if (blocks * probe.bytes > memory_.size_bytes())
    return Fail(Code::kResourceExhausted, "not enough memory for the keys of each thread");
  const std::byte* data = memory_.data() + NextPart(blocks * probe.bytes);
  std::atomic<size_t> next{0};
  RIDGE_ASSIGN_OR_RETURN(const double seconds, Timed(n_threads, [&](int) {
                           for (size_t b; (b = next.fetch_add(1)) < blocks;) probe.Run(data + b * probe.bytes);
                         }));
  return static_cast<double>(blocks) * static_cast<double>(backend::AttentionProbe::kTokens) / seconds;
}

Result<double> Meter::Dispatch(int n_threads) {
  RIDGE_ASSIGN_OR_RETURN(const std::unique_ptr<ThreadPool> pool, ThreadPool::Create(n_threads));
  constexpr int kTimes = 2000;
  const auto begin = Clock::now();
  for (int i = 0; i < kTimes; i++) pool->ParallelFor(static_cast<size_t>(8 * n_threads), 1, [](size_t, size_t, int) {});
  return 1e6 * SecondsSince(begin) / kTimes;
}

}  // namespace ridge::lab
