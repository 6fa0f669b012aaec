// ridge monitor: samples this machine while something runs, or reads what other tools recorded.
#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include "base/quantity.h"
#include "base/read_file.h"
#include "commands.h"
#include "interrupt.h"
#include "lab/monitor/power.h"
#include "lab/monitor/recorded.h"
#include "lab/monitor/sampler.h"
#include "lab/statistics.h"
#include "model_options.h"
#include "text_table.h"

namespace ridge::app {
namespace {

struct Options {
  int64_t interval_ms = 1000, count = 0, pid = 0;
  std::string csv, from, format;
};

Json FieldsJson(const lab::Row& row) {
  Json fields = Json::object();
  for (const lab::Field& f : row.fields)
    fields[f.name] = f.value ? Json(*f.value) : f.reason.empty() ? Json(f.text) : Json(nullptr);
  return fields;
}

Json ReasonsJson(const lab::Row& row) {
  Json reasons = Json::object();
  for (const lab::Field& f : row.fields) {
    if (!f.value && !f.reason.empty()) reasons[f.name] = f.reason;
  }
  return reasons;
}

std::string Number(double v) {
  return v == std::round(v) && std::abs(v) < 1e9 ? fmt::format("{:.0f}", v) : fmt::format("{:.4g}", v);
}

// ---- recorded elsewhere

std::string Summary(const lab::Recorded& log) {
  struct Column {
    std::vector<double> values;
    std::map<std::string, int64_t> reasons;
    std::string text;
  };
  std::vector<std::string> names;
  std::map<std::string, Column> columns;
  std::map<std::string, int64_t> unknown;
  for (const lab::Row& row : log.rows) {
    for (const lab::Field& f : row.fields) {
      if (!columns.contains(f.name)) names.push_back(f.name);
      Column& c = columns[f.name];
      if (f.value)
        c.values.push_back(*f.value);
      else if (!f.reason.empty())
        c.reasons[f.reason]++;
      else
        c.text = f.text;
    }
    for (const std::string& u : row.unknown) unknown[u]++;
  }
  std::string text = fmt::format("{}: {}", lab::Name(log.kind), Count(log.rows.size(), "sample"));
  if (log.other_lines > 0) text += fmt::format(", {} other lines", log.other_lines);
  if (!log.rows.front().time.empty())
    text += fmt::format(", {} to {}", Printable(log.rows.front().time), Printable(log.rows.back().time));
  TextTable table({{"reading"}, {"values", true}, {"least", true}, {"median", true}, {"most", true}, {"missing"}});
  for (const std::string& name : names) {
    const Column& c = columns[name];
    std::string missing;
    for (const auto& [reason, n] : c.reasons)
      missing += fmt::format("{}{} x {}", missing.empty() ? "" : ", ", n, reason);
    if (c.values.empty()) {
      table.Row({Printable(name), "0", "", Printable(c.text, TerminalColumns(40)), "", Printable(missing)});
      continue;
    }
    table.Row({Printable(name), std::to_string(c.values.size()), Number(*std::ranges::min_element(c.values)),
               Number(lab::Median(c.values)), Number(*std::ranges::max_element(c.values)), Printable(missing)});
  }
  text += "\n\n" + table.Text();
  for (const auto& [token, n] : unknown)
    text += fmt::format("not known, kept as it is: {} ({} x)\n", Printable(token), n);
  return text;
}

Result<std::string> ReadLog(const std::string& path) {
  const ReadOptions options{.what = "the log", .most_bytes = uint64_t{1} << 30, .pipes = true};
  return path == "-" ? ReadDescriptor(STDIN_FILENO, "stdin", options) : ReadFile(path, options);
}

Fail CannotWrite(const std::string& path) {
  return Fail(Code::kUnavailable, "cannot write the file")
      .Where(path)
      .Found(errno != 0 ? std::strerror(errno) : "an error while writing");
}

// Of --csv, which begins anew.
Status CheckCsv(const std::string& path) {
  if (path.empty() || path == "-") return {};
  return CheckReplaces(path, "CSV of ridge monitor", {"unix_s,before_s,after_s", "line,time"});
}

Status WriteCsv(const std::string& path, const std::string& text, Output& out) {
  if (path == "-") return out.Write(text);
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file) return CannotWrite(path);
  return {};
}

Status FromLog(const Options& o, Output& out) {
  std::optional<lab::LogKind> kind;
  if (!o.format.empty()) {
    RIDGE_ASSIGN_OR_RETURN(kind, lab::ParseLogKind(o.format));
  }
  RIDGE_ASSIGN_OR_RETURN(const std::string text, ReadLog(o.from));
  auto log = lab::ParseRecorded(text, kind);
  if (!log) {
    log.error().where = o.from;
    return std::unexpected(std::move(log).error());
  }
  if (out.json) {
    Json rows = Json::array();
    for (const lab::Row& row : log->rows)
      rows.push_back({{"line", row.line},
                      {"time", row.time.empty() ? Json(nullptr) : Json(row.time)},
                      {"fields", FieldsJson(row)},
                      {"reasons", ReasonsJson(row)},
                      {"unknown", row.unknown}});
    return out.Document(
        {{"kind", lab::Name(log->kind)}, {"samples", std::move(rows)}, {"other_lines", log->other_lines}});
  }
  if (!o.csv.empty()) return WriteCsv(o.csv, lab::RecordedCsv(*log), out);
  return out.Write(Summary(*log));
}

// ---- this machine

std::string LiveView(const lab::Sample& s, const std::vector<lab::Missing>& missing, int64_t number) {
  std::string text = fmt::format("\033[H\033[Jridge monitor, sample {}\n\n", number);
  TextTable table({{"reading"}, {"value", true}});
  for (const lab::Field& f : s.row.fields) table.Row({f.name, f.value ? Number(*f.value) : "- (" + f.reason + ")"});
  text += table.Text() + "\n";
  for (const lab::Missing& m : missing) text += fmt::format("no {}: {}\n", m.what, m.reason);
  return text;
}

double OwnCpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Lines of a CSV whose columns are those of the first sample.
class LiveCsv {
 public:
  std::string Line(const lab::Sample& s) {
    std::string text;
    if (columns_.empty()) {
      text = "unix_s,before_s,after_s";
      for (const lab::Field& f : s.row.fields) columns_.push_back(f.name), text += "," + lab::CsvCell(f.name);
      text += "\n";
    }
    text += fmt::format("{:.6f},{:.6f},{:.6f}", s.unix_s, s.before_s, s.after_s);
    size_t found = 0;
    for (const std::string& name : columns_) {
      const lab::Field* f = s.row.Find(name);
      found += f != nullptr;
      text += f != nullptr && f->value ? fmt::format(",{}", *f->value) : ",";
    }
    if (found < s.row.fields.size() && !told_) {
      told_ = true;
      Note("this machine offers more readings than at the first sample (a CPU came up?): they have no column");
    }
    return text + "\n";
  }

