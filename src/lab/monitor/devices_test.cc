// Sources of the monitor that this machine may not have: a Jetson's /sys, tools that print lines, counters of the processor.
#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lab/evidence/watch.h"
#include "lab/monitor/sampler.h"

namespace ridge::lab {
namespace {

class Tree {
 public:
  Tree() : root_(std::filesystem::temp_directory_path() / ("ridge_devices_" + std::to_string(getpid()))) {}
  ~Tree() { std::filesystem::remove_all(root_); }
  std::string Put(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
    return (root_ / path).string();
  }
  std::string Script(const std::string& path, const std::string& text) const {
    const std::string file = Put(path, "#!/bin/sh\n" + text);
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file;
  }
  std::string root() const { return root_.string(); }

 private:
  std::filesystem::path root_;
};

double Value(const Row& row, std::string_view name) {
  const Field* f = row.Find(name);
  if (f == nullptr || !f->value) {
    ADD_FAILURE() << name << " has no value: " << (f == nullptr ? "no field" : f->reason);
    return NAN;
  }
  return *f->value;
}

std::string ReasonOf(const Sampler& sampler, std::string_view what) {
  const auto it = std::ranges::find(sampler.missing(), what, &Missing::what);
  return it == sampler.missing().end() ? "" : it->reason;
}

// An Orin NX of JetPack 6.
void PutOrin(const Tree& tree) {
  tree.Put("etc/nv_tegra_release", "# R36 (release), REVISION: 4.0\n");
  const std::string chip = "sys/class/hwmon/hwmon3/";
  tree.Put(chip + "name", "ina3221\n");
  tree.Put(chip + "in1_label", "VDD_IN\n");
  tree.Put(chip + "in1_input", "5000\n");
  tree.Put(chip + "curr1_input", "1600\n");
  tree.Put(chip + "in2_label", "VDD_CPU_GPU_CV\n");
  tree.Put(chip + "in2_input", "5000\n");
  tree.Put(chip + "curr2_input", "400\n");
  tree.Put(chip + "in3_label", "NC\n");
  tree.Put("sys/class/hwmon/hwmon4/name", "soctherm_oc\n");
  tree.Put("sys/class/hwmon/hwmon4/oc1_event_cnt", "0\n");
  tree.Put("sys/class/hwmon/hwmon4/oc3_event_cnt", "7\n");
  tree.Put("sys/class/devfreq/17000000.gpu/device/load", "437\n");
  tree.Put("sys/class/devfreq/17000000.gpu/cur_freq", "918000000\n");
  tree.Put("sys/class/devfreq/15340000.vic/cur_freq", "115200000\n");
  tree.Put("var/lib/nvpmodel/status", "pmode:0002\n");
}

TEST(Jetson, RailsGpuEventsAndModeAreRead) {
  const Tree tree;
  PutOrin(tree);
  const Jetson jetson(tree.root());
  EXPECT_TRUE(jetson.has_rails());
  Row row;
  jetson.Fill(row);
  EXPECT_NEAR(Value(row, "power_vdd_in_w"), 8, 1e-9);
  EXPECT_NEAR(Value(row, "power_vdd_cpu_gpu_cv_w"), 2, 1e-9);
  EXPECT_NEAR(Value(row, "power_total_w"), 8, 1e-9);  // the input, not a sum that contains itself
  EXPECT_EQ(row.Find("power_nc_w"), nullptr);
  EXPECT_NEAR(Value(row, "gpu0_sm_percent"), 43.7, 1e-9);
  EXPECT_NEAR(Value(row, "gpu0_pclk_mhz"), 918, 1e-9);
  EXPECT_EQ(row.Find("gpu1_sm_percent"), nullptr);
  EXPECT_EQ(Value(row, "nvpmodel_mode"), 2);
  const auto events = jetson.Events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].first, "oc3_events");
  EXPECT_EQ(events[1].second, 7);
  // A rail that goes silent takes the sum with it only where the sum is the total.
  tree.Put("sys/class/hwmon/hwmon3/curr2_input", "");
  Row later;
  jetson.Fill(later);
  EXPECT_FALSE(later.Find("power_vdd_cpu_gpu_cv_w")->value);
  EXPECT_NEAR(Value(later, "power_total_w"), 8, 1e-9);
}

