// The CPUs and the memory this process is allowed to use, which is not what the machine has: affinity, cgroup v1 and v2
// limits, SMT.
//
//   const CpuBudget budget = ResolveThreads(asked);  // {2, "2 physical cores"}, {1, "cgroup quota of 1.50 CPUs (…)"}
//   const MemoryBudget memory = ReadMemory();        // memory.allowed_bytes, memory.reason
//
// Guarantees: `run`, `serve`, `bench` and `doctor` get the same numbers because all of them ask here. Every figure
// comes with its reason. Nothing fails: what cannot be read is absent. `sys_root` is prefixed to /proc and /sys so that
// tests feed fake trees. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ridge {

struct CpuBudget {
  int threads = 1;      // at least 1
  std::string reason;   // why this number: flag, cores, SMT, quota
  std::string warning;  // empty, or one line for stderr: an asked number above what the process may use
  bool asked = false;   // the flag's number
  bool quota = false;   // a cgroup quota holds here: time is rationed, so timings say little
};

// `asked` is the flag's value; absent or below 1 means automatic: the smaller of physical cores in the affinity mask
// and the quota.
CpuBudget ResolveThreads(std::optional<int> asked, const std::string& sys_root = "/");

struct CpuLimits {
  std::vector<int> allowed;     // CPU numbers in the affinity mask, ascending
  int machine_cpus = 0;         // CPUs online in the machine; 0 if unknown
  int physical_cores = 0;       // cores that hold at least one allowed CPU
  std::optional<double> quota;  // CPUs, the strictest limit from our cgroup up to the root
  std::string quota_source;     // "/sys/fs/cgroup/a/cpu.max: 150000 100000"
};
CpuLimits ReadCpuLimits(const std::string& sys_root = "/");

struct NumaNode {
  int id = 0;
  std::vector<int> cpus;  // those of the given CPUs that belong to it, ascending
};
// Memory nodes that hold at least one of the CPUs. Empty if the kernel knows none.
std::vector<NumaNode> ReadNumaNodes(const std::vector<int>& cpus, const std::string& sys_root = "/");

struct MemoryBudget {
  uint64_t machine_bytes = 0;           // MemTotal; 0 if unknown
  uint64_t available_bytes = 0;         // MemAvailable, of the machine
  std::optional<uint64_t> limit_bytes;  // the strictest cgroup limit; absent if none
  std::string limit_source;             // "/sys/fs/cgroup/memory.max: 1073741824"
  uint64_t allowed_bytes = 0;           // the smaller of machine_bytes and limit_bytes; 0 if neither is known
  std::string reason;
};
MemoryBudget ReadMemory(const std::string& sys_root = "/");

struct HugePages {
  std::string thp;  // "always", "madvise", "never"; empty if the kernel has no transparent huge pages
  std::string thp_defrag;
  uint64_t size_bytes = 0;      // of one transparent huge page
  uint64_t reserved_total = 0;  // pages set aside by the administrator (vm.nr_hugepages)
  uint64_t reserved_free = 0;
};
HugePages ReadHugePages(const std::string& sys_root = "/");

}  // namespace ridge
