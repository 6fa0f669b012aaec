#include "lab/monitor/sampler.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/read_file.h"

namespace ridge::lab {
namespace {

namespace fs = std::filesystem;

double Seconds(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::optional<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  std::string text = ReadRest(file);
  if (file.bad()) return {};
  return text;
}

std::optional<double> ReadNumber(const std::string& path) { return ToNumber(FirstLine(path)); }

// "Name: 123 kB", "name 123": the number after the line's first word.
std::optional<double> Named(std::string_view text, std::string_view name) {
  for (const std::string_view line : Lines(text)) {
    const std::vector<std::string_view> words = Words(line);
    if (words.size() >= 2 && words[0] == name) return ToNumber(words[1]);
  }
  return {};
}

// Entries of a folder whose names begin so, in the order of the numbers that follow.
std::vector<std::string> Entries(const std::string& folder, std::string_view prefix) {
  std::vector<std::pair<std::pair<size_t, std::string>, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(prefix)) found.push_back({{name.size(), name}, it->path().string()});
  }
  std::ranges::sort(found);
  std::vector<std::string> out;
  for (auto& [key, path] : found) out.push_back(std::move(path));
  return out;
}

bool IsCpu(const std::string& path) { return ToNumber(path.substr(path.rfind("cpu") + 3)).has_value(); }

}  // namespace

Sampler::Sampler(SamplerOptions options) : options_(std::move(options)) {
  if (options_.sys_root.ends_with('/')) options_.sys_root.pop_back();
  if (!ReadText(Path("/proc/stat"))) Absent("cpu use", "no /proc/stat");
  for (const std::string& cpu : Entries(Path("/sys/devices/system/cpu"), "cpu")) {
    if (!IsCpu(cpu)) continue;
    if (ReadNumber(cpu + "/cpufreq/scaling_cur_freq")) frequency_files_.push_back(cpu + "/cpufreq/scaling_cur_freq");
    if (ReadNumber(cpu + "/thermal_throttle/core_throttle_count"))
      throttle_files_.push_back(cpu + "/thermal_throttle/core_throttle_count");
  }
  if (frequency_files_.empty()) {
    cpuinfo_mhz_ = ReadText(Path("/proc/cpuinfo")).value_or("").find("cpu MHz") != std::string::npos;
    if (cpuinfo_mhz_)
      Absent("cpu frequency by cpufreq",
             "no cpufreq driver (virtual machine?); cpuN_mhz is what /proc/cpuinfo says, which may never change");
    else
      Absent("cpu frequency", "no cpufreq driver, and /proc/cpuinfo does not tell");
  }
  if (throttle_files_.empty())
    Absent("thermal throttling", "no thermal_throttle counters (Intel only, and not in virtual machines)");
  for (const std::string& zone : Entries(Path("/sys/class/thermal"), "thermal_zone")) {
    if (!FirstLine(zone + "/type").empty()) zones_.push_back(zone);
  }
  if (zones_.empty()) Absent("temperature", "no zones in /sys/class/thermal");
  for (const std::string& zone : Entries(Path("/sys/class/powercap"), "intel-rapl")) {
    if (FirstLine(zone + "/name").empty()) continue;
    if (ReadNumber(zone + "/energy_uj"))
      energy_.push_back(zone);
    else
      Absent("energy of " + FirstLine(zone + "/name"),
             zone.substr(options_.sys_root.size()) + "/energy_uj cannot be read: since Linux 5.10 only root may");
  }
  if (Entries(Path("/sys/class/powercap"), "intel-rapl").empty())
    Absent("cpu energy", "no /sys/class/powercap/intel-rapl*: not offered by this processor or virtual machine");
  for (const char* kind : {"cpu", "memory", "io"}) {
    if (ReadText(Path(fmt::format("/proc/pressure/{}", kind))))
      pressures_.push_back(kind);
    else
      Absent(fmt::format("pressure of {}", kind), "no /proc/pressure: Linux before 4.20, or psi=0");
  }
  const std::string membership = ReadText(Path("/proc/self/cgroup")).value_or("");
  for (const std::string_view line : Lines(membership)) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    // Inside a container the path may name what only the host sees; then its own group is mounted at the top.
    const auto existing = [&](const std::string& top, const char* file) -> std::string {
      for (const std::string& at : {top + path, top}) {
        if (ReadText(Path(at + "/" + file))) return Path(at + "/" + file);
      }
      return {};
    };
    if (controllers.empty() && cgroup_memory_.empty()) {
      cgroup_memory_ = existing("/sys/fs/cgroup", "memory.current");
      cgroup_limit_ = existing("/sys/fs/cgroup", "memory.max");
      cgroup_cpu_ = existing("/sys/fs/cgroup", "cpu.stat");
      cgroup_v2_ = !cgroup_memory_.empty();
    } else if (controllers == "memory") {
      cgroup_memory_ = existing("/sys/fs/cgroup/memory", "memory.usage_in_bytes");
      cgroup_limit_ = existing("/sys/fs/cgroup/memory", "memory.limit_in_bytes");
    } else if (controllers == "cpu" || controllers == "cpu,cpuacct") {
      cgroup_cpu_ = existing("/sys/fs/cgroup/" + std::string(controllers), "cpu.stat");
    }
  }
  if (cgroup_memory_.empty()) Absent("cgroup memory", "no memory controller of this process's cgroup is mounted");
  if (cgroup_cpu_.empty()) Absent("cgroup throttling", "no cpu controller of this process's cgroup is mounted");
  if (options_.pid == 0) Absent("process", "no --pid was given");
  FindGpus();
  FindJetson();
  FindCounters();
}

