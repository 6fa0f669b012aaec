// What this machine tells about itself while something runs: processor, memory, energy, pressure, NVIDIA GPUs, a Jetson's sensors.
//
//   Sampler sampler({.pid = 1234});
//   Sample s = sampler.Read();  ... s = sampler.Read();    // s.row.Find("cpu_use_percent")->value
//   for (const Missing& m : sampler.missing()) ...          // "cpu energy": "no /sys/class/powercap: ..."
//
// Guarantees: each sample carries the time before and after it was read (CLOCK_MONOTONIC_RAW). Rates are differences of counters over the time between
// two samples; the first has none. What the machine does not offer is no field of any sample and one entry of missing(), with the reason; what fails
// later is a field without a value. `sys_root` is prefixed to /proc and /sys so that tests feed fake trees. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/monitor/jetson.h"
#include "lab/monitor/nvml.h"
#include "lab/monitor/perf_counters.h"
#include "lab/monitor/recorded.h"
#include "lab/monitor/tool_feed.h"

namespace ridge::lab {

struct SamplerOptions {
  int64_t pid = 0;  // process whose memory, faults and CPU time are told; 0: none
  std::string sys_root = "/";
  double interval_s = 1;  // at which it will be read: the period of a tool that is run beside (tegrastats)
  std::string nvml = "libnvidia-ml.so.1";
  bool tools = true;  // run tegrastats, or where NVML is not there nvidia-smi, beside
};

struct Sample {
  double before_s = 0, after_s = 0;  // CLOCK_MONOTONIC_RAW
  double unix_s = 0;                 // CLOCK_REALTIME at before_s
  Row row;
};

struct Missing {
  std::string what, reason;
};

class Sampler {
 public:
  explicit Sampler(SamplerOptions options);
  Sample Read();
  // From now on of this process, where there was none before.
  void Follow(int64_t pid);
  const std::vector<Missing>& missing() const { return missing_; }
  // Tools that it runs beside: processes of its own, which are nobody's subject.
  std::vector<int> tools() const;

 private:
  struct Counter {
    double value = 0, at_s = 0;
  };
  std::string Path(const std::string& path) const { return options_.sys_root + path; }
  // Increase of a counter per second since the last sample, times `scale`; `wrap`: where the counter starts anew.
  void Rate(Row& row, const std::string& field, std::optional<double> value, double at_s, double scale,
            double wrap = 0);
  void ReadCpu(Row& row, double at_s);
  void ReadFrequencies(Row& row);
  void ReadTemperatures(Row& row);
  void ReadEnergy(Row& row, double at_s);
  void ReadMemory(Row& row, double at_s);
  void ReadPressure(Row& row, double at_s);
  void ReadCgroup(Row& row, double at_s);
  void ReadProcess(Row& row, double at_s);
  void ReadThrottling(Row& row, double at_s);
  void FindGpus();
  void FindJetson();
  void FindCounters();
  void FollowCounters();
  void ReadDevices(Row& row, double at_s);
  void ReadCounters(Row& row, double at_s);
  void Absent(const std::string& what, const std::string& reason);

  SamplerOptions options_;
  std::vector<Missing> missing_;
  std::map<std::string, Counter> counters_;
  std::map<std::string, std::vector<double>> cpu_ticks_;  // line of /proc/stat -> its figures at the last sample
  std::vector<std::string> frequency_files_, zones_, energy_, throttle_files_, pressures_;
  std::string cgroup_memory_, cgroup_limit_, cgroup_cpu_;
  bool cgroup_v2_ = false, cpuinfo_mhz_ = false;
  std::optional<Nvml> nvml_;
  std::unique_ptr<Jetson> jetson_;
  std::unique_ptr<ToolFeed> dmon_, tegrastats_;
  std::unique_ptr<PerfCounters> machine_counters_, memory_counters_, process_counters_;
};

}  // namespace ridge::lab
