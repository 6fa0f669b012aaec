// MeasureRoofline: which measurements, in which order, how often.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>

#include "backend/backend.h"
#include "base/topology.h"
#include "lab/roofline/meter.h"
#include "lab/roofline/roofline.h"
#include "lab/statistics.h"

namespace ridge::lab {
namespace {

using Clock = std::chrono::steady_clock;
using backend::AttentionProbe;
using backend::FormatProbe;
using backend::PeakProbe;
using backend::ReadPattern;

constexpr int64_t kColumns =
    2048;  // of the matrices of the format measurements: the width of a model of 1 to 3 billion parameters
constexpr size_t kAttentionBytes = size_t{16} << 20;  // of keys and values, a step's worth at some depth
constexpr size_t kDecodeBytes = size_t{128} << 20;    // of weights in the same way
constexpr size_t kBestPatterns = 3;                   // that are repeated after the first round has tried all
constexpr double kLongest_s = 20;                     // no further rounds after that, once there are enough
constexpr int kEnoughRounds = 8;

// How thorough: full and short.
struct Effort {
  size_t memory_bytes, format_bytes;
  double least_s;
  int rounds, format_rounds;
};

Effort EffortOf(const Machine& machine, bool is_short) {
  const size_t past_caches = 8 * machine.l3_bytes;
  if (is_short) return {4 * machine.l3_bytes, 4 * machine.l3_bytes, 0.008, 3, 1};
  return {std::max<size_t>(size_t{1} << 30, past_caches), std::max<size_t>(size_t{256} << 20, past_caches), 0.03, 20,
          4};
}

// What a series is worth: the level that a quarter of its repetitions reaches. The highest single one is no ceiling on a shared host: now and then it
// finds the neighbours silent (34, 35, 35, 49 GB/s were seen in a row), and nobody can count on that.
double Level(const std::vector<double>& samples) { return Quantile(samples, 0.75); }

struct ReadSeries {
  int threads;
  const PeakProbe* probe;
  ReadPattern pattern;
  std::vector<double> samples;
};

struct PeakSeries {
  const PeakProbe* probe;
  const std::function<double(int64_t)>* loop;
  std::optional<double> PeakRow::* field;
  int64_t rounds = 0;
  std::vector<double> samples;
};

struct FormatSeries {
  const FormatProbe* format;
  std::vector<double> memory, l2, decode;
};

std::string Describe(const ReadSeries& s) {
  return fmt::format(
      "{}, {} stream{}, {}", s.probe->isa, s.pattern.streams, s.pattern.streams == 1 ? "" : "s",
      s.pattern.ahead_bytes == 0 ? "no prefetch" : fmt::format("prefetch {} bytes ahead", s.pattern.ahead_bytes));
}

struct AttentionSeries {
  const AttentionProbe* probe;
  std::vector<double> samples;
};

class Measurement {
 public:
  Measurement(const RooflineOptions& options, Roofline& out)
      : options_(options), out_(out), effort_(EffortOf(out.machine, options.is_short)) {}
  Status Run();

 private:
  Status Prepare();
  void AddReads();
  void AddPeaks();
  Status Round(int round);
  void KeepBestPatterns();
  double Spread() const;
  void Collect();
  void Progress(double share) const {
    if (options_.progress) options_.progress(share);
  }

