#include "lab/monitor/perf_counters.h"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/read_file.h"
#include "lab/monitor/recorded.h"

namespace ridge::lab {
namespace {

namespace fs = std::filesystem;

// Descriptors of one set of counters: each CPU, or each thread, takes one for each event, and a process has 1024 of them often.
constexpr size_t kMostFiles = 192;

// "0-3,8": the CPUs of a list as the kernel writes it.
std::vector<int> CpuList(std::string_view text) {
  std::vector<int> out;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t dash = part.find('-');
    const auto first = ToNumber(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : ToNumber(part.substr(dash + 1));
    if (!first || !last || *last > 65535) continue;
    for (int cpu = static_cast<int>(*first); cpu <= static_cast<int>(*last); cpu++) out.push_back(cpu);
  }
  return out;
}

// "event=0x04,umask=0x03" for a controller whose format is event in bits 0-7 and umask in bits 8-15 (all of Intel's are).
std::optional<uint64_t> Config(std::string_view text) {
  uint64_t config = 0;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t equals = part.find("=0x");
    if (equals == std::string_view::npos) return {};
    uint64_t value = 0;
    const std::string_view digits = part.substr(equals + 3);
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value, 16).ptr != digits.data() + digits.size())
      return {};
    const std::string_view key = part.substr(0, equals);
    if (key != "event" && key != "umask") return {};
    config |= key == "event" ? value : value << 8;
  }
  return config;
}

std::string WhyNot(int error) {
  if (error == EACCES || error == EPERM)
    return fmt::format("the kernel refuses (perf_event_paranoid is {}): root may, or CAP_PERFMON",
                       FirstLine("/proc/sys/kernel/perf_event_paranoid"));
  if (error == ENOENT || error == ENODEV || error == EOPNOTSUPP || error == EINVAL)
    return "this processor or virtual machine offers no such counter";
  if (error == EMFILE) return fmt::format("one for each CPU or thread would take more than {} descriptors", kMostFiles);
  if (error == ENOSYS) return "this kernel has no perf_event_open";
  return std::strerror(error);
}

int OpenEvent(const PerfEvent& event, pid_t pid, int cpu, bool user_only) {
  perf_event_attr attr{};
  attr.size = sizeof(attr);
  attr.type = event.type;
  attr.config = event.config;
  attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  attr.inherit = pid > 0 ? 1 : 0;
  attr.exclude_kernel = user_only ? 1 : 0;
  attr.exclude_hv = user_only ? 1 : 0;
  return static_cast<int>(syscall(SYS_perf_event_open, &attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC));
}

std::vector<pid_t> Threads(int64_t pid) {
  std::vector<pid_t> out;
  std::error_code error;
  for (fs::directory_iterator it(fmt::format("/proc/{}/task", pid), error), end; !error && it != end;
       it.increment(error)) {
    if (const auto id = ToNumber(it->path().filename().string())) out.push_back(static_cast<pid_t>(*id));
  }
  return out;
}

}  // namespace

