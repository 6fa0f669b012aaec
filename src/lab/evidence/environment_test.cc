#include "lab/evidence/environment.h"

#include "lab/evidence/memory_modules.h"

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

// A memory device of an SMBIOS table, with two texts behind it.
std::string Module(unsigned size, unsigned type, unsigned speed, unsigned extended) {
  std::string area(0x28, '\0');
  area[0] = 17, area[1] = 0x28;
  const auto put = [&](size_t at, unsigned value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) area[at + i] = static_cast<char>(value >> (8 * i));
  };
  put(0x0c, size, 2), put(0x12, type, 1), put(0x15, speed, 2), put(0x1c, extended, 4);
  return area + "DIMM 0" + std::string(1, '\0') + "maker" + std::string(2, '\0');
}

TEST(Environment, MemoryModulesOfTheFirmwaresTable) {
  std::string bios("\x00\x06\x00\x00\x01\x02", 6);
  bios += std::string(2, '\0');  // without texts
  const std::string end("\x7f\x04\xfe\xff\x00\x00", 6);
  EXPECT_EQ(
      MemoryModules(bios + Module(0x7fff, 0x1a, 3200, 65536) + Module(0, 0x1a, 0, 0) + Module(512, 2, 0xffff, 0) + end),
      "1 x 512 MiB memory, 1 x 64 GiB DDR4 3200 MT/s");
  EXPECT_EQ(MemoryModules(bios + end + Module(0x4000, 0x22, 4800, 0)), "");  // nothing is read behind the end
  EXPECT_EQ(MemoryModules(Module(0xffff, 0x22, 4800, 0)), "");               // of a size that is not known
  // Cut anywhere: what is whole is told, and no byte behind is read.
  const std::string two = Module(0x4000, 0x22, 4800, 0) + Module(0x2000, 0x22, 4800, 0);
  for (size_t n = 0; n <= two.size(); n++) {
    const std::string cut(two.begin(), two.begin() + static_cast<ptrdiff_t>(n));
    const std::string said = MemoryModules(cut);
    EXPECT_EQ(said.find("8 GiB") != std::string::npos, n >= two.size() - 14) << n;
  }
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
  put("sys/firmware/dmi/tables/DMI", Module(0x4000, 0x22, 4800, 0) + Module(0x4000, 0x22, 4800, 0));
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
  EXPECT_EQ(value("host_memory_configuration"), "2 x 16 GiB DDR5 4800 MT/s");
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
