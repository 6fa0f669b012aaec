// What the sampler reads beside /proc: GPUs, a Jetson's sensors, counters of the processor.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "lab/monitor/sampler.h"

namespace ridge::lab {
namespace {

constexpr double kDmonPeriodS = 1;  // it takes whole seconds
constexpr double kLeastTegrastatsS = 0.1;

// A tool's figures stand under "gpuN_"; so do those of the library.
constexpr const char* kGpu = "gpu";

}  // namespace

void Sampler::FindGpus() {
  auto nvml = Nvml::Load(options_.nvml);
  if (nvml) {
    if (nvml->gpus() == 0)
      Absent("NVIDIA GPU", "the driver knows no GPU");
    else
      nvml_ = std::move(*nvml);
    return;
  }
  std::error_code error;
  if (!std::filesystem::exists(Path("/proc/driver/nvidia/version"), error)) {
    Absent("NVIDIA GPU", nvml.error().code == Code::kNotFound ? "no NVIDIA driver" : nvml.error().Message());
    return;
  }
  if (!options_.tools) return;
  // A driver without its library, as in a container that has only the tool.
  auto feed = ToolFeed::Start({"nvidia-smi", "dmon", "-s", "pucm", "-d", "1"}, LogKind::kDmon, kDmonPeriodS);
  if (feed)
    dmon_ = std::make_unique<ToolFeed>(std::move(*feed));
  else
    Absent("NVIDIA GPU", fmt::format("{}; nvidia-smi dmon: {}", nvml.error().Message(), feed.error().Message()));
}

void Sampler::FindJetson() {
  std::error_code error;
  if (!std::filesystem::exists(Path("/etc/nv_tegra_release"), error)) {
    Absent("Jetson sensors", "this is no Jetson");
    return;
  }
  jetson_ = std::make_unique<Jetson>(options_.sys_root);
  if (!jetson_->has_rails())
    Absent("Jetson power rails", "no ina3221 in /sys/class/hwmon or /sys/bus/iio that may be read");
  if (!options_.tools) return;
  const double period = std::max(options_.interval_s, kLeastTegrastatsS);
  auto feed =
      ToolFeed::Start({"tegrastats", "--interval", fmt::format("{:.0f}", period * 1e3)}, LogKind::kTegrastats, period);
  if (feed)
    tegrastats_ = std::make_unique<ToolFeed>(std::move(*feed));
  else
    Absent("tegrastats", feed.error().Message());
}

void Sampler::FindCounters() {
  if (!options_.sys_root.empty()) {
    Absent("counters of the processor", "not read with another root than /");
    return;
  }
  const auto told = [&](const PerfCounters& counters, const char* whose) {
    for (const auto& [name, why] : counters.refused()) Absent(fmt::format("{}{}", whose, name), why);
  };
  machine_counters_ = std::make_unique<PerfCounters>(ProcessorEvents(), 0);
  told(*machine_counters_, "counter cpu_");
  std::vector<PerfEvent> memory = MemoryEvents();
  if (memory.empty())
    Absent("memory traffic",
           "no uncore_imc in /sys/bus/event_source/devices: not offered by this processor or virtual machine");
  else
    memory_counters_ = std::make_unique<PerfCounters>(std::move(memory), 0), told(*memory_counters_, "counter ");
  if (options_.pid != 0) FollowCounters();
}

void Sampler::FollowCounters() {
  process_counters_ = std::make_unique<PerfCounters>(ProcessorEvents(), options_.pid);
  for (const auto& [name, why] : process_counters_->refused()) Absent("counter process_" + name, why);
}

void Sampler::Follow(int64_t pid) {
  options_.pid = pid;
  std::erase_if(missing_, [](const Missing& m) { return m.what == "process"; });
  if (options_.sys_root.empty()) FollowCounters();
}

std::vector<int> Sampler::tools() const {
  std::vector<int> out;
  for (const auto* feed : {&dmon_, &tegrastats_}) {
    if (*feed) out.push_back((*feed)->pid());
  }
  return out;
}

void Sampler::ReadDevices(Row& row, double at_s) {
  for (int gpu = 0; nvml_ && gpu < nvml_->gpus(); gpu++) {
    GpuReading r = nvml_->Read(gpu, options_.pid);
    for (Field& f : r.fields) row.Add(std::move(f.name), f.value, std::move(f.reason));
    // Energy between two samples; pwr_w is what the driver averages over a time of its own.
    if (r.energy_mj) Rate(row, fmt::format("gpu{}_mean_w", gpu), r.energy_mj, at_s, 1e-3);
  }
  if (dmon_) dmon_->Fill(row, kGpu, at_s);
  if (jetson_) {
    jetson_->Fill(row);
    for (const auto& [name, count] : jetson_->Events()) Rate(row, name + "_per_second", count, at_s, 1);
  }
  if (tegrastats_) tegrastats_->Fill(row, "tegra_", at_s);
}

void Sampler::ReadCounters(Row& row, double at_s) {
  const auto read = [&](const std::unique_ptr<PerfCounters>& counters, const std::string& prefix) {
    if (!counters) return;
    for (const PerfCount& c : counters->Read()) {
      const std::string bytes = "_bytes";
      const bool gbps = c.name.ends_with(bytes);
      const std::string name =
          gbps ? prefix + c.name.substr(0, c.name.size() - bytes.size()) + "_gbps" : prefix + c.name + "_per_second";
      if (c.value)
        Rate(row, name, c.value, at_s, gbps ? 1e-9 : 1);
      else
        row.Add(name, {}, c.reason);
    }
  };
  read(machine_counters_, "cpu_");
  read(memory_counters_, "");
  read(process_counters_, "process_");
}

}  // namespace ridge::lab