  const RooflineOptions& options_;
  Roofline& out_;
  const Effort effort_;
  std::optional<Meter> meter_;
  std::vector<PeakProbe> probes_;
  std::vector<FormatProbe> formats_;
  std::vector<AttentionProbe> attention_probes_;
  std::vector<AttentionSeries> attention_;
  std::vector<double> dispatches_us_;
  std::vector<ReadSeries> reads_;
  std::vector<PeakSeries> peaks_;
  std::map<std::string, FormatSeries> by_kernel_;  // types that share a kernel are measured once
};

// Every count up to 8, then powers of two, and all.
std::vector<int> ThreadCounts(int all, bool is_short) {
  std::vector<int> counts;
  for (int n = 1; n < all; n = n < 8 && !is_short ? n + 1 : 2 * n) counts.push_back(n);
  counts.push_back(all);
  return counts;
}

Status Measurement::Prepare() {
  const MemoryBudget memory = ReadMemory();
  const uint64_t have = std::min(memory.available_bytes, memory.allowed_bytes);
  if (memory.available_bytes != 0 && have < effort_.memory_bytes + effort_.memory_bytes / 4) {
    return Fail(Code::kResourceExhausted, "not enough memory to measure well past the caches")
        .Found(fmt::format("{} MiB available", have >> 20))
        .Expected(fmt::format("{} MiB", (effort_.memory_bytes + effort_.memory_bytes / 4) >> 20))
        .Remedy(options_.is_short ? "close other programs" : "close other programs, or use --short");
  }
  RIDGE_ASSIGN_OR_RETURN(meter_, Meter::Create(out_.machine, effort_.memory_bytes, effort_.least_s));
  probes_ = backend::CpuPeaks();
  RIDGE_ASSIGN_OR_RETURN(formats_, backend::CpuFormats("", kColumns));
  out_.isa = probes_.back().isa;
  out_.threads = out_.machine.cpus;
  AddReads();
  AddPeaks();
  attention_probes_ = backend::CpuAttention();
  for (const AttentionProbe& probe : attention_probes_) attention_.push_back({&probe, {}});
  for (const FormatProbe& format : formats_) by_kernel_.try_emplace(format.kernel, FormatSeries{&format, {}, {}, {}});
  return {};
}

void Measurement::AddReads() {
  std::vector<ReadPattern> patterns;
  for (int streams : {1, 2, 4, 8}) {
    for (int64_t ahead : {0, 1024, 4096}) patterns.push_back({streams, ahead});
  }
  if (options_.is_short) patterns = {{1, 0}, {1, 4096}, {2, 4096}, {4, 1024}};
  for (int n : ThreadCounts(out_.threads, options_.is_short)) {
    for (const ReadPattern& pattern : patterns) reads_.push_back({n, &probes_.back(), pattern, {}});
    // Narrower loads, where there are any: not every core reads fastest with its widest.
    if (probes_.size() > 2 && !options_.is_short) reads_.push_back({n, &probes_[probes_.size() - 2], {1, 4096}, {}});
  }
}

void Measurement::AddPeaks() {
  for (const PeakProbe& probe : probes_) {
    if (probe.int8) peaks_.push_back({&probe, &probe.int8, &PeakRow::int8_gops});
    if (probe.bf16) peaks_.push_back({&probe, &probe.bf16, &PeakRow::bf16_gflops});
    if (probe.fp32) peaks_.push_back({&probe, &probe.fp32, &PeakRow::fp32_gflops});
  }
}

Status Measurement::Round(int round) {
  for (ReadSeries& s : reads_) {
    RIDGE_ASSIGN_OR_RETURN(const double gbps, meter_->Read(s.threads, *s.probe, s.pattern));
    s.samples.push_back(gbps);
  }
  for (PeakSeries& s : peaks_) {
    RIDGE_ASSIGN_OR_RETURN(const double rate, meter_->Peak(out_.threads, *s.loop, s.rounds));
    s.samples.push_back(rate);
  }
  // What is to be expected takes more of the time to be known than what can be reached.
  for (auto& [kernel, s] : by_kernel_) {
    RIDGE_ASSIGN_OR_RETURN(const double decode, meter_->FormatAsDecoding(out_.threads, *s.format, kDecodeBytes));
    s.decode.push_back(decode);
  }
  if (round >= effort_.format_rounds) return {};
  for (auto& [kernel, s] : by_kernel_) {
    RIDGE_ASSIGN_OR_RETURN(const double memory, meter_->FormatInMemory(out_.threads, *s.format, effort_.format_bytes));
    s.memory.push_back(memory);
    RIDGE_ASSIGN_OR_RETURN(const double l2, meter_->FormatInL2(out_.threads, *s.format));
    s.l2.push_back(l2);
  }
  for (AttentionSeries& s : attention_) {
    RIDGE_ASSIGN_OR_RETURN(const double rate, meter_->Attention(out_.threads, *s.probe, kAttentionBytes));
    s.samples.push_back(rate);
  }
  RIDGE_ASSIGN_OR_RETURN(const double dispatch_us, meter_->Dispatch(out_.threads));
  dispatches_us_.push_back(dispatch_us);
  return {};
}

// Of each thread count.
void Measurement::KeepBestPatterns() {
  std::stable_sort(reads_.begin(), reads_.end(), [](const ReadSeries& a, const ReadSeries& b) {
    return a.threads != b.threads ? a.threads < b.threads : Level(a.samples) > Level(b.samples);
  });
  std::map<int, size_t> kept;
  std::erase_if(reads_, [&](const ReadSeries& s) { return ++kept[s.threads] > kBestPatterns; });
}

// Of the headline series (read by all threads, int8 by the best ISA), the larger distance between level and median.
double Measurement::Spread() const {
  double spread = 0, fastest = 0;
  const auto spread_of = [](const std::vector<double>& samples) { return 1 - Median(samples) / Level(samples); };
  double read_spread = 0;
  for (const ReadSeries& s : reads_) {
    if (s.threads != out_.threads || Level(s.samples) <= fastest) continue;
    fastest = Level(s.samples);
    read_spread = spread_of(s.samples);
  }
  for (const PeakSeries& s : peaks_) {
    if (s.probe->isa == out_.isa && s.field == &PeakRow::int8_gops) spread = spread_of(s.samples);
  }
  return std::max(spread, read_spread);
}

void Measurement::Collect() {
  for (const ReadSeries& s : reads_) {
    if (out_.read.empty() || out_.read.back().threads != s.threads) out_.read.push_back({s.threads, 0, ""});
    ReadRow& row = out_.read.back();
    if (Level(s.samples) <= row.gbps) continue;
    row.gbps = Level(s.samples);
    row.pattern = Describe(s);
  }
  for (const PeakSeries& s : peaks_) {
    if (out_.peaks.empty() || out_.peaks.back().isa != s.probe->isa) out_.peaks.push_back({.isa = s.probe->isa});
    out_.peaks.back().*s.field = Level(s.samples);
  }
  for (const FormatProbe& format : formats_) {
    const FormatSeries& s = by_kernel_.at(format.kernel);
    out_.formats.push_back({format.type, format.kernel, format.integer, format.layout_ratio, Level(s.memory),
                            Level(s.l2), Median(s.decode)});
  }
  for (const AttentionSeries& s : attention_)
    out_.attention.push_back({s.probe->kv_type, s.probe->head_dim, s.probe->group, Median(s.samples)});
  out_.dispatch_us = Quantile(dispatches_us_, 0.25);
}

Status Measurement::Run() {
  const auto begin = Clock::now();
  const CpuTimes before = ReadCpuTimes();
  RIDGE_RETURN_IF_ERROR(Prepare());
  for (int round = 0; round < effort_.rounds; round++) {
    RIDGE_RETURN_IF_ERROR(Round(round));
    out_.rounds = round + 1;
    Progress(static_cast<double>(round + 1) / effort_.rounds);
    if (round == 0) KeepBestPatterns();
    if (out_.rounds >= kEnoughRounds && std::chrono::duration<double>(Clock::now() - begin).count() > kLongest_s) break;
  }
  Progress(1);
  Collect();
  out_.disturbance = Between(before, ReadCpuTimes());
  out_.disturbance.cpu_share = meter_->cpu_share();
  out_.disturbance.spread = Spread();
  out_.verdict = Judge(out_.disturbance);
  out_.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return {};
}

}  // namespace

Result<Roofline> MeasureRoofline(const RooflineOptions& options) {
  Roofline roofline;
  roofline.machine = ReadMachine();
  roofline.build = options.build;
  roofline.fingerprint = Fingerprint(roofline.machine, options.build);
  roofline.measured_at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  roofline.is_short = options.is_short;
  RIDGE_RETURN_IF_ERROR(Measurement(options, roofline).Run());
  return roofline;
}

}  // namespace ridge::lab
