#include "lab/diagnose/interventions.h"

#include <algorithm>
#include <chrono>

#include "lab/roofline/team.h"
#include "lab/statistics.h"

namespace ridge::lab {
namespace {

constexpr double kLeast_s = 0.012;
constexpr double kLeastBytes = 16 << 20, kMostBytes = 1 << 30;
constexpr int64_t kColumns = 2048;

const backend::PeakProbe* Find(const std::vector<backend::PeakProbe>& probes, const std::string& isa) {
  for (const backend::PeakProbe& p : probes) {
    if (p.isa == isa) return &p;
  }
  return nullptr;
}

double Ratio(double with, double without, double fallback) {
  return without > 0 && with > 0 ? with / without : fallback;
}

}  // namespace

Result<PartRates> PartRates::Create(const Work& step, const Machine& machine) {
  const double bytes = std::clamp(LayoutBytes(step), kLeastBytes, kMostBytes);
  RIDGE_ASSIGN_OR_RETURN(Meter meter, Meter::Create(machine, static_cast<size_t>(bytes), kLeast_s));
  return PartRates(step, std::move(meter));
}

Result<Rates> PartRates::Measure(const Condition& condition) {
  static const std::vector<backend::PeakProbe> probes = backend::CpuPeaks();
  const backend::PeakProbe* probe = Find(probes, condition.isa);
  if (probe == nullptr) return Fail(Code::kInvalidArgument, "no such instruction set here").Found(condition.isa);
  Rates rates;
  RIDGE_ASSIGN_OR_RETURN(rates.read_gbps, meter_.Read(condition.threads, *probe, {.streams = 1, .ahead_bytes = 1024}));
  rates.read_s = LayoutBytes(step_) / (rates.read_gbps * 1e9);
  if (!formats_.contains(condition.isa)) {
    RIDGE_ASSIGN_OR_RETURN(formats_[condition.isa], backend::CpuFormats(condition.isa, kColumns));
  }
  double integer = 0;
  for (const auto& [type, w] : step_.matmul) {
    for (const backend::FormatProbe& format : formats_[condition.isa]) {
      if (format.type != type) continue;
      RIDGE_ASSIGN_OR_RETURN(const double gbps, meter_.FormatInL2(condition.threads, format));
      rates.unpack_s += w.bytes * format.layout_ratio / (gbps * 1e9);
      if (format.integer) integer += w.flops;
    }
  }
  const auto peak = [&](const std::function<double(int64_t)>& loop, const char* kind) -> Result<std::optional<double>> {
    if (!loop) return std::optional<double>();
    RIDGE_ASSIGN_OR_RETURN(const double rate, meter_.Peak(condition.threads, loop, rounds_[condition.isa + kind]));
    return std::optional(Flops(step_) / (rate * 1e9));
  };
  RIDGE_ASSIGN_OR_RETURN(rates.float_s, peak(probe->fp32, "fp32"));
  if (integer > 0.5 * Flops(step_)) {
    RIDGE_ASSIGN_OR_RETURN(rates.compute_s, peak(probe->int8, "int8"));
  } else {
    rates.compute_s = rates.float_s;
  }
  return rates;
}

Result<double> PartRates::CpuShare(int n_threads, double seconds) {
  using Clock = std::chrono::steady_clock;
  const backend::PeakProbe probe = backend::CpuPeaks().back();
  const auto& loop = probe.fp32 ? probe.fp32 : probe.int8;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  RIDGE_ASSIGN_OR_RETURN(const TeamRun run, RunTogether(n_threads, [&](int) {
                           while (Clock::now() < end) loop(20000);
                         }));
  return std::min(1.0, run.cpu_share);
}

Result<double> ReadNow(int n_threads, const Machine& machine) {
  const size_t bytes = std::clamp<size_t>(4 * machine.l3_bytes, size_t{256} << 20, size_t{1} << 30);
  RIDGE_ASSIGN_OR_RETURN(Meter meter, Meter::Create(machine, bytes, kLeast_s));
  const backend::PeakProbe probe = backend::CpuPeaks().back();
  double best = 0;
  for (const backend::ReadPattern pattern : {backend::ReadPattern{1, 0}, {1, 4096}, {2, 4096}, {4, 1024}}) {
    std::vector<double> rates;
    for (int i = 0; i < 3; i++) {
      RIDGE_ASSIGN_OR_RETURN(const double gbps, meter.Read(n_threads, probe, pattern));
      rates.push_back(gbps);
    }
    best = std::max(best, Median(rates));
  }
  return best;
}

Factors FactorsOf(const Rates& without, const Rates& with) {
  const double unpack = Ratio(with.unpack_s, without.unpack_s, 1);
  const double compute =
      without.compute_s && with.compute_s ? Ratio(*with.compute_s, *without.compute_s, unpack) : unpack;
  const double floats = without.float_s && with.float_s ? Ratio(*with.float_s, *without.float_s, unpack) : unpack;
  return {compute, Ratio(with.read_s, without.read_s, 1), unpack, floats, 1};
}

Result<std::unique_ptr<Antagonist>> Antagonist::Create(int n_threads, const Machine& machine) {
  constexpr size_t kMost = 512 << 20;  // of each thread
  std::unique_ptr<Antagonist> antagonist(new Antagonist);
  const size_t each = std::min<size_t>(kMost, std::max<size_t>(size_t{64} << 20, 2 * machine.l3_bytes)) / 4096 * 4096;
  RIDGE_ASSIGN_OR_RETURN(antagonist->memory_, Buffer::Allocate(each * static_cast<size_t>(n_threads)));
  antagonist->each_bytes_ = each;
  RIDGE_RETURN_IF_ERROR(antagonist->memory_.Populate());
  for (int i = 0; i < n_threads; i++)
    antagonist->threads_.emplace_back([a = antagonist.get(), i] { a->Loop(static_cast<size_t>(i)); });
  return antagonist;
}

Antagonist::~Antagonist() {
  stop_ = true;
  Work();
  for (std::thread& t : threads_) t.join();
}

void Antagonist::Work() {
  working_ = true;
  working_.notify_all();
}

void Antagonist::Rest() { working_ = false; }

void Antagonist::Loop(size_t index) {
  constexpr size_t kPiece = 1 << 20;
  const backend::PeakProbe probe = backend::CpuPeaks().back();
  while (!stop_) {
    working_.wait(false);
    for (size_t at = 0; at + kPiece <= each_bytes_ && working_ && !stop_; at += kPiece)
      probe.read(memory_.data() + index * each_bytes_ + at, kPiece, {.streams = 1, .ahead_bytes = 1024});
  }
}

}  // namespace ridge::lab