void Sampler::Absent(const std::string& what, const std::string& reason) { missing_.push_back({what, reason}); }

void Sampler::Rate(Row& row, const std::string& field, std::optional<double> value, double at_s, double scale,
                   double wrap) {
  if (!value) {
    row.Add(field, {}, "could not be read");
    return;
  }
  const auto it = counters_.find(field);
  const Counter now{*value, at_s};
  if (it == counters_.end()) {
    counters_[field] = now;
    row.Add(field, {}, "a rate needs two samples");
    return;
  }
  double change = now.value - it->second.value;
  if (change < 0 && wrap > 0) change += wrap;
  const double seconds = now.at_s - it->second.at_s;
  it->second = now;
  if (change < 0 || seconds <= 0)
    row.Add(field, {}, "the counter started anew");
  else
    row.Add(field, change / seconds * scale);
}

void Sampler::ReadCpu(Row& row, double) {
  const std::string text = ReadText(Path("/proc/stat")).value_or("");
  for (const std::string_view line : Lines(text)) {
    const std::vector<std::string_view> words = Words(line);
    if (words.size() < 9 || !words[0].starts_with("cpu")) continue;
    // cpu user nice system idle iowait irq softirq steal (guest time is already in user): proc(5)
    std::vector<double> ticks;
    for (size_t i = 1; i <= 8; i++) ticks.push_back(ToNumber(words[i]).value_or(0));
    const std::string name(words[0]);
    const auto before = cpu_ticks_.find(name);
    if (before == cpu_ticks_.end()) {
      row.Add(name + "_use_percent", {}, "a rate needs two samples");
      if (name == "cpu") row.Add("cpu_steal_percent", {}, "a rate needs two samples");
    } else {
      double all = 0, idle = 0;
      for (size_t i = 0; i < ticks.size(); i++) all += ticks[i] - before->second[i];
      idle = ticks[3] + ticks[4] - before->second[3] - before->second[4];
      const double steal = ticks[7] - before->second[7];
      const std::optional<double> use =
          all > 0 ? std::optional(std::clamp(100 * (all - idle - steal) / all, 0.0, 100.0)) : std::nullopt;
      row.Add(name + "_use_percent", use, use ? "" : "no tick has passed since the last sample");
      if (name == "cpu")
        row.Add("cpu_steal_percent", all > 0 ? std::optional(std::clamp(100 * steal / all, 0.0, 100.0)) : std::nullopt,
                use ? "" : "no tick has passed since the last sample");
    }
    cpu_ticks_[name] = std::move(ticks);
  }
}

