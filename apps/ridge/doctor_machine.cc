// ridge doctor: what of this machine is watched for a moment, or matters on few machines only.
#include <dlfcn.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "base/quantity.h"
#include "base/topology.h"
#include "ceilings.h"
#include "doctor_check.h"
#include "lab/diagnose/interventions.h"
#include "lab/monitor/nvml.h"
#include "lab/quiet.h"

namespace ridge::app {
namespace {

namespace fs = std::filesystem;

// "key value" lines, as in /proc/meminfo and /proc/vmstat.
std::map<std::string, double> ReadTable(const char* path) {
  std::map<std::string, double> table;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const size_t end = line.find_first_of(": ");
    const size_t digit = line.find_first_of("0123456789", end);
    if (end == std::string::npos || digit == std::string::npos) continue;
    table[line.substr(0, end)] = std::strtod(line.c_str() + digit, nullptr);
  }
  return table;
}

double Throttles() {
  double sum = 0;
  std::error_code ignored;
  for (const auto& cpu : fs::directory_iterator("/sys/devices/system/cpu", ignored)) {
    std::ifstream file(cpu.path() / "thermal_throttle/core_throttle_count");
    double n = 0;
    if (file >> n) sum += n;
  }
  return sum;
}

bool HasThrottleCounters() {
  std::error_code ignored;
  return fs::exists("/sys/devices/system/cpu/cpu0/thermal_throttle", ignored);
}

// Moments in which a quota held this process's group back.
std::optional<double> QuotaThrottles() {
  for (const char* path :
       {"/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat", "/sys/fs/cgroup/cpu,cpuacct/cpu.stat"}) {
    const auto table = ReadTable(path);
    if (const auto it = table.find("nr_throttled"); it != table.end()) return it->second;
  }
  return std::nullopt;
}

Check CheckSwap() {
  const auto memory = ReadTable("/proc/meminfo");
  if (!memory.contains("SwapTotal")) return {"swap", State::kNotApplicable, "/proc/meminfo does not tell"};
  const double total = memory.at("SwapTotal") / 1048576,
               free = memory.contains("SwapFree") ? memory.at("SwapFree") / 1048576 : 0;
  if (total == 0)
    return {"swap", State::kOk, "there is none, so a model that does not fit is refused and never crawls"};
  const std::string evidence = fmt::format("{:.1f} GiB, {:.1f} used", total, total - free);
  if (total - free > 0.25)
    return {"swap", State::kWarn, evidence,
            "weights in swap cost a disk read per token: free memory (sudo swapoff -a && sudo swapon -a brings pages "
            "back), or use a smaller model"};
  return {"swap", State::kOk, evidence};
}

Check CheckNuma() {
  const std::vector<NumaNode> nodes = ReadNumaNodes(ReadCpuLimits().allowed);
  if (nodes.size() <= 1) return {"numa", State::kOk, "one memory node"};
  return {"numa", State::kWarn, fmt::format("{} memory nodes hold CPUs of this process", nodes.size()),
          "memory of another node is slower: compare --numa distribute and --numa isolate (ridge lab)"};
}

Check CheckVirtual() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("flags") && line.find(" hypervisor") != std::string::npos)
      return {"virtual_machine", State::kOk,
              "this is a virtual machine: clocks, cache sizes and temperatures are what the host tells, and neighbours "
              "show only as steal and spread"};
  }
  return {"virtual_machine", State::kOk, "the processor reports no hypervisor"};
}

Check CheckBlas() {
  void* library = dlopen("libopenblas.so.0", RTLD_LAZY | RTLD_LOCAL);
  if (library != nullptr) dlclose(library);
  const std::string have = library != nullptr ? "OpenBLAS is there for --matmul blas" : "no OpenBLAS is installed";
  return {"blas", State::kNotApplicable,
          have +
              "; Ridge's own kernels multiply quantized weights as they are and need none: BLAS is an experiment "
              "variable here"};
}

Check CheckCuda() {
  if (const auto nvml = lab::Nvml::Load(); nvml && nvml->gpus() > 0) {
    std::string all;
    for (int i = 0; i < nvml->gpus(); i++) {
      const auto capability = nvml->ComputeCapability(i);
      all += fmt::format("{}GPU {}: {}, compute capability {}", i == 0 ? "" : "; ", i, nvml->Name(i),
                         capability ? *capability : "not told");
    }
    return {"cuda_architecture", State::kWarn,
            fmt::format("{}; driver {}; this build has no CUDA kernels", all, nvml->driver()),
            "the GPU stays idle with this build: use a runtime with CUDA for it, built for that compute capability "
            "(CMAKE_CUDA_ARCHITECTURES)"};
  }
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  if (!std::getline(file, line))
    return {"cuda_architecture", State::kNotApplicable,
            "no NVIDIA driver, and this build has no CUDA kernels to compare with a device"};
  return {"cuda_architecture", State::kWarn, line + "; this build has no CUDA kernels",
          "the GPU stays idle with this build: use a runtime with CUDA for it"};
}

