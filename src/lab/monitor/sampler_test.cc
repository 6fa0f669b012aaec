#include "lab/monitor/sampler.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>

namespace ridge::lab {
namespace {

// A /proc and /sys of our own.
class Tree {
 public:
  Tree() : root_(std::filesystem::temp_directory_path() / ("ridge_sampler_" + std::to_string(getpid()))) {}
  ~Tree() { std::filesystem::remove_all(root_); }
  void Put(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::string root() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

double Value(const Sample& s, std::string_view name) {
  const Field* f = s.row.Find(name);
  if (f == nullptr || !f->value) {
    ADD_FAILURE() << name << " has no value: " << (f == nullptr ? "no field" : f->reason);
    return NAN;
  }
  return *f->value;
}

void Fill(const Tree& tree, int step) {
  // 100 ticks more each step, 30 of them user, 10 steal.
  tree.Put("proc/stat", "cpu  " + std::to_string(1000 + 30 * step) + " 0 0 " + std::to_string(5000 + 60 * step) +
                            " 0 0 0 " + std::to_string(10 * step) + " 0 0\ncpu0 1 0 0 1 0 0 0 0 0 0\n");
  tree.Put("proc/meminfo", "MemTotal: 2048 kB\nMemAvailable: 1024 kB\nSwapTotal: 4096 kB\nSwapFree: 1024 kB\n");
  tree.Put("proc/vmstat", "pgfault " + std::to_string(100 * step) + "\npgmajfault 7\npswpin 0\npswpout 0\n");
  tree.Put("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=" + std::to_string(1000 * step) + "\n");
  tree.Put("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "2400000\n");
  tree.Put("sys/devices/system/cpu/cpufreq/none", "");
  tree.Put("sys/class/thermal/thermal_zone0/type", "x86_pkg_temp\n");
  tree.Put("sys/class/thermal/thermal_zone0/temp", "45500\n");
  tree.Put("sys/class/thermal/thermal_zone1/type", "gpu-therm\n");
  tree.Put("sys/class/thermal/thermal_zone1/temp", "-256000\n");
  tree.Put("sys/class/powercap/intel-rapl:0/name", "package-0\n");
  tree.Put("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "1000000\n");
  tree.Put("sys/class/powercap/intel-rapl:0/energy_uj",
           std::to_string((900000 + 200000 * step) % 1000000) + "\n");  // starts anew on the way
  tree.Put("proc/self/cgroup", "0::/job\n");
  tree.Put("sys/fs/cgroup/job/memory.current", "3145728\n");
  tree.Put("sys/fs/cgroup/job/memory.max", "max\n");
  tree.Put("sys/fs/cgroup/job/cpu.stat", "usage_usec 1\nthrottled_usec " + std::to_string(500 * step) + "\n");
  tree.Put("proc/42/status", "Name:\tx\nVmRSS:\t    2048 kB\nVmSwap:\t 0 kB\n");
  tree.Put("proc/42/stat", "42 (a (b) c) S 1 1 1 0 -1 0 " + std::to_string(10 * step) + " 0 3 0 " +
                               std::to_string(5 * step) + " 5 0 0 20 0 1 0 0 0 0\n");
}

TEST(Sampler, RatesAreDifferencesOverTheTimeBetween) {
  const Tree tree;
  Fill(tree, 0);
  Sampler sampler({.pid = 42, .sys_root = tree.root()});
  const Sample first = sampler.Read();
  EXPECT_LE(first.before_s, first.after_s);
  const Field* use = first.row.Find("cpu_use_percent");
  ASSERT_NE(use, nullptr);
  EXPECT_FALSE(use->value);
  EXPECT_EQ(use->reason, "a rate needs two samples");
  EXPECT_EQ(Value(first, "mem_available_mb"), 1);
  EXPECT_EQ(Value(first, "swap_used_mb"), 3);
  EXPECT_EQ(Value(first, "cpu0_mhz"), 2400);
  EXPECT_EQ(Value(first, "temp_x86_pkg_temp_c"), 45.5);
  EXPECT_EQ(first.row.Find("temp_gpu_therm_c")->reason, "sensor is off");
  EXPECT_EQ(Value(first, "cgroup_memory_mb"), 3);
  EXPECT_EQ(first.row.Find("cgroup_memory_limit_mb")->reason, "no limit");
  EXPECT_EQ(Value(first, "process_rss_mb"), 2);

  Fill(tree, 1);
  usleep(20000);
  const Sample second = sampler.Read();
  EXPECT_EQ(Value(second, "cpu_use_percent"), 30);
  EXPECT_EQ(Value(second, "cpu_steal_percent"), 10);
  // Each counter at its own moment, inside of its sample.
  const double least_s = second.before_s - first.after_s, most_s = second.after_s - first.before_s;
  for (const auto& [field, change] : {std::pair("page_faults_per_second", 100.0),
                                      {"power_package_0_0_w", 0.2},  // 200000 uJ, over the wrap
                                      {"pressure_cpu_some_percent", 0.1},
                                      {"cgroup_throttled_percent", 0.05},
                                      {"process_minor_faults_per_second", 10.0}}) {
    const double seconds = change / Value(second, field);
    EXPECT_GE(seconds, least_s * (1 - 1e-9)) << field;
    EXPECT_LE(seconds, most_s * (1 + 1e-9)) << field;
  }
  EXPECT_EQ(Value(second, "process_major_faults_per_second"), 0);
  EXPECT_GT(Value(second, "process_cpu_percent"), 0);
}

TEST(Sampler, WhatIsNotThereIsNamedOnce) {
  const Tree tree;
  tree.Put("proc/stat", "cpu  1 0 0 1 0 0 0 0 0 0\n");
  Sampler sampler({.sys_root = tree.root(), .nvml = "/nowhere/libnvidia-ml.so.1"});
  const Sample s = sampler.Read();
  EXPECT_EQ(s.row.Find("temp_x86_pkg_temp_c"), nullptr);
  EXPECT_EQ(s.row.Find("process_rss_mb"), nullptr);
  EXPECT_FALSE(s.row.Find("mem_total_mb")->value);  // always there, so its absence is a reading without a value
  const auto reason = [&](const std::string& what) {
    const auto it = std::ranges::find(sampler.missing(), what, &Missing::what);
    return it == sampler.missing().end() ? "" : it->reason;
  };
  for (const char* what : {"cpu frequency", "temperature", "cpu energy", "pressure of memory", "cgroup memory",
                           "process", "NVIDIA GPU", "Jetson sensors", "thermal throttling"})
    EXPECT_NE(reason(what), "") << what;
  EXPECT_EQ(reason("NVIDIA GPU"), "no NVIDIA driver");
}

TEST(Sampler, AProcessThatEndsIsSaidSo) {
  const Tree tree;
  Fill(tree, 0);
  Sampler sampler({.pid = 43, .sys_root = tree.root()});
  EXPECT_EQ(sampler.Read().row.Find("process_rss_mb")->reason, "the process is not there");
}

TEST(Sampler, ReadsThisMachine) {
  Sampler sampler({.pid = getpid()});
  const Sample s = sampler.Read();
  EXPECT_GT(Value(s, "mem_total_mb"), 0);
  EXPECT_GT(Value(s, "process_rss_mb"), 0);
}

}  // namespace
}  // namespace ridge::lab