void Sampler::ReadFrequencies(Row& row) {
  for (const std::string& file : frequency_files_) {
    const size_t at = file.find("/cpufreq");
    const std::string name = file.substr(file.rfind('/', at - 1) + 1, at - file.rfind('/', at - 1) - 1);
    const auto khz = ReadNumber(file);
    row.Add(name + "_mhz", khz ? std::optional(*khz / 1000) : std::nullopt, khz ? "" : "could not be read");
  }
  if (!cpuinfo_mhz_) return;
  int n = 0;
  const std::string text = ReadText(Path("/proc/cpuinfo")).value_or("");
  for (const std::string_view line : Lines(text)) {
    if (!line.starts_with("cpu MHz")) continue;
    const std::vector<std::string_view> words = Words(line);
    row.Add(fmt::format("cpu{}_mhz", n++), ToNumber(words.back()));
  }
}

void Sampler::ReadTemperatures(Row& row) {
  for (const std::string& zone : zones_) {
    const auto milli = ReadNumber(zone + "/temp");
    const bool off = milli && *milli <= -256000;
    row.Add("temp_" + FieldName(FirstLine(zone + "/type")) + "_c",
            milli && !off ? std::optional(*milli / 1000) : std::nullopt,
            off     ? "sensor is off"
            : milli ? ""
                    : "could not be read");
  }
}

void Sampler::ReadEnergy(Row& row, double at_s) {
  for (const std::string& zone : energy_) {
    const double wrap = ReadNumber(zone + "/max_energy_range_uj").value_or(0);
    // "intel-rapl:0:1" tells packages apart, whose zones have the same names.
    const std::string id = FieldName(zone.substr(zone.rfind("intel-rapl") + 10));
    Rate(row, "power_" + FieldName(FirstLine(zone + "/name")) + "_" + id + "_w", ReadNumber(zone + "/energy_uj"), at_s,
         1e-6, wrap);
  }
}

void Sampler::ReadMemory(Row& row, double at_s) {
  const std::string info = ReadText(Path("/proc/meminfo")).value_or("");
  const auto mb = [&](const char* name) -> std::optional<double> {
    const auto kb = Named(info, name);
    return kb ? std::optional(*kb / 1024) : std::nullopt;
  };
  const auto add = [&](const char* field, std::optional<double> value) {
    row.Add(field, value, value ? "" : "/proc/meminfo does not say");
  };
  add("mem_total_mb", mb("MemTotal:"));
  add("mem_available_mb", mb("MemAvailable:"));
  const auto swap = mb("SwapTotal:"), free = mb("SwapFree:");
  add("swap_used_mb", swap && free ? std::optional(*swap - *free) : std::nullopt);
  const std::string vm = ReadText(Path("/proc/vmstat")).value_or("");
  Rate(row, "page_faults_per_second", Named(vm, "pgfault"), at_s, 1);
  Rate(row, "major_faults_per_second", Named(vm, "pgmajfault"), at_s, 1);
  Rate(row, "swap_in_pages_per_second", Named(vm, "pswpin"), at_s, 1);
  Rate(row, "swap_out_pages_per_second", Named(vm, "pswpout"), at_s, 1);
}

// "some avg10=… total=MICROSECONDS": the share of time in which some (all) tasks waited.
void Sampler::ReadPressure(Row& row, double at_s) {
  for (const std::string& kind : pressures_) {
    const std::string text = ReadText(Path("/proc/pressure/" + kind)).value_or("");
    for (const std::string_view line : Lines(text)) {
      const size_t total = line.find("total=");
      if (total == std::string_view::npos) continue;
      Rate(row, fmt::format("pressure_{}_{}_percent", kind, Words(line)[0]), ToNumber(line.substr(total + 6)), at_s,
           1e-4);
    }
  }
}

