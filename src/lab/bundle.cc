#include "lab/bundle.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "lab/recorded.h"
#include "lab/sampler.h"
#include "lab/subjects/subject.h"

namespace ridge::lab {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// As for the roofline (quiet.cc): a quiet machine shows 1-2 % of others and under 0.5 % of steal.
constexpr double kMostOthersPercent = 6, kMostStealPercent = 2;

Result<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Fail(Code::kNotFound, "cannot open the file").Where(path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) return Fail(Code::kInvalidData, "cannot read the file").Where(path);
  return text;
}

Status WriteFile(const std::string& path, std::string_view text) {
  RIDGE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  RIDGE_RETURN_IF_ERROR(file.Write(text));
  return file.Commit();
}

std::string RunPath(const std::string& folder, int64_t number, const char* kind) {
  return fmt::format("{}/runs/{:04}.{}", folder, number, kind);
}

// The longest of the readings whose names begin and end so.
std::string Highest(const Sample& sample, const Sampler& sampler, std::string_view begin, std::string_view end,
                    std::string_view what, std::string_view unit) {
  std::optional<double> most;
  for (const Field& f : sample.row.fields) {
    if (f.value && f.name.starts_with(begin) && f.name.ends_with(end))
      most = std::max(most.value_or(*f.value), *f.value);
  }
  if (most) return fmt::format("{:.1f} {}", *most, unit);
  for (const Missing& m : sampler.missing()) {
    if (m.what == what) return m.reason;
  }
  return "could not be read";
}

std::string Disturbed(const Sample& after, std::optional<double> cpu_s, double wall_s, long cpus) {
  const auto value = [&](const char* name) -> std::optional<double> {
    const Field* f = after.row.Find(name);
    return f == nullptr ? std::nullopt : f->value;
  };
  std::string why;
  const auto add = [&](const std::string& text) { why += (why.empty() ? "" : "; ") + text; };
  // Of a subject that runs elsewhere it is not known what is its own.
  if (const auto use = value("cpu_use_percent"); use && cpu_s) {
    const double others = *use - 100 * *cpu_s / (wall_s * static_cast<double>(cpus));
    if (others > kMostOthersPercent) add(fmt::format("other work took {:.0f} % of the CPUs", others));
  }
  if (const auto steal = value("cpu_steal_percent"); steal && *steal > kMostStealPercent)
    add(fmt::format("the host took {:.0f} %", *steal));
  if (const auto swap = value("swap_in_pages_per_second"); swap && *swap > 0) add("pages came back from swap");
  if (const auto hot = value("thermal_throttles_per_second"); hot && *hot > 0) add("the processor throttled");
  if (const auto quota = value("cgroup_throttled_percent"); quota && *quota > 0) add("the cgroup's quota held it back");
  return why;
}

std::string Hash(std::string_view text) { return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size())); }

}  // namespace

Result<Bundle> Bundle::Create(const std::string& folder, std::string_view toml) {
  Bundle bundle;
  bundle.folder_ = folder;
  RIDGE_ASSIGN_OR_RETURN(bundle.experiment_, ParseExperiment(toml));
  std::error_code error;
  fs::create_directories(folder + "/runs", error);
  if (error) return Fail(Code::kPermissionDenied, "cannot make the folder").Where(folder).Found(error.message());
  if (const auto there = ReadFile(folder + "/experiment.toml"); there && *there != toml)
    return Fail(Code::kAlreadyExists, "the folder holds another experiment")
        .Where(folder)
        .Remedy("give another with -o");
  RIDGE_RETURN_IF_ERROR(WriteFile(folder + "/experiment.toml", toml));
  return bundle;
}

Result<Bundle> Bundle::Open(const std::string& folder) {
  Bundle bundle;
  bundle.folder_ = folder;
  RIDGE_ASSIGN_OR_RETURN(const std::string toml, ReadFile(folder + "/experiment.toml"));
  RIDGE_ASSIGN_OR_RETURN(bundle.experiment_, ParseExperiment(toml));
  return bundle;
}