std::vector<PerfEvent> ProcessorEvents() {
  return {{"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, 1, {}},
          {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, 1, {}},
          {"cache_misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES, 1, {}}};
}

std::vector<PerfEvent> MemoryEvents(const std::string& root) {
  std::vector<std::string> devices;
  std::error_code error;
  for (fs::directory_iterator it(root + "/sys/bus/event_source/devices", error), end; !error && it != end;
       it.increment(error))
    devices.push_back(it->path().string());
  std::ranges::sort(devices);
  std::vector<PerfEvent> out;
  // Each controller is a device of its own; servers count accesses of a line of 64 bytes, clients MiB that were moved.
  for (const std::string& device : devices) {
    if (!fs::path(device).filename().string().starts_with("uncore_imc")) continue;
    const auto type = ToNumber(FirstLine(device + "/type"));
    const std::vector<int> cpus = CpuList(FirstLine(device + "/cpumask"));
    if (!type || cpus.empty()) continue;
    for (const auto& [name, files] :
         {std::pair<const char*, std::vector<const char*>>{"memory_read_bytes", {"cas_count_read", "data_read"}},
          {"memory_write_bytes", {"cas_count_write", "data_write"}}}) {
      for (const char* file : files) {
        const auto config = Config(FirstLine(device + "/events/" + file));
        const auto scale = ToNumber(FirstLine(device + "/events/" + std::string(file) + ".scale"));
        const std::string unit = FirstLine(device + "/events/" + std::string(file) + ".unit");
        if (!config || *config == 0) continue;
        const bool mib = unit == "MiB" && scale;
        out.push_back({name, static_cast<uint32_t>(*type), *config, mib ? *scale * 1048576 : 64, cpus});
        break;
      }
    }
  }
  return out;
}

PerfCounters::PerfCounters(std::vector<PerfEvent> events, int64_t pid) {
  size_t opened = 0;
  std::map<std::string, size_t> index;  // events of one name are counted together: several controllers
  for (const PerfEvent& event : events) {
    std::vector<int> files;
    int why = ESRCH;
    const auto open = [&](pid_t who, int cpu, bool user_only) {
      if (opened + files.size() >= kMostFiles) {
        why = EMFILE;
        return false;
      }
      const int fd = OpenEvent(event, who, cpu, user_only);
      if (fd >= 0)
        files.push_back(fd);
      else
        why = errno;
      return fd >= 0;
    };
    bool all = true;
    if (!event.cpus.empty()) {
      for (const int cpu : event.cpus) all = all && open(-1, cpu, false);
    } else if (pid > 0) {
      for (const pid_t thread : Threads(pid)) {
        // Who may not count the kernel may still count its own instructions. A thread may have ended meanwhile.
        if (!open(thread, -1, false) && (why == EACCES || why == EPERM)) open(thread, -1, true);
        all = all && (why == ESRCH || !files.empty());
      }
      all = all && !files.empty();
    } else {
      for (const int cpu : CpuList(FirstLine("/sys/devices/system/cpu/online"))) all = all && open(-1, cpu, false);
    }
    if (!all || files.empty()) {
      for (const int fd : files) close(fd);
      if (std::ranges::find(refused_, event.name, &std::pair<std::string, std::string>::first) == refused_.end())
        refused_.emplace_back(event.name, why == ESRCH ? "the process is not there" : WhyNot(why));
      continue;
    }
    const auto [it, fresh] = index.emplace(event.name, open_.size());
    if (fresh) open_.push_back({event.name, event.scale, {}});
    opened += files.size();
    Open& o = open_[it->second];
    o.files.insert(o.files.end(), files.begin(), files.end());
  }
}

PerfCounters::PerfCounters(PerfCounters&& other) noexcept
    : open_(std::exchange(other.open_, {})), refused_(std::move(other.refused_)) {}

PerfCounters::~PerfCounters() {
  for (const Open& o : open_) {
    for (const int fd : o.files) close(fd);
  }
}

std::vector<PerfCount> PerfCounters::Read() const {
  std::vector<PerfCount> out;
  for (const Open& o : open_) {
    double sum = 0;
    std::string reason;
    bool any = false;
    for (const int fd : o.files) {
      uint64_t said[3] = {};  // count, time enabled, time running
      if (read(fd, said, sizeof(said)) != static_cast<ssize_t>(sizeof(said))) {
        reason = "could not be read";
        continue;
      }
      if (said[1] > 0 && said[2] == 0) {
        reason = "no register was free for it";
        continue;
      }
      any = true;
      if (said[2] > 0)
        sum += static_cast<double>(said[0]) * static_cast<double>(said[1]) / static_cast<double>(said[2]);
    }
    const bool whole = any && reason.empty();
    out.push_back({o.name, whole ? std::optional(sum * o.scale) : std::nullopt, whole ? "" : reason});
  }
  return out;
}

}  // namespace ridge::lab