Check CheckMemorySpeed(int threads) {
  const Ceilings ceilings = Ceilings::Cached();
  const std::optional<double> ceiling = ceilings.ReadGbps(threads);
  if (!ceiling) return {"memory_speed", State::kNotApplicable, "nothing to compare with: " + ceilings.reason()};
  if (ReadMemory().available_bytes < (uint64_t{3} << 30))
    return {"memory_speed", State::kNotApplicable, "less than 3 GiB are available, which measuring would disturb"};
  const auto now = lab::ReadNow(threads, lab::ReadMachine());
  if (!now) return {"memory_speed", State::kNotApplicable, now.error().Message()};
  const std::string evidence = fmt::format("{:.1f} GB/s now, {:.1f} when the roofline was measured ({})", *now,
                                           *ceiling, Count(threads, "thread"));
  if (*now < 0.85 * *ceiling)
    return {"memory_speed", State::kWarn, evidence,
            "another program or the host uses the bandwidth: ridge monitor shows who is busy; run ridge diagnose again "
            "later"};
  return {"memory_speed", State::kOk, evidence};
}

}  // namespace

std::vector<Check> MachineChecks(int threads) {
  const lab::CpuTimes cpu = lab::ReadCpuTimes();
  const double throttles = Throttles();
  const std::optional<double> quota = QuotaThrottles();
  const auto vm = ReadTable("/proc/vmstat");
  // Something has to run for a quota to bite: all threads compute meanwhile.
  const auto share = lab::PartRates::CpuShare(threads, 0.3);
  const lab::Disturbance seen = lab::Between(cpu, lab::ReadCpuTimes());
  std::vector<Check> checks = {CheckSwap(), CheckNuma(), CheckVirtual()};
  if (!seen.steal_share) {
    checks.push_back({"steal", State::kNotApplicable, "/proc/stat cannot be read"});
  } else if (*seen.steal_share > 0.02) {
    checks.push_back({"steal", State::kWarn, fmt::format("the host took {:.0f} % of the CPUs", 100 * *seen.steal_share),
                      "a host with more machines than CPUs: measure at another time, or ask for dedicated CPUs"});
  } else {
    checks.push_back({"steal", State::kOk, fmt::format("the host took {:.1f} % of the CPUs", 100 * *seen.steal_share)});
  }
  if (share && *share < 0.9) {
    checks.push_back(
        {"cpu_time", State::kWarn,
         fmt::format("{} computing threads got {:.0f} % of their time{}", threads, 100 * *share,
                     seen.others_share.value_or(0) > 0.05
                         ? fmt::format("; other processes used {:.0f} % of the CPUs", 100 * *seen.others_share)
                         : ""),
         "end what else runs, raise the quota, or give fewer threads with -t"});
  } else if (share) {
    checks.push_back({"cpu_time", State::kOk,
                      fmt::format("{} computing threads got {:.0f} % of their time", threads, 100 * *share)});
  } else {
    checks.push_back({"cpu_time", State::kNotApplicable, share.error().Message()});
  }
  if (!HasThrottleCounters()) {
    checks.push_back(
        {"thermal_throttling", State::kNotApplicable, "the kernel counts none here (usual in a virtual machine)"});
  } else if (Throttles() > throttles) {
    checks.push_back({"thermal_throttling", State::kWarn,
                      fmt::format("{:.0f} times while all threads computed for 0.3 s", Throttles() - throttles),
                      "better cooling, a lower power mode, or fewer threads"});
  } else {
    checks.push_back({"thermal_throttling", State::kOk, fmt::format("none just now, {:.0f} since boot", throttles)});
  }
  const std::optional<double> after = QuotaThrottles();
  if (!quota || !after) {
    checks.push_back({"quota_throttling", State::kNotApplicable, "no cgroup counts it"});
  } else if (*after > *quota) {
    checks.push_back({"quota_throttling", State::kWarn, fmt::format("held back {:.0f} times in 0.3 s", *after - *quota),
                      "raise the CPU quota of the container, or give fewer threads with -t"});
  } else {
    checks.push_back({"quota_throttling", State::kOk, "not held back while all threads computed"});
  }
  const auto pages = ReadTable("/proc/vmstat");
  const auto more = [&](const char* key) {
    return pages.contains(key) && vm.contains(key) ? pages.at(key) - vm.at(key) : 0;
  };
  if (more("pswpin") > 0)
    checks.push_back({"swapping", State::kWarn,
                      fmt::format("{:.0f} pages came back from swap in 0.3 s", more("pswpin")),
                      "free memory: what is swapped is read from disk again"});
  else
    checks.push_back({"swapping", State::kOk, "no page came back from swap in 0.3 s"});
  checks.push_back(CheckMemorySpeed(threads));
  checks.push_back(CheckBlas());
  checks.push_back(CheckCuda());
  return checks;
}

}  // namespace ridge::app
