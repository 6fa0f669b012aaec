#include "lab/evidence/environment.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace ridge::lab {
namespace {

namespace fs = std::filesystem;

TEST(Environment, HasAll35FieldsEachKnownOrWithItsReason) {
  const auto fields = EnvironmentFields();
  EXPECT_EQ(fields.size(), 35u);
  EXPECT_EQ(std::set<std::string_view>(fields.begin(), fields.end()).size(), 35u);
  for (const char* root : {"/", "/nonexistent"}) {
    const auto e = Environment({.framework = "ridge 1", .threads = "t", .memory = "m", .sys_root = root});
    ASSERT_EQ(e["mlperf"].size(), 35u);
    for (const std::string_view name : fields) {
      const auto& field = e["mlperf"][std::string(name)];
      const char* note = field["value"].is_null() ? "reason" : "from";
      ASSERT_TRUE(field.contains(note)) << name;
      EXPECT_FALSE(field[note].get<std::string>().empty()) << name;
      EXPECT_NE(field["value"], "") << name;
    }
    EXPECT_EQ(HardwareOf(e.dump()).value(), e["hardware"]);
  }
  EXPECT_FALSE(HardwareOf("{}"));
  EXPECT_FALSE(HardwareOf("no json"));
}

TEST(Environment, ReadsWhatAMachineTells) {
  const fs::path root = fs::path(::testing::TempDir()) / ("ridge-environment-" + std::to_string(getpid()));
  fs::remove_all(root);
  const auto put = [&](const std::string& name, const std::string& text) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
  };
  put("proc/cpuinfo", "processor : 0\nflags : fpu hypervisor\nmicrocode : 0xa1\n");
  put("proc/device-tree/model", std::string("NVIDIA Jetson Orin Nano\0", 24));
  put("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 5\n");
  put("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n");
  put("sys/devices/system/cpu/cpu1/topology/physical_package_id", "0\n");
  put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  put("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", "3500000\n");
  put("sys/devices/system/cpu/cpu0/cache/index0/size", "32K\n");
  put("sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
  put("sys/devices/system/cpu/cpu0/cache/index0/type", "Data\n");
  put("sys/class/thermal/cooling_device0/type", "pwm-fan\n");
  put("sys/class/thermal/cooling_device1/type", "Processor\n");
  put("sys/block/nvme0n1/queue/rotational", "0\n");
  put("sys/class/net/eth0/device/vendor", "x");
  put("sys/class/net/eth0/speed", "1000\n");
  put("var/lib/nvpmodel/status", "pmode:0002\n");
  const auto e = Environment({.sys_root = root.string()});
  const auto value = [&](const char* name) { return e["mlperf"][name]["value"]; };
  EXPECT_EQ(value("system_name"), "NVIDIA Jetson Orin Nano");
  EXPECT_EQ(value("host_processors_per_node"), 1);
  EXPECT_EQ(value("host_processor_frequency"), "3500 MHz at most");
  EXPECT_EQ(value("host_processor_caches"), "L1d 32K");
  EXPECT_EQ(value("accelerators_per_node"), 1);
  EXPECT_EQ(value("accelerator_model_name"), "NVIDIA H200");
  EXPECT_TRUE(value("accelerator_memory_capacity").is_null());
  EXPECT_EQ(value("cooling"), "pwm-fan");
  EXPECT_EQ(value("host_storage_type"), "nvme0n1 not rotational");
  EXPECT_EQ(value("host_networking"), "eth0 1000 Mbit/s");
  EXPECT_EQ(value("system_type_detail"), "virtual machine");
  EXPECT_NE(value("hw_notes").get<std::string>().find("governor powersave, microcode 0xa1, power mode pmode:0002"),
            std::string::npos);
  EXPECT_EQ(e["machine"]["power_mode"], "pmode:0002");
  fs::remove_all(root);
}

}  // namespace
}  // namespace ridge::lab