void Sampler::ReadCgroup(Row& row, double at_s) {
  if (!cgroup_memory_.empty()) {
    const auto bytes = ReadNumber(cgroup_memory_);
    row.Add("cgroup_memory_mb", bytes ? std::optional(*bytes / 1048576) : std::nullopt,
            bytes ? "" : "could not be read");
    const std::string limit = FirstLine(cgroup_limit_);
    const auto most = ToNumber(limit);
    const bool none = limit == "max" || (most && *most > 1e18);
    row.Add("cgroup_memory_limit_mb", most && !none ? std::optional(*most / 1048576) : std::nullopt,
            none   ? "no limit"
            : most ? ""
                   : "could not be read");
  }
  if (cgroup_cpu_.empty()) return;
  const std::string stat = ReadText(cgroup_cpu_).value_or("");
  const auto usec = Named(stat, "throttled_usec"), nsec = Named(stat, "throttled_time");
  if (usec || nsec) Rate(row, "cgroup_throttled_percent", usec ? usec : nsec, at_s, usec ? 1e-4 : 1e-7);
}

void Sampler::ReadProcess(Row& row, double at_s) {
  if (options_.pid == 0) return;
  const std::string status = ReadText(Path(fmt::format("/proc/{}/status", options_.pid))).value_or("");
  const auto rss = Named(status, "VmRSS:"), swap = Named(status, "VmSwap:");
  const char* gone = "the process is not there";
  row.Add("process_rss_mb", rss ? std::optional(*rss / 1024) : std::nullopt, rss ? "" : gone);
  row.Add("process_swap_mb", swap ? std::optional(*swap / 1024) : std::nullopt, swap ? "" : gone);
  std::string stat = ReadText(Path(fmt::format("/proc/{}/stat", options_.pid))).value_or("");
  // The second field is a name in parentheses that may hold anything.
  const size_t close = stat.rfind(')');
  const std::vector<std::string_view> f =
      close == std::string::npos ? std::vector<std::string_view>() : Words(std::string_view(stat).substr(close + 1));
  const auto field = [&](size_t number) -> std::optional<double> {  // as proc(5) counts
    return f.size() > number - 3 ? ToNumber(f[number - 3]) : std::nullopt;
  };
  const auto user = field(14), system = field(15);
  Rate(row, "process_cpu_percent", user && system ? std::optional(*user + *system) : std::nullopt, at_s,
       100.0 / static_cast<double>(sysconf(_SC_CLK_TCK)));
  Rate(row, "process_minor_faults_per_second", field(10), at_s, 1);
  Rate(row, "process_major_faults_per_second", field(12), at_s, 1);
}

void Sampler::ReadThrottling(Row& row, double at_s) {
  if (throttle_files_.empty()) return;
  double sum = 0;
  for (const std::string& file : throttle_files_) sum += ReadNumber(file).value_or(0);
  Rate(row, "thermal_throttles_per_second", sum, at_s, 1);
}

Sample Sampler::Read() {
  Sample s;
  s.unix_s = Seconds(CLOCK_REALTIME);
  s.before_s = Seconds(CLOCK_MONOTONIC_RAW);
  // Counters are read at their own moments: between two samples these are equally far apart, to the length of one read.
  const auto now = [] { return Seconds(CLOCK_MONOTONIC_RAW); };
  ReadCpu(s.row, now());
  ReadEnergy(s.row, now());
  ReadPressure(s.row, now());
  ReadProcess(s.row, now());
  ReadMemory(s.row, now());
  ReadCgroup(s.row, now());
  ReadThrottling(s.row, now());
  ReadCounters(s.row, now());
  ReadFrequencies(s.row);
  ReadTemperatures(s.row);
  ReadDevices(s.row, now());
  s.after_s = now();
  return s;
}

}  // namespace ridge::lab