TEST(Jetson, JetPack4AndBoardsWithoutAnInputRail) {
  const Tree tree;
  tree.Put("sys/bus/iio/devices/iio:device0/name", "ina3221x\n");
  tree.Put("sys/bus/iio/devices/iio:device0/rail_name_0", "GPU\n");
  tree.Put("sys/bus/iio/devices/iio:device0/in_power0_input", "1500\n");
  tree.Put("sys/bus/iio/devices/iio:device0/rail_name_1", "CPU\n");
  tree.Put("sys/bus/iio/devices/iio:device0/in_power1_input", "2500\n");
  const Jetson jetson(tree.root());
  Row row;
  jetson.Fill(row);
  EXPECT_NEAR(Value(row, "power_total_w"), 4, 1e-9);
  tree.Put("sys/bus/iio/devices/iio:device0/in_power1_input", "");
  Row later;
  jetson.Fill(later);
  EXPECT_FALSE(later.Find("power_total_w")->value);
  EXPECT_EQ(later.Find("power_total_w")->reason, "a rail could not be read");
}

TEST(Sampler, AJetsonIsReadLiveWithTegrastatsBeside) {
  const Tree tree;
  PutOrin(tree);
  tree.Put("proc/stat", "cpu  1 0 0 1 0 0 0 0 0 0\n");
  // The line repeats the interval that it was asked for, so that the test sees the flag.
  const std::string line =
      "RAM 3162/7620MB (lfb 4x2MB) CPU [2%@729,off] EMC_FREQ 3%@2133 GR3D_FREQ 1% cpu@62.8C gpu@-256C VDD_IN "
      "3913mW/3922mW";
  tree.Script("bin/tegrastats",
              "[ \"$1 $2\" = \"--interval 200\" ] || exit 3\nwhile :; do echo '" + line + "'; sleep 0.05; done\n");
  const std::string path = getenv("PATH");
  setenv("PATH", (tree.root() + "/bin:" + path).c_str(), 1);
  int tool = 0;
  {
    Sampler sampler({.sys_root = tree.root(), .interval_s = 0.2, .nvml = "/nowhere/libnvidia-ml.so.1"});
    const Sample s = sampler.Read();
    EXPECT_EQ(Value(s.row, "tegra_ram_used_mb"), 3162);
    EXPECT_EQ(Value(s.row, "tegra_emc_use_percent"), 3);
    ASSERT_NE(s.row.Find("tegra_temp_gpu_c"), nullptr);
    EXPECT_FALSE(s.row.Find("tegra_temp_gpu_c")->value);  // -256: the sensor is off
    EXPECT_LT(Value(s.row, "tegra_age_ms"), 60000);
    EXPECT_NEAR(Value(s.row, "power_vdd_in_w"), 8, 1e-9);
    EXPECT_EQ(ReasonOf(sampler, "Jetson sensors"), "");
    ASSERT_EQ(sampler.tools().size(), 1u);
    tool = sampler.tools()[0];
    EXPECT_EQ(kill(tool, 0), 0);
    Sampler without({.sys_root = tree.root(), .nvml = "/nowhere/libnvidia-ml.so.1", .tools = false});
    EXPECT_TRUE(without.tools().empty());
  }
  EXPECT_NE(kill(tool, 0), 0);  // it ended with the sampler
  tree.Script("bin/tegrastats", "echo no such board; exit 1\n");
  const Sampler without({.sys_root = tree.root(), .interval_s = 0.2, .nvml = "/nowhere/libnvidia-ml.so.1"});
  EXPECT_NE(ReasonOf(without, "tegrastats").find("no such board"), std::string::npos);
  setenv("PATH", path.c_str(), 1);
}