 private:
  std::vector<std::string> columns_;
  bool told_ = false;
};

Status Live(const Options& o, Output& out) {
  if (o.interval_ms < 10 || o.interval_ms > 3600000)
    return Fail(Code::kUsage, "wrong value")
        .Where("--interval")
        .Found(std::to_string(o.interval_ms))
        .Expected("10 to 3600000 ms");
  if (o.count < 0)
    return Fail(Code::kUsage, "wrong value")
        .Where("--count")
        .Found(std::to_string(o.count))
        .Expected("0 (until interrupted) or more");
  if (o.pid < 0)
    return Fail(Code::kUsage, "wrong value")
        .Where("--pid")
        .Found(std::to_string(o.pid))
        .Expected("the number of a process");
  if (std::error_code error; o.pid > 0 && !std::filesystem::exists(fmt::format("/proc/{}", o.pid), error))
    return Fail(Code::kNotFound, "there is no such process")
        .Where("--pid")
        .Found(std::to_string(o.pid))
        .Remedy("ps -e lists those that there are");
  if (out.json && o.count == 0) return Fail(Code::kUsage, "--json gives one document at the end: give --count too");
  const bool view = !out.json && o.csv.empty() && isatty(STDOUT_FILENO) != 0;
  std::optional<std::ofstream> file;
  if (!o.csv.empty() && o.csv != "-") {
    errno = 0;
    file.emplace(o.csv, std::ios::binary | std::ios::trunc);
    if (!*file) return CannotWrite(o.csv);
  }
  Interrupt interrupt(out.json);
  interrupt.Count();
  lab::Sampler sampler({.pid = o.pid, .interval_s = static_cast<double>(o.interval_ms) * 1e-3});
  if (!view && !out.json) {
    for (const lab::Missing& m : sampler.missing()) Note(fmt::format("no {}: {}", m.what, m.reason));
  }
  const lab::PowerModes modes = lab::ReadPowerModes();
  if (!view && !out.json)
    Note(modes.current.empty()
             ? "no power mode: " + modes.reason
             : fmt::format("power mode: {}{}", modes.nvpmodel ? "nvpmodel " : "governor ", modes.current));
  LiveCsv csv;
  Json samples = Json::array();
  const double cpu = OwnCpuSeconds();
  double first_s = 0, last_s = 0;
  int64_t n = 0, late = 0;
  bool ended = false;  // the process of --pid
  timespec due{};
  clock_gettime(CLOCK_MONOTONIC, &due);
  while (interrupt.count() == 0) {
    const lab::Sample s = sampler.Read();
    if (const lab::Field* f = s.row.Find("process_rss_mb"); !ended && !view && f != nullptr && !f->value) {
      ended = true;
      Note(fmt::format("no process_* from sample {} on: {}", n + 1, f->reason));
    }
    if (n++ == 0) first_s = s.before_s;
    last_s = s.after_s;
    if (out.json)
      samples.push_back({{"unix_s", s.unix_s},
                         {"before_s", s.before_s},
                         {"after_s", s.after_s},
                         {"fields", FieldsJson(s.row)},
                         {"reasons", ReasonsJson(s.row)}});
    else if (view)
      RIDGE_RETURN_IF_ERROR(out.Write(LiveView(s, sampler.missing(), n)));
    else if (!file)
      RIDGE_RETURN_IF_ERROR(out.Write(csv.Line(s)));
    if (file) {
      const std::string line = csv.Line(s);
      errno = 0;
      if (!(*file << line << std::flush)) return CannotWrite(o.csv);
    }
    if (!out.json) RIDGE_RETURN_IF_ERROR(out.Flush());
    if (o.count > 0 && n >= o.count) break;
    due.tv_nsec += o.interval_ms % 1000 * 1000000;
    due.tv_sec += o.interval_ms / 1000 + due.tv_nsec / 1000000000;
    due.tv_nsec %= 1000000000;
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec > due.tv_sec || (now.tv_sec == due.tv_sec && now.tv_nsec > due.tv_nsec)) late++, due = now;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, nullptr);
  }
  const double own = last_s > first_s ? 100 * (OwnCpuSeconds() - cpu) / (last_s - first_s) : 0;
  if (out.json) {
    Json missing = Json::array();
    for (const lab::Missing& m : sampler.missing()) missing.push_back({{"what", m.what}, {"reason", m.reason}});
    return out.Document(
        {{"samples", std::move(samples)},
         {"missing", std::move(missing)},
         {"power_mode",
          {{"current", modes.current.empty() ? Json(nullptr) : Json(modes.current)},
           {"from", modes.current.empty() ? Json(nullptr) : Json(modes.nvpmodel ? "nvpmodel" : "cpufreq governor")},
           {"reason", !modes.current.empty() ? Json(nullptr)
                      : modes.reason.empty() ? Json("it does not tell")
                                             : Json(modes.reason)}}},
         {"interval_ms", o.interval_ms},
         {"late_samples", late},
         {"observer_cpu_percent", n > 1 ? Json(own) : Json(nullptr)}});
  }
  if (n > 1) Note(fmt::format("{}, {} late; watching took {:.2f} % of one CPU", Count(n, "sample"), late, own));
  return {};
}