Result<RunRecord> Bundle::Read(const PlannedRun& run) const {
  RunRecord record;
  const auto monitor = ReadFile(RunPath(folder_, run.number, "monitor.json"));
  if (!monitor) return record;
  const Json j = Json::parse(*monitor, nullptr, false);
  const auto number = [&](const char* key) -> std::optional<double> {
    return j.at(key).is_null() ? std::nullopt : std::optional(j.at(key).get<double>());
  };
  try {
    record = {.done = true,
              .seconds = j.at("seconds"),
              .cpu_seconds = number("cpu_seconds"),
              .max_rss_mb = number("max_rss_mb"),
              .disturbed = j.at("disturbed"),
              .temperature = j.at("temperature"),
              .power = j.at("power")};
  } catch (const Json::exception& e) {
    return Fail(Code::kInvalidData, "a run's record is damaged")
        .Where(RunPath(folder_, run.number, "monitor.json"))
        .Found(e.what());
  }
  RIDGE_ASSIGN_OR_RETURN(const std::string out, ReadFile(RunPath(folder_, run.number, "json")));
  const std::string log = ReadFile(RunPath(folder_, run.number, "log")).value_or("");
  auto output = SubjectOf(experiment_, run).Parse(out, log);
  if (!output) {
    output.error().where = RunPath(folder_, run.number, "json");
    return std::unexpected(std::move(output).error());
  }
  record.output = std::move(*output);
  if (!record.output.measures.peak_memory_mib) record.output.measures.peak_memory_mib = record.max_rss_mb;
  return record;
}

