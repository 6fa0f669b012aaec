#include "lab/machine.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/cpu.h"
#include "base/read_file.h"
#include "base/topology.h"

namespace ridge::lab {
namespace {

constexpr uint64_t kDefaultL2 = 512 << 10, kDefaultL3 = 32 << 20;
constexpr int kSchema = 1;  // of what is stored under a fingerprint, and of how it is measured

// "1024K" -> 1048576; 0 for what is not a size.
uint64_t ParseSize(const std::string& text) {
  char* end = nullptr;
  const uint64_t value = std::strtoull(text.c_str(), &end, 10);
  if (end == text.c_str()) return 0;
  return value << (*end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0);
}

// The caches of the CPUs, each counted once however many CPUs share it.
void ReadCaches(const std::string& root, const CpuLimits& limits, Machine& machine) {
  std::set<std::string> seen;
  for (int cpu : limits.allowed) {
    for (int index = 0; index < 10; index++) {
      const std::string folder = fmt::format("{}sys/devices/system/cpu/cpu{}/cache/index{}/", root, cpu, index);
      const std::string level = FirstLine(folder + "level");
      if (level.empty()) break;
      const uint64_t size = ParseSize(FirstLine(folder + "size"));
      if (level == "2") machine.l2_bytes = std::max(machine.l2_bytes, size);
      if (level == "3" && seen.insert(FirstLine(folder + "shared_cpu_list")).second) machine.l3_bytes += size;
    }
  }
  if (machine.l2_bytes == 0) machine.l2_bytes = kDefaultL2;
  if (machine.l3_bytes == 0) machine.l3_bytes = kDefaultL3;
}

}  // namespace

Machine ReadMachine(const std::string& sys_root) {
  const std::string root = sys_root.ends_with('/') ? sys_root : sys_root + "/";
  const CpuLimits limits = ReadCpuLimits(sys_root);
  Machine machine;
  machine.cpu = Cpu().model;
  machine.features = Cpu().Summary();
  machine.cpus = std::max(1, static_cast<int>(limits.allowed.size()));
  machine.cores = std::max(1, limits.physical_cores);
  ReadCaches(root, limits, machine);
  machine.memory_gib = (ReadMemory(sys_root).allowed_bytes + (uint64_t{1} << 29)) >> 30;
  machine.huge_pages = ReadHugePages(sys_root).thp;
  return machine;
}

std::string Fingerprint(const Machine& m, std::string_view build) {
  const std::string text = fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", kSchema, m.cpu, m.features, m.cpus, m.cores,
                                       m.l2_bytes, m.l3_bytes, m.memory_gib, m.huge_pages, build);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace ridge::lab