Status Monitor(const Options& o, Output& out) {
  RIDGE_RETURN_IF_ERROR(CheckCsv(o.csv));
  if (!o.from.empty()) return FromLog(o, out);
  if (!o.format.empty()) return Fail(Code::kUsage, "--format says what --from reads: give --from FILE too");
  return Live(o, out);
}

}  // namespace

void AddMonitor(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<Options>();
  CLI::App* app =
      AddSubcommand(root, "monitor", "sample this machine while something runs, or read what other tools recorded",
                    "ridge monitor --interval 500 --csv run.csv\n  ridge monitor --from tegrastats.log --json");
  app->add_option("--interval", o->interval_ms, "milliseconds between two samples")->capture_default_str();
  app->add_option("--count", o->count, "samples to take (0: until interrupted)");
  app->add_option("--pid", o->pid, "tell memory, page faults and CPU time of this process too");
  app->add_option("--csv", o->csv, "write CSV there (-: stdout, as where stdout is no terminal)");
  app->add_option(
      "--from", o->from,
      "read a log instead (-: stdin): tegrastats (JetPack 4 to 7), nvidia-smi dmon, llama-bench (md, csv, json, "
      "jsonl, sql), llama-server, vLLM, SGLang or Ollama; a summary, or all of it with --csv or --json");
  app->add_option("--format", o->format,
                  "what --from is, where it should not be found out: tegrastats, dmon, llama-bench, llama-server, "
                  "vllm, sglang, ollama");
  app->footer(app->get_footer() +
              "\n\nWhat this machine does not offer is named with the reason (on stderr, in the view, in `missing`), "
              "never filled in.");
  invocation.Bind(app, [o](Output& out) { return Monitor(*o, out); });
}

}  // namespace ridge::app