Status Bundle::Run(const PlannedRun& run) const {
  const Subject& subject = SubjectOf(experiment_, run);
  RIDGE_ASSIGN_OR_RETURN(const std::vector<std::string> command, subject.Command(experiment_, run.arm));
  const std::string out = RunPath(folder_, run.number, "json"), err = RunPath(folder_, run.number, "log");
  Sampler sampler(SamplerOptions{});
  const Sample before = sampler.Read();
  RIDGE_ASSIGN_OR_RETURN(const Usage child, subject.Run(experiment_, run.arm, {out, err}));
  const Sample after = sampler.Read();
  if (child.status != 0) {
    std::string last;
    if (const auto log = ReadFile(err)) {
      const std::vector<std::string_view> lines = Lines(*log);
      if (!lines.empty()) last = std::string(lines.back());
    }
    return Fail(Code::kUnavailable, "the subject failed")
        .Where(err)
        .Found(fmt::format("status {}: {}", child.status, last));
  }
  const double seconds = after.before_s - before.after_s;
  Json fields = Json::object();
  for (const Field& f : after.row.fields) fields[f.name] = f.value ? Json(*f.value) : Json(nullptr);
  Json missing = Json::object();
  for (const Missing& m : sampler.missing()) missing[m.what] = m.reason;
  const Json j = {{"run", run.number},
                  {"block", run.block},
                  {"arm", run.arm},
                  {"subject", subject.name()},
                  {"command", command},
                  {"before_s", before.after_s},
                  {"after_s", after.before_s},
                  {"unix_s", before.unix_s},
                  {"seconds", seconds},
                  {"cpu_seconds", child.cpu_s ? Json(*child.cpu_s) : Json(nullptr)},
                  {"max_rss_mb", child.max_rss_mb ? Json(*child.max_rss_mb) : Json(nullptr)},
                  {"disturbed", Disturbed(after, child.cpu_s, seconds, sysconf(_SC_NPROCESSORS_ONLN))},
                  {"temperature", Highest(after, sampler, "temp_", "_c", "temperature", "°C")},
                  {"power", Highest(after, sampler, "power_", "_w", "cpu energy", "W")},
                  {"readings", std::move(fields)},
                  {"missing", std::move(missing)}};
  return WriteFile(RunPath(folder_, run.number, "monitor.json"),
                   j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Result<std::vector<RunSample>> Bundle::Samples() const {
  std::vector<RunSample> samples;
  for (const PlannedRun& run : PlanRuns(experiment_)) {
    RIDGE_ASSIGN_OR_RETURN(const RunRecord record, Read(run));
    if (!record.done) continue;
    for (const Measured& m : record.output.tests)
      samples.push_back(
          {run.number, run.block, run.arm, m.test, m.value, m.unit, m.higher_is_better, record.disturbed});
  }
  return samples;
}

Status Bundle::Seal(std::string_view environment_json) const {
  RIDGE_RETURN_IF_ERROR(WriteFile(folder_ + "/environment.json", environment_json));
  RIDGE_ASSIGN_OR_RETURN(const std::vector<RunSample> samples, Samples());
  RIDGE_RETURN_IF_ERROR(WriteFile(folder_ + "/samples.csv", SamplesCsv(samples)));
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    if (it->is_regular_file(error)) names.push_back(it->path().lexically_relative(folder_).string());
  }
  if (error) return Fail(Code::kUnavailable, "cannot list the folder").Where(folder_).Found(error.message());
  std::ranges::sort(names);
  std::string manifest;
  for (const std::string& name : names) {
    if (name == "MANIFEST" || name.starts_with("report")) continue;
    RIDGE_ASSIGN_OR_RETURN(const std::string text, ReadFile(folder_ + "/" + name));
    manifest += fmt::format("{} {} {}\n", Hash(text), text.size(), name);
  }
  return WriteFile(folder_ + "/MANIFEST", manifest + "xxh3-64 of the lines above: " + Hash(manifest) + "\n");
}

Result<std::vector<std::string>> CheckBundle(const std::string& folder) {
  std::vector<std::string> problems;
  RIDGE_ASSIGN_OR_RETURN(const std::string manifest, ReadFile(folder + "/MANIFEST"));
  std::map<std::string, std::string> listed;
  std::string above;
  bool ended = false;
  for (const std::string_view line : Lines(manifest)) {
    if (line.starts_with("xxh3-64 of the lines above: ")) {
      ended = line.substr(28) == Hash(above);
      continue;
    }
    if (ended) ended = false;  // lines after the end
    above += std::string(line) + "\n";
    const std::vector<std::string_view> words = Words(line);
    if (words.size() == 3)
      listed[std::string(words[2])] = std::string(words[0]);
    else
      problems.push_back("MANIFEST: a line that names no file");
  }
  if (!ended) problems.push_back("MANIFEST: its own checksum does not fit");
  for (const auto& [name, hash] : listed) {
    const auto text = ReadFile(folder + "/" + name);
    if (!text)
      problems.push_back(name + ": is missing");
    else if (Hash(*text) != hash)
      problems.push_back(name + ": differs from what was sealed");
  }
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().lexically_relative(folder).string();
    if (it->is_regular_file(error) && name != "MANIFEST" && !name.starts_with("report") && !listed.contains(name))
      problems.push_back(name + ": is not in the manifest");
  }
  const auto bundle = Bundle::Open(folder);
  if (!bundle) {
    problems.push_back("experiment.toml: " + bundle.error().Message());
    return problems;
  }
  const auto samples = bundle->Samples();
  const auto kept = ReadFile(folder + "/samples.csv");
  if (!samples)
    problems.push_back("runs: " + samples.error().Message());
  else if (!kept || SamplesCsv(*samples) != *kept)
    problems.push_back("samples.csv: does not follow from the raw runs");
  const size_t runs = PlanRuns(bundle->experiment()).size();
  size_t done = 0;
  for (const PlannedRun& run : PlanRuns(bundle->experiment())) {
    const auto record = bundle->Read(run);
    done += record && record->done;
  }
  if (done < runs) problems.push_back(fmt::format("{} of {} runs were made", done, runs));
  return problems;
}