TEST(Sampler, ADriverWithoutItsLibraryIsReadThroughDmon) {
  const Tree tree;
  tree.Put("proc/driver/nvidia/version", "NVRM version: 550\n");
  tree.Script(
      "bin/nvidia-smi",
      "[ \"$*\" = 'dmon -s pucm -d 1' ] || exit 3\nwhile :; do echo '# gpu   pwr gtemp    sm   mem'\necho "
      "'# Idx     W     C     %     %'\necho '    0    61    40    97     -'\necho '    1    25    35     0     "
      "0'; sleep 0.1; done\n");
  const std::string path = getenv("PATH");
  setenv("PATH", (tree.root() + "/bin:" + path).c_str(), 1);
  Sampler sampler({.sys_root = tree.root(), .nvml = "/nowhere/libnvidia-ml.so.1"});
  setenv("PATH", path.c_str(), 1);
  usleep(300'000);  // both lines of a second may not have come at once
  const Sample s = sampler.Read();
  EXPECT_EQ(Value(s.row, "gpu0_pwr_w"), 61);
  EXPECT_EQ(Value(s.row, "gpu0_sm_percent"), 97);
  EXPECT_EQ(s.row.Find("gpu0_mem_percent")->reason, "not offered by this GPU");
  EXPECT_EQ(Value(s.row, "gpu1_gtemp_c"), 35);
  EXPECT_EQ(ReasonOf(sampler, "NVIDIA GPU"), "");
}

TEST(ToolFeed, ALineThatIsOldIsNoReading) {
  const Tree tree;
  const std::string script = tree.Script("once", "echo 'RAM 1/2MB (lfb 1x4MB) CPU [1%@100]'; exec sleep 100\n");
  auto feed = ToolFeed::Start({script}, LogKind::kTegrastats, 0.1);
  ASSERT_TRUE(feed) << feed.error().Message();
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  Row later;
  feed->Fill(later, "tegra_", now() + 100);
  ASSERT_NE(later.Find("tegra_ram_used_mb"), nullptr);
  EXPECT_FALSE(later.Find("tegra_ram_used_mb")->value);
  EXPECT_NE(later.Find("tegra_ram_used_mb")->reason.find("printed nothing"), std::string::npos);
  EXPECT_EQ(ToolFeed::Start({"/nowhere/tegrastats"}, LogKind::kTegrastats, 0.1).error().code, Code::kNotFound);
}

TEST(PerfCounters, CountAProcessAndNameWhatIsRefused) {
  // The kernel's own counters are there on every machine that lets a process look at itself.
  PerfCounters own({{"task_clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, 1e-9, {}}}, getpid());
  if (own.empty()) GTEST_SKIP() << "perf_event_open is refused here: " << own.refused()[0].second;
  const auto count = [&] { return own.Read()[0].value.value_or(-1); };
  const double before = count();
  volatile double sum = 0;
  for (int i = 0; i < 20'000'000; i++) sum = sum + i;
  EXPECT_GT(count(), before);
  // More CPUs than there are descriptors for: refused as a whole, and what was opened is closed again.
  const std::vector<int> many(1000, 0);
  PerfCounters wide({{"task_clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, 1, many},
                     {"again", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, 1, {}}},
                    getpid());
  ASSERT_FALSE(wide.refused().empty());
  EXPECT_EQ(wide.refused()[0].first, "task_clock");
  EXPECT_EQ(wide.Read().size(), 1u);  // the other one fits again
  const PerfCounters none({{"nothing", 12345, 0, 1, {}}}, getpid());
  EXPECT_TRUE(none.empty());
  ASSERT_EQ(none.refused().size(), 1u);
  EXPECT_EQ(none.refused()[0].first, "nothing");
  EXPECT_NE(none.refused()[0].second, "");
}

TEST(PerfCounters, MemoryControllersOfServersAndClients) {
  const Tree tree;
  const std::string server = "sys/bus/event_source/devices/uncore_imc_1/";
  tree.Put(server + "type", "31\n");
  tree.Put(server + "cpumask", "0,28-29\n");
  tree.Put(server + "events/cas_count_read", "event=0x04,umask=0x03\n");
  tree.Put(server + "events/cas_count_read.scale", "6.103515625e-5\n");
  tree.Put(server + "events/cas_count_read.unit", "MiB\n");
  tree.Put(server + "events/cas_count_write", "event=0x04,umask=0x0c\n");
  const std::string client = "sys/bus/event_source/devices/uncore_imc_free_running_0/";
  tree.Put(client + "type", "40\n");
  tree.Put(client + "cpumask", "0\n");
  tree.Put(client + "events/data_read", "event=0xff,umask=0x20\n");
  tree.Put(client + "events/data_read.scale", "6.103515625e-5\n");
  tree.Put(client + "events/data_read.unit", "MiB\n");
  tree.Put("sys/bus/event_source/devices/cpu/type", "4\n");
  const std::vector<PerfEvent> events = MemoryEvents(tree.root());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].name, "memory_read_bytes");
  EXPECT_EQ(events[0].type, 31u);
  EXPECT_EQ(events[0].config, 0x0304u);
  EXPECT_EQ(events[0].scale, 64);
  EXPECT_EQ(events[0].cpus, (std::vector<int>{0, 28, 29}));
  EXPECT_EQ(events[1].name, "memory_write_bytes");
  EXPECT_EQ(events[1].config, 0x0c04u);
  EXPECT_EQ(events[1].scale, 64);
  EXPECT_EQ(events[2].config, 0x20ffu);
  EXPECT_TRUE(MemoryEvents(tree.root() + "/none").empty());
}

TEST(ToolFeed, AToolThatNeverPausesIsLetGo) {
  std::string cells;  // reading the line takes longer than writing it
  for (int i = 0; i < 600; i++) cells += "1%@1,";
  auto feed = ToolFeed::Start({"yes", "RAM 330/3956MB CPU [" + cells + "1%@1]"}, LogKind::kTegrastats, 0.2);
  ASSERT_TRUE(feed) << feed.error().Message();
  Row row;
  feed->Fill(row, "tegra_", 0);
  ASSERT_NE(row.Find("tegra_ram_used_mb"), nullptr);
  EXPECT_EQ(row.Find("tegra_ram_used_mb")->value, 330);
}

TEST(ToolFeed, AGpuOfNoNumberIsNoSample) {
  for (const char* gpu : {"1e300", "-5", "1024"}) {
    const auto feed = ToolFeed::Start({"printf", "# gpu pwr\\n# Idx W\\n %s 20\\n", gpu}, LogKind::kDmon, 0.1);
    EXPECT_FALSE(feed) << gpu;
  }
  EXPECT_TRUE(ToolFeed::Start({"printf", "# gpu pwr\\n# Idx W\\n %s 20\\n", "1"}, LogKind::kDmon, 0.1));
}

TEST(Recorded, ALineWithoutEndIsNoSample) {
  std::string cells, keys;
  for (int i = 0; i < 50'000; i++) {
    cells += "1%@1,";
    keys += ", k" + std::to_string(i) + ": 1";
  }
  const std::string jetson = "RAM 330/3956MB CPU [1%@1]\n", sglang = "Decode batch. #running-req: 1, #token: 2\n";
  auto log = ParseRecorded(jetson + "RAM 330/3956MB CPU [" + cells + "1%@1]\n", LogKind::kTegrastats);
  ASSERT_TRUE(log);
  EXPECT_EQ(log->rows.size(), 1u);
  EXPECT_EQ(log->other_lines, 1);
  log = ParseRecorded(sglang + "Decode batch. #running-req: 1" + keys + "\n", LogKind::kSglang);
  ASSERT_TRUE(log);
  EXPECT_EQ(log->rows.size(), 1u);
  EXPECT_EQ(log->other_lines, 1);
}

TEST(Nvml, NoLibraryIsNoDriver) {
  const auto nvml = Nvml::Load("/nowhere/libnvidia-ml.so.1");
  ASSERT_FALSE(nvml);
  EXPECT_EQ(nvml.error().code, Code::kNotFound);
  EXPECT_EQ(Nvml::Load("libc.so.6").error().what, "this NVML lacks a function that every one since 2012 has");
}

TEST(Watch, ADeviceThatSlowsDownIsSeen) {
  Sample quiet, hot, jetson;
  quiet.row.Add("gpu0_power_cap", 1);
  quiet.row.Add("gpu0_hw_thermal", 0);
  EXPECT_EQ(SlowedDown({quiet}), "");
  hot.row.Add("gpu1_hw_thermal", 1);
  jetson.row.Add("oc3_events_per_second", 0.5);
  EXPECT_EQ(SlowedDown({quiet, hot, hot, jetson}), "GPU 1: hw_thermal, oc3 events");
}

}  // namespace
}  // namespace ridge::lab
