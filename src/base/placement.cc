#include "base/placement.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/topology.h"

namespace ridge {
namespace {

constexpr int kMostCpus = 1 << 16;
constexpr int kInterleave = 3;  // MPOL_INTERLEAVE of set_mempolicy(2): the kernel's header is not installed everywhere

Result<std::vector<int>> ParseMask(const std::string& text) {
  std::string_view digits = text;
  if (digits.starts_with("0x") || digits.starts_with("0X")) digits.remove_prefix(2);
  std::vector<int> cpus;
  bool good = !digits.empty() && digits.size() <= kMostCpus / 4;
  for (size_t i = 0; good && i < digits.size(); i++) {
    const char c = digits[digits.size() - 1 - i];
    int value = 0;
    const auto [end, error] = std::from_chars(&c, &c + 1, value, 16);
    good = error == std::errc() && end == &c + 1;
    for (int bit = 0; good && bit < 4; bit++) {
      if (value >> bit & 1) cpus.push_back(static_cast<int>(4 * i) + bit);
    }
  }
  if (!good || cpus.empty()) {
    return Fail(Code::kUsage, "not a CPU mask")
        .Where("--cpu-mask")
        .Found("\"" + text + "\"")
        .Expected("a hexadecimal number other than 0, in which bit i stands for CPU i");
  }
  return cpus;
}

Result<std::vector<int>> ParseRange(const std::string& text) {
  const auto number = [](std::string_view part) -> std::optional<int> {
    int value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size() || value < 0 || value >= kMostCpus)
      return std::nullopt;
    return value;
  };
  const size_t dash = text.find('-');
  const auto low = number(std::string_view(text).substr(0, dash));
  const auto high = dash == std::string::npos ? std::nullopt : number(std::string_view(text).substr(dash + 1));
  if (!low || !high || *low > *high) {
    return Fail(Code::kUsage, "not a range of CPUs")
        .Where("--cpu-range")
        .Found("\"" + text + "\"")
        .Expected("LO-HI, two CPU numbers");
  }
  std::vector<int> cpus;
  for (int cpu = *low; cpu <= *high; cpu++) cpus.push_back(cpu);
  return cpus;
}

// The node with most of the CPUs, the lowest one of equals; `now` is preferred where it is among them.
int NodeFor(const std::vector<NumaNode>& nodes, int now) {
  int best = 0;
  size_t most = 0;
  for (const NumaNode& node : nodes) {
    if (std::find(node.cpus.begin(), node.cpus.end(), now) != node.cpus.end()) return node.id;
    if (node.cpus.size() > most) best = node.id, most = node.cpus.size();
  }
  return best;
}

}  // namespace

std::string CpuListText(const std::vector<int>& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) end++;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[i]);
    if (end - i > 1) text += fmt::format("-{}", cpus[end - 1]);
    i = end;
  }
  return text;
}

Result<Placement> ResolvePlacement(const PlacementOptions& options, const std::string& sys_root) {
  Placement placement;
  if (!options.cpu_mask.empty() && !options.cpu_range.empty()) {
    return Fail(Code::kUsage, "--cpu-mask and --cpu-range exclude one another");
  }
  const std::vector<int> allowed = ReadCpuLimits(sys_root).allowed;
  const char* flag = options.cpu_mask.empty() ? "--cpu-range" : "--cpu-mask";
  if (!options.cpu_mask.empty()) {
    RIDGE_ASSIGN_OR_RETURN(placement.cpus, ParseMask(options.cpu_mask));
  } else if (!options.cpu_range.empty()) {
    RIDGE_ASSIGN_OR_RETURN(placement.cpus, ParseRange(options.cpu_range));
  }
  for (const int cpu : placement.cpus) {
    if (std::find(allowed.begin(), allowed.end(), cpu) != allowed.end()) continue;
    return Fail(Code::kInvalidArgument, "a CPU that this process may not use")
        .Where(flag)
        .Found(fmt::format("CPU {}", cpu))
        .Expected("some of " + CpuListText(allowed));
  }
  if (!placement.cpus.empty()) placement.cpus_reason = flag;

  if (options.numa == "off") return placement;
  if (options.numa != "distribute" && options.numa != "isolate") {
    return Fail(Code::kUsage, "unknown NUMA mode")
        .Where("--numa")
        .Found("\"" + options.numa + "\"")
        .Expected("off, distribute or isolate");
  }
  placement.numa = options.numa;
  const std::vector<NumaNode> nodes = ReadNumaNodes(placement.cpus.empty() ? allowed : placement.cpus, sys_root);
  if (nodes.size() < 2) {
    placement.numa_reason = "changes nothing: the CPUs that may be used belong to one memory node";
    return placement;
  }
  if (options.numa == "distribute") {
    for (const NumaNode& node : nodes) placement.nodes.push_back(node.id);
    placement.numa_reason = fmt::format("memory is spread over nodes {}, page by page", CpuListText(placement.nodes));
    return placement;
  }
  const int chosen = NodeFor(nodes, sched_getcpu());
  for (const NumaNode& node : nodes) {
    if (node.id == chosen) placement.cpus = node.cpus;
  }
  placement.cpus_reason = fmt::format("--numa isolate: node {}", chosen);
  placement.numa_reason =
      fmt::format("threads stay on node {} of {}, memory is taken where it is first touched", chosen, nodes.size());
  return placement;
}

Status ApplyPlacement(const Placement& placement) {
  if (!placement.cpus.empty()) {
    const int size = placement.cpus.back() + 1;
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(size));
    if (set == nullptr) return Fail(Code::kResourceExhausted, "out of memory");
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(size));
    CPU_ZERO_S(bytes, set);
    for (const int cpu : placement.cpus) CPU_SET_S(static_cast<size_t>(cpu), bytes, set);
    const bool pinned = sched_setaffinity(0, bytes, set) == 0;
    const int reason = errno;
    CPU_FREE(set);
    if (!pinned) {
      return Fail(Code::kPermissionDenied, "the system does not let threads be pinned")
          .Where(placement.cpus_reason)
          .Found(std::strerror(reason))
          .Expected("CPUs " + CpuListText(placement.cpus))
          .Remedy("leave the flag out, or allow sched_setaffinity");
    }
  }
  if (!placement.nodes.empty()) {
    constexpr size_t kBits = 8 * sizeof(unsigned long);
    std::vector<unsigned long> mask(static_cast<size_t>(placement.nodes.back()) / kBits + 1);
    for (const int node : placement.nodes)
      mask[static_cast<size_t>(node) / kBits] |= 1ul << (static_cast<size_t>(node) % kBits);
    // The kernel reads one bit less than it is told.
    if (syscall(SYS_set_mempolicy, kInterleave, mask.data(), mask.size() * kBits + 1) != 0) {
      return Fail(Code::kPermissionDenied, "the system does not let memory be spread over nodes")
          .Where("--numa distribute")
          .Found(std::strerror(errno))
          .Expected("nodes " + CpuListText(placement.nodes))
          .Remedy(
              "allow set_mempolicy (in a container: a seccomp profile with it, or --cap-add SYS_NICE), or leave the "
              "flag out");
    }
  }
  return {};
}

}  // namespace ridge
