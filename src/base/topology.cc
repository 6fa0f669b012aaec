#include "base/topology.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

#include "base/quantity.h"

namespace ridge {
namespace {

std::optional<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return std::nullopt;
  std::string out = text.str();
  while (!out.empty() && (out.back() == '\n' || out.back() == ' ')) out.pop_back();
  return out;
}

template <class T>
std::optional<T> ParseNumber(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <class T>
std::optional<T> ReadNumber(const std::string& path) {
  const auto text = ReadText(path);
  return text ? ParseNumber<T>(*text) : std::nullopt;
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    if (end != 0) parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

std::string Root(const std::string& sys_root) {
  std::string root = sys_root;
  while (!root.empty() && root.back() == '/') root.pop_back();
  return root;
}

// The kernel's list format: "0-3,8,10-11".
std::vector<int> ParseCpuList(std::string_view text) {
  constexpr int kMaxCpu = 1 << 16;
  std::set<int> cpus;
  for (const std::string& part : Split(text, ',')) {
    const size_t dash = part.find('-');
    const auto first = ParseNumber<int>(part.substr(0, dash));
    const auto last = dash == std::string::npos ? first : ParseNumber<int>(part.substr(dash + 1));
    if (!first || !last || *first < 0 || *last >= kMaxCpu) continue;
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.insert(cpu);
  }
  return {cpus.begin(), cpus.end()};
}

std::vector<int> AffinityOfThisThread() {
  // The kernel refuses a set smaller than its own mask, so the size grows until it is accepted.
  for (int size = 1024; size <= (1 << 20); size *= 4) {
    cpu_set_t* set = CPU_ALLOC(size);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(size);
    CPU_ZERO_S(bytes, set);
    std::vector<int> cpus;
    const bool read = sched_getaffinity(0, bytes, set) == 0;
    for (int cpu = 0; read && cpu < size; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (read) return cpus;
  }
  return {};
}

std::vector<int> AllowedCpus(const std::string& root) {
  if (root.empty()) {
    if (std::vector<int> cpus = AffinityOfThisThread(); !cpus.empty()) return cpus;
  }
  if (const auto status = ReadText(root + "/proc/self/status")) {
    for (const std::string& line : Split(*status, '\n')) {
      constexpr std::string_view kKey = "Cpus_allowed_list:";
      if (!line.starts_with(kKey)) continue;
      const size_t begin = line.find_first_not_of(" \t", kKey.size());
      if (begin != std::string::npos) return ParseCpuList(std::string_view(line).substr(begin));
    }
  }
  if (const auto online = ReadText(root + "/sys/devices/system/cpu/online")) return ParseCpuList(*online);
  return {};
}

// One mounted cgroup hierarchy and our place in it.
struct Hierarchy {
  bool unified = false;  // v2
  std::string mount;     // path without sys_root, "/sys/fs/cgroup"
  std::string place;     // our cgroup below the mount, "" or "/a/b"
};

bool HasWord(const std::string& list, std::string_view word) {
  const auto words = Split(list, ',');
  return std::find(words.begin(), words.end(), word) != words.end();
}

// A bind mount shows only a part of the hierarchy: `shown` is the cgroup its mount point stands for.
std::string Below(const std::string& cgroup, const std::string& shown) {
  if (shown == "/" || shown.empty()) return cgroup == "/" ? "" : cgroup;
  if (cgroup == shown) return "";
  if (cgroup.starts_with(shown + "/")) return cgroup.substr(shown.size());
  return "";  // outside of what is shown: the mount point itself is the nearest thing visible
}

// Where the limits of `controller` ("cpu", "memory") stand: v2, and v1 where that hierarchy carries the controller.
std::vector<Hierarchy> FindHierarchies(const std::string& root, std::string_view controller) {
  std::string v1_cgroup = "/";
  std::string v2_cgroup = "/";
  if (const auto text = ReadText(root + "/proc/self/cgroup")) {
    for (const std::string& line : Split(*text, '\n')) {  // "4:cpu,cpuacct:/a" or "0::/a"
      const size_t first = line.find(':');
      const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
      if (second == std::string::npos) continue;
      const std::string controllers = line.substr(first + 1, second - first - 1);
      if (controllers.empty()) v2_cgroup = line.substr(second + 1);
      if (HasWord(controllers, controller)) v1_cgroup = line.substr(second + 1);
    }
  }
  std::vector<Hierarchy> found;
  if (const auto text = ReadText(root + "/proc/self/mountinfo")) {
    for (const std::string& line : Split(*text, '\n')) {
      // "36 35 98:0 /root /mount options optional… - type source super-options", proc_pid_mountinfo(5)
      const size_t dash = line.find(" - ");
      if (dash == std::string::npos) continue;
      const auto front = Split(std::string_view(line).substr(0, dash), ' ');
      const auto back = Split(std::string_view(line).substr(dash + 3), ' ');
      if (front.size() < 5 || back.size() < 3) continue;
      if (back[0] == "cgroup2") found.push_back({true, front[4], Below(v2_cgroup, front[3])});
      if (back[0] == "cgroup" && HasWord(back[2], controller)) {
        found.push_back({false, front[4], Below(v1_cgroup, front[3])});
      }
    }
  }
  if (found.empty()) {  // no mountinfo: the usual places
    found.push_back({true, "/sys/fs/cgroup", Below(v2_cgroup, "/")});
    found.push_back({false, fmt::format("/sys/fs/cgroup/{}", controller), Below(v1_cgroup, "/")});
  }
  return found;
}

// Calls look(folder) for our cgroup and each one above it, up to the mount point: a parent may be stricter than its
// child.
template <class Function>
void ForEachLevel(const Hierarchy& hierarchy, Function look) {
  std::string place = hierarchy.place;
  while (true) {
    look(hierarchy.mount + place);
    if (place.empty()) return;
    place.resize(place.rfind('/') == std::string::npos ? 0 : place.rfind('/'));
  }
}

struct Quota {
  double cpus = 0;
  std::string source;
};

std::optional<Quota> QuotaAt(const std::string& root, const std::string& folder, bool unified) {
  std::optional<int64_t> quota_us;
  std::optional<int64_t> period_us;
  std::string source;
  if (unified) {
    source = folder + "/cpu.max";
    const auto text = ReadText(root + source);
    if (!text) return std::nullopt;
    const auto words = Split(*text, ' ');
    if (words.empty()) return std::nullopt;
    quota_us = ParseNumber<int64_t>(words[0]);  // "max" is no number: no limit
    period_us = words.size() > 1 ? ParseNumber<int64_t>(words[1]) : 100000;
  } else {
    source = folder + "/cpu.cfs_quota_us";
    quota_us = ReadNumber<int64_t>(root + source);
    period_us = ReadNumber<int64_t>(root + folder + "/cpu.cfs_period_us");
  }
  if (!quota_us || !period_us || *quota_us <= 0 || *period_us <= 0) return std::nullopt;  // v1 writes -1 for no limit
  return Quota{static_cast<double>(*quota_us) / static_cast<double>(*period_us),
               fmt::format("{}: {} of {} us", source, *quota_us, *period_us)};
}

int PhysicalCores(const std::string& root, const std::vector<int>& cpus) {
  std::set<std::string> cores;
  for (int cpu : cpus) {
    const std::string folder = fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/", root, cpu);
    auto siblings = ReadText(folder + "core_cpus_list");
    if (!siblings) siblings = ReadText(folder + "thread_siblings_list");  // kernels before 5.3
    cores.insert(siblings ? *siblings : fmt::format("cpu{}", cpu));
  }
  return static_cast<int>(cores.size());
}

std::string Mib(uint64_t bytes) { return fmt::format("{} MiB", bytes >> 20); }

}  // namespace

CpuLimits ReadCpuLimits(const std::string& sys_root) {
  const std::string root = Root(sys_root);
  CpuLimits limits;
  limits.allowed = AllowedCpus(root);
  limits.physical_cores = PhysicalCores(root, limits.allowed);
  if (const auto online = ReadText(root + "/sys/devices/system/cpu/online")) {
    limits.machine_cpus = static_cast<int>(ParseCpuList(*online).size());
  }
  for (const Hierarchy& hierarchy : FindHierarchies(root, "cpu")) {
    ForEachLevel(hierarchy, [&](const std::string& folder) {
      const auto quota = QuotaAt(root, folder, hierarchy.unified);
      if (!quota || (limits.quota && *limits.quota <= quota->cpus)) return;
      limits.quota = quota->cpus;
      limits.quota_source = quota->source;
    });
  }
  return limits;
}

CpuBudget ResolveThreads(std::optional<int> asked, const std::string& sys_root) {
  const CpuLimits limits = ReadCpuLimits(sys_root);
  const int cpus = std::max(1, static_cast<int>(limits.allowed.size()));
  const int cores = std::clamp(limits.physical_cores, 1, cpus);
  const std::string of_machine =
      limits.machine_cpus > cpus ? fmt::format(", affinity allows {} of {} CPUs", cpus, limits.machine_cpus) : "";
  CpuBudget budget;
  budget.quota = limits.quota.has_value() && *limits.quota < cpus;
  budget.threads = cores;
  budget.reason = fmt::format("{} physical core{}{}{}", cores, cores == 1 ? "" : "s",
                              cpus > cores ? fmt::format(" of {} with SMT", Count(cpus, "CPU")) : "", of_machine);
  std::string quota_text;
  int quota_threads = cpus;
  if (limits.quota) {
    quota_text = fmt::format("cgroup quota of {:.2f} CPUs ({})", *limits.quota, limits.quota_source);
    // A thread beyond the quota is stopped for the rest of each period, and every barrier waits for it: so fractions
    // round down.
    quota_threads = static_cast<int>(std::clamp(std::floor(*limits.quota), 1.0, static_cast<double>(cpus)));
  }
  if (quota_threads < cores) {
    budget.threads = quota_threads;
    budget.reason = fmt::format("{}, rounded {}; {} physical core{}{}", quota_text,
                                *limits.quota < 1 ? "up to 1" : "down", cores, cores == 1 ? "" : "s", of_machine);
  }
  if (!asked || *asked < 1) return budget;
  const int usable = std::min(quota_threads, cpus);
  if (*asked > usable) {
    budget.warning = fmt::format(
        "{} asked for, but this process may use {} ({}): expect it to be slower than -t {}", Count(*asked, "thread"),
        usable, quota_threads < cpus ? quota_text : fmt::format("{}{}", Count(cpus, "CPU"), of_machine),
        budget.threads);
  }
  budget.reason = fmt::format("asked for; automatic would be {} ({})", budget.threads, budget.reason);
  budget.threads = *asked;
  budget.asked = true;
  return budget;
}

std::vector<NumaNode> ReadNumaNodes(const std::vector<int>& cpus, const std::string& sys_root) {
  const std::string folder = Root(sys_root) + "/sys/devices/system/node/";
  std::vector<NumaNode> nodes;
  for (const int id : ParseCpuList(ReadText(folder + "online").value_or(""))) {
    NumaNode node{.id = id, .cpus = {}};
    for (const int cpu : ParseCpuList(ReadText(fmt::format("{}node{}/cpulist", folder, id)).value_or(""))) {
      if (std::find(cpus.begin(), cpus.end(), cpu) != cpus.end()) node.cpus.push_back(cpu);
    }
    if (!node.cpus.empty()) nodes.push_back(std::move(node));
  }
  return nodes;
}

MemoryBudget ReadMemory(const std::string& sys_root) {
  const std::string root = Root(sys_root);
  MemoryBudget memory;
  if (const auto text = ReadText(root + "/proc/meminfo")) {
    for (const std::string& line : Split(*text, '\n')) {  // "MemTotal:       24689092 kB"
      const auto words = Split(line, ' ');
      if (words.size() < 2) continue;
      const auto kib = ParseNumber<uint64_t>(words[1]);
      if (!kib || *kib > (UINT64_MAX >> 10)) continue;
      if (words[0] == "MemTotal:") memory.machine_bytes = *kib << 10;
      if (words[0] == "MemAvailable:") memory.available_bytes = *kib << 10;
    }
  }
  for (const Hierarchy& hierarchy : FindHierarchies(root, "memory")) {
    ForEachLevel(hierarchy, [&](const std::string& folder) {
      const std::string source = folder + (hierarchy.unified ? "/memory.max" : "/memory.limit_in_bytes");
      const auto bytes = ReadNumber<uint64_t>(root + source);
      // v1 writes "no limit" as the largest multiple of the page size below 2^63.
      if (!bytes || *bytes >= (uint64_t{1} << 62) || (memory.limit_bytes && *memory.limit_bytes <= *bytes)) return;
      memory.limit_bytes = bytes;
      memory.limit_source = fmt::format("{}: {}", source, *bytes);
    });
  }
  memory.allowed_bytes = memory.machine_bytes;
  memory.reason = memory.machine_bytes > 0 ? fmt::format("{} in the machine", Mib(memory.machine_bytes)) : "unknown";
  if (memory.limit_bytes && (memory.machine_bytes == 0 || *memory.limit_bytes < memory.machine_bytes)) {
    memory.allowed_bytes = *memory.limit_bytes;
    memory.reason = fmt::format("cgroup limit of {} ({})", Mib(*memory.limit_bytes), memory.limit_source);
  }
  return memory;
}

HugePages ReadHugePages(const std::string& sys_root) {
  const std::string root = Root(sys_root);
  const std::string thp = root + "/sys/kernel/mm/transparent_hugepage/";
  // "always [madvise] never": the chosen word stands in brackets.
  const auto chosen = [](const std::optional<std::string>& text) -> std::string {
    const size_t begin = text ? text->find('[') : std::string::npos;
    const size_t end = begin == std::string::npos ? begin : text->find(']', begin);
    return end == std::string::npos ? "" : text->substr(begin + 1, end - begin - 1);
  };
  HugePages pages;
  pages.thp = chosen(ReadText(thp + "enabled"));
  pages.thp_defrag = chosen(ReadText(thp + "defrag"));
  pages.size_bytes = ReadNumber<uint64_t>(thp + "hpage_pmd_size").value_or(0);
  if (const auto text = ReadText(root + "/proc/meminfo")) {
    for (const std::string& line : Split(*text, '\n')) {
      const auto words = Split(line, ' ');
      if (words.size() < 2) continue;
      if (words[0] == "HugePages_Total:") pages.reserved_total = ParseNumber<uint64_t>(words[1]).value_or(0);
      if (words[0] == "HugePages_Free:") pages.reserved_free = ParseNumber<uint64_t>(words[1]).value_or(0);
    }
  }
  return pages;
}

}  // namespace ridge
