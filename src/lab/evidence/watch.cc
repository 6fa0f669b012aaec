#include "lab/evidence/watch.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>

namespace ridge::lab {
namespace {

std::vector<std::string_view> Cells(std::string_view line) {
  std::vector<std::string_view> cells;
  while (true) {
    const size_t comma = line.find(',');
    cells.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

// Of this process, whichever of its threads has started it, and no tool of the sampler; 0: none, or the kernel does not tell (CONFIG_PROC_CHILDREN).
int64_t FirstChild(const std::vector<int>& tools) {
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/task", error), end; !error && it != end;
       it.increment(error)) {
    std::ifstream file(it->path() / "children");
    for (int64_t pid = 0; file >> pid;) {
      if (std::ranges::find(tools, pid) == tools.end()) return pid;
    }
  }
  return 0;
}

}  // namespace

Watch::Watch(WatchOptions options) : options_(std::move(options)), thread_([this] { Loop(); }) {}

Watch::~Watch() { (void)Stop(); }

void Watch::Loop() {
  Sampler sampler({.pid = options_.pid, .sys_root = options_.sys_root, .interval_s = options_.interval_s});
  bool looking = options_.of_child;
  const auto begin = std::chrono::steady_clock::now();
  // The first sample in any case: it may be over before this thread has begun.
  for (int64_t n = 1;; n++) {
    if (looking) {
      if (const int64_t child = FirstChild(sampler.tools()); child > 0) {
        sampler.Follow(child);
        looking = false;
      }
    }
    samples_.push_back(sampler.Read());
    const auto next = begin + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                  std::chrono::duration<double>(options_.interval_s * static_cast<double>(n)));
    std::unique_lock lock(mutex_);
    if (wake_.wait_until(lock, next, [this] { return stop_; })) break;
  }
  // The end has a sample too, so that even a short run has rates.
  samples_.push_back(sampler.Read());
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  cpu_s_ = static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

std::string Watch::Stop() {
  if (!thread_.joinable()) return {};
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  return SeriesCsv(samples_);
}

std::string Watch::SlowedDown() const { return lab::SlowedDown(samples_); }

std::string SlowedDown(const std::vector<Sample>& samples) {
  std::map<std::string, bool> seen;
  for (const Sample& s : samples) {
    for (const Field& f : s.row.fields) {
      if (!f.value || *f.value <= 0) continue;
      const size_t at = f.name.find('_');
      const std::string_view whose = std::string_view(f.name).substr(0, at),
                             what = std::string_view(f.name).substr(at + 1);
      // A cap on power is the mode that was chosen; these are not.
      if (whose.starts_with("gpu") &&
          (what == "hw_slowdown" || what == "sw_thermal" || what == "hw_thermal" || what == "power_brake"))
        seen[fmt::format("GPU {}: {}", whose.substr(3), what)] = true;
      if (whose.starts_with("oc") && what == "events_per_second") seen[fmt::format("{} events", whose)] = true;
    }
  }
  std::string text;
  for (const auto& [one, yes] : seen) text += (text.empty() ? "" : ", ") + one;
  return text;
}

std::string SeriesCsv(const std::vector<Sample>& samples) {
  std::map<std::string, size_t> column;
  std::vector<std::string> names;
  for (const Sample& s : samples) {
    for (const Field& f : s.row.fields) {
      if (column.emplace(f.name, names.size()).second) names.push_back(f.name);
    }
  }
  std::string text = "before_s,after_s,unix_s";
  for (const std::string& name : names) text += "," + FieldName(name);
  text += "\n";
  for (const Sample& s : samples) {
    std::vector<std::string> cells(names.size());
    for (const Field& f : s.row.fields) {
      if (f.value) cells[column[f.name]] = fmt::format("{:.6g}", *f.value);
    }
    text += fmt::format("{:.6f},{:.6f},{:.6f}", s.before_s, s.after_s, s.unix_s);
    for (const std::string& cell : cells) text += "," + cell;
    text += "\n";
  }
  return text;
}

std::optional<size_t> Series::Find(std::string_view name) const {
  const auto it = std::ranges::find(names, name);
  if (it == names.end()) return std::nullopt;
  return static_cast<size_t>(it - names.begin());
}

Result<Series> ParseSeries(std::string_view csv) {
  Series series;
  const auto bad = [](size_t line, std::string what) {
    return Fail(Code::kInvalidData, std::move(what)).Where(fmt::format("line {}", line));
  };
  size_t number = 0;
  for (const std::string_view line : Lines(csv)) {
    number++;
    const std::vector<std::string_view> cells = Cells(line);
    if (number == 1) {
      if (cells.size() < 3 || cells[0] != "before_s" || cells[1] != "after_s" || cells[2] != "unix_s")
        return bad(1, "no time series of the lab");
      for (size_t i = 3; i < cells.size(); i++) series.names.emplace_back(cells[i]);
      continue;
    }
    if (cells.size() != series.names.size() + 3) return bad(number, "a line with another number of cells");
    const auto before = ToNumber(cells[0]), after = ToNumber(cells[1]), unix_s = ToNumber(cells[2]);
    if (!before || !after || !unix_s) return bad(number, "a time that is no number");
    Series::Point point{*before, *after, *unix_s, {}};
    for (size_t i = 3; i < cells.size(); i++) {
      const auto value = ToNumber(cells[i]);
      if (!value && !cells[i].empty()) return bad(number, "a cell that is no number");
      point.values.push_back(value);
    }
    series.points.push_back(std::move(point));
  }
  if (number == 0) return bad(1, "an empty time series");
  return series;
}

}  // namespace ridge::lab