Result<std::string> ReportMarkdown(const Bundle& bundle, std::string_view hardware) {
  const Experiment& e = bundle.experiment();
  RIDGE_ASSIGN_OR_RETURN(const std::vector<RunSample> samples, bundle.Samples());
  if (samples.empty() && e.not_run.empty())
    return Fail(Code::kInvalidData, "the bundle holds no run").Where(bundle.folder());
  std::map<size_t, RunRecord> last;  // of each arm
  std::map<size_t, double> memory;
  std::map<size_t, std::string> log;
  for (const PlannedRun& run : PlanRuns(e)) {
    RIDGE_ASSIGN_OR_RETURN(RunRecord record, bundle.Read(run));
    if (!record.done) continue;
    memory[run.arm] = std::max(memory[run.arm], record.max_rss_mb.value_or(0));
    if (!log.contains(run.arm)) log[run.arm] = fmt::format("runs/{:04}.log", run.number);
    last[run.arm] = std::move(record);
  }
  const std::vector<Finding> findings = Analyse(e, samples);
  std::string text = fmt::format("# {}\n\n", e.name);
  if (!e.question.empty()) text += e.question + "\n\n";
  for (const auto& [value, reason] : e.not_run) text += fmt::format("Not run: {} = {}: {}\n", e.flag, value, reason);
  if (samples.empty()) return text;
  if (!e.not_run.empty()) text += "\n";
  text +=
      "| 硬件 | 模型 | 变量 | 参数值 | 测试 | 首 token | tokens/s | 峰值内存 | 温度/功耗 | 质量备注 | 日志 "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const Finding& f : findings) {
    const RunRecord& r = last[f.arm];
    const auto model = r.output.resolved.find("model_filename");
    text += fmt::format(
        "| {} | {} | {} | {}{} | {} | not measured by bench | {} | {:.0f} MB | {} / {} | not judged: ridge kld | "
        "{} |\n",
        hardware, model == r.output.resolved.end() ? "" : fs::path(model->second).filename().string(), e.flag, f.value,
        f.arm == 1 ? " (A/A)" : "", f.test, f.median ? fmt::format("{:.2f}", *f.median) : "- (no quiet block)",
        memory[f.arm], r.temperature, r.power, log[f.arm]);
  }
  text += fmt::format(
      "\n## Effect of {}\n\nSpeed over that with {} = {}, by block; {} blocks of {} runs, each order followed by its "
      "reverse.\n\n",
      e.flag, e.flag, e.values[0], e.blocks, 2 * Arms(e));
  text += "| test | " + e.flag + " | ratio | interval | blocks | left out | verdict |\n|---|---|---|---|---|---|---|\n";
  for (const Finding& f : findings) {
    if (f.arm == 0) continue;
    text += fmt::format(
        "| {} | {} | {} | {} | {} | {} | {} |\n", f.test, f.value, f.ratio ? fmt::format("{:.3f}", *f.ratio) : "-",
        f.low ? fmt::format("{:.3f} to {:.3f} ({:.0f} %)", *f.low, *f.high, 100 * f.confidence) : "-", f.blocks,
        f.left_out,
        f.arm == 1 ? fmt::format("A/A: differences up to {:.1f} % mean nothing here", 100 * std::expm1(f.floor))
                   : f.verdict);
  }
  std::map<std::string, int64_t> why;
  for (const RunSample& s : samples) {
    if (!s.disturbed.empty()) why[s.disturbed]++;
  }
  if (!why.empty()) text += "\nDisturbances, each of which leaves its whole block out:\n\n";
  for (const auto& [reason, n] : why) text += fmt::format("- {} ({} samples)\n", reason, n);
  text += "\n## What was seen\n\n";
  for (const Finding& f : findings) {
    if (f.arm < 2) continue;
    text +=
        fmt::format("- On {}, {}: {} = {} against {}: {}", hardware, f.test, e.flag, f.value, e.values[0], f.verdict);
    if (f.ratio && (f.verdict == "faster" || f.verdict == "slower"))
      text += fmt::format(", {:.3f} times the speed", *f.ratio);
    text += ".\n";
  }
  text +=
      "\nThe quality of the outputs was not judged, and which bottleneck moved was not tested; `ridge bench` tells "
      "what bounds each run (`bound` in runs/*.json).\n";
  return text;
}

}  // namespace ridge::lab
