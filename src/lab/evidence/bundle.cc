#include "lab/evidence/bundle.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_text.h"
#include "lab/evidence/files.h"
#include "lab/evidence/watch.h"
#include "lab/monitor/recorded.h"
#include "lab/monitor/sampler.h"
#include "lab/subjects/subject.h"

namespace ridge::lab {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// As for the roofline (quiet.cc): a quiet machine shows 1-2 % of others and under 0.5 % of steal.
constexpr double kMostOthersPercent = 6, kMostStealPercent = 2;
constexpr double kSampleSeconds = 0.2;
constexpr uint64_t kMostTomlBytes = 1 << 20;

std::string RunName(int64_t number, const char* kind) { return fmt::format("runs/{:04}.{}", number, kind); }

// What is wrong, without the library's name for it: "[json.exception.out_of_range.403] key 'power' not found".
std::string Plain(const Json::exception& e) {
  const std::string text = e.what();
  const size_t end = text.find("] ");
  return text.starts_with('[') && end != std::string::npos ? text.substr(end + 2) : text;
}

// A pipe that someone laid there would be waited for when it is written to.
Status CheckOutput(const std::string& path) {
  std::error_code error;
  const auto kind = fs::symlink_status(path, error).type();
  if (kind == fs::file_type::not_found || kind == fs::file_type::regular) return {};
  return Fail(Code::kInvalidData, "a run's output is no regular file").Where(path).Remedy("take it away");
}

// The highest of the readings whose names begin and end so.
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

}  // namespace

Result<Bundle> Bundle::Create(const std::string& folder, std::string_view toml) {
  Bundle bundle;
  bundle.folder_ = folder;
  RIDGE_ASSIGN_OR_RETURN(bundle.experiment_, ParseExperiment(toml));
  std::error_code error;
  fs::create_directories(folder + "/runs", error);
  if (error) return Fail(Code::kPermissionDenied, "cannot make the folder").Where(folder).Found(error.message());
  const auto there = ReadBeneath(folder, "experiment.toml");
  if (!there && there.error().code != Code::kNotFound) return std::unexpected(there.error());
  if (there && *there != toml)
    return Fail(Code::kAlreadyExists, "the folder holds another experiment")
        .Where(folder)
        .Remedy("give another with -o");
  if (!there) RIDGE_RETURN_IF_ERROR(WriteWhole(folder + "/experiment.toml", toml));
  return bundle;
}

Status Bundle::Begin(std::string_view environment_json, std::string_view roofline_json) const {
  const auto there = ReadBeneath(folder_, "environment.json");
  if (!there && there.error().code != Code::kNotFound) return std::unexpected(there.error());
  // Without a run nothing is bound to a machine yet.
  if (!there || !ExistsBeneath(folder_, RunName(0, "monitor.json"))) {
    if (!roofline_json.empty()) RIDGE_RETURN_IF_ERROR(WriteWhole(folder_ + "/roofline.json", roofline_json));
    return WriteWhole(folder_ + "/environment.json", environment_json);
  }
  // Runs of two machines or builds in one table would change more than the variable.
  const Json before = ParseJsonText<Json>(*there), now = ParseJsonText<Json>(environment_json);
  for (const char* key : {"machine_fingerprint", "ridge"}) {
    const auto of = [&](const Json& j) {
      return j.is_object() && j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : "(none)";
    };
    if (of(before) != of(now))
      return Fail(Code::kInvalidArgument, "the runs that are there were made on another machine or by another build")
          .Where(folder_ + "/environment.json: " + key)
          .Found(of(now))
          .Expected(of(before))
          .Remedy("give another folder with -o");
  }
  return {};
}

Result<Bundle> Bundle::Open(const std::string& folder) {
  Bundle bundle;
  bundle.folder_ = folder;
  RIDGE_ASSIGN_OR_RETURN(const std::string toml, ReadBeneath(folder, "experiment.toml", kMostTomlBytes));
  RIDGE_ASSIGN_OR_RETURN(bundle.experiment_, ParseExperiment(toml));
  return bundle;
}

Result<RunRecord> Bundle::Read(const PlannedRun& run) const {
  RunRecord record;
  const std::string name = RunName(run.number, "monitor.json");
  const auto monitor = ReadBeneath(folder_, name);
  if (!monitor && monitor.error().code == Code::kNotFound) return record;
  if (!monitor) return std::unexpected(monitor.error());
  const Json j = ParseJsonText<Json>(*monitor);
  if (!j.is_object())
    return Fail(Code::kInvalidData, "a run's record is damaged").Where(folder_ + "/" + name).Found("no JSON object");
  const auto number = [&](const char* key) -> std::optional<double> {
    return j.at(key).is_null() ? std::nullopt : std::optional(j.at(key).get<double>());
  };
  try {
    record = {.done = true,
              .seconds = j.at("seconds"),
              .begin_s = j.at("before_s"),
              .end_s = j.at("after_s"),
              .unix_s = j.at("unix_s"),
              .cpu_seconds = number("cpu_seconds"),
              .max_rss_mb = number("max_rss_mb"),
              .disturbed = j.at("disturbed"),
              .temperature = j.at("temperature"),
              .power = j.at("power"),
              .subject = j.at("subject"),
              .missing = j.at("missing")};
    if (j.at("run") != run.number || j.at("block") != run.block || j.at("arm") != run.arm)
      return Fail(Code::kInvalidData, "the record is of another run").Where(folder_ + "/" + name);
    if (!(record.end_s >= record.begin_s) || !std::isfinite(record.unix_s))
      return Fail(Code::kInvalidData, "times that cannot be").Where(folder_ + "/" + name);
  } catch (const Json::exception& e) {
    return Fail(Code::kInvalidData, "a run's record is damaged").Where(folder_ + "/" + name).Found(Plain(e));
  }
  RIDGE_ASSIGN_OR_RETURN(const std::string out, ReadBeneath(folder_, RunName(run.number, "json")));
  const std::string log = ReadBeneath(folder_, RunName(run.number, "log")).value_or("");
  auto output = SubjectOf(experiment_, run).Parse(out, log);
  if (!output) {
    output.error().where = folder_ + "/" + RunName(run.number, "json");
    return std::unexpected(std::move(output).error());
  }
  record.output = std::move(*output);
  if (!record.output.measures.peak_memory_mib) record.output.measures.peak_memory_mib = record.max_rss_mb;
  return record;
}

Status Bundle::Run(const PlannedRun& run) const {
  const Subject& subject = SubjectOf(experiment_, run);
  RIDGE_ASSIGN_OR_RETURN(const std::vector<std::string> command, subject.Command(experiment_, run.arm));
  const std::string out = folder_ + "/" + RunName(run.number, "json"), err = folder_ + "/" + RunName(run.number, "log");
  RIDGE_RETURN_IF_ERROR(CheckOutput(out));
  RIDGE_RETURN_IF_ERROR(CheckOutput(err));
  Sampler sampler({.tools = false});  // the watch has them
  const Sample before = sampler.Read();
  const bool observed = IsObserved(experiment_, run.arm);
  std::optional<Watch> watch;
  if (observed) watch.emplace(WatchOptions{.of_child = true, .interval_s = kSampleSeconds});
  RIDGE_ASSIGN_OR_RETURN(const Usage child, subject.Run(experiment_, run.arm, {out, err}));
  const Sample after = sampler.Read();
  const std::string series = watch ? watch->Stop() : "";
  if (child.status != 0) {
    std::string last;
    if (const auto log = ReadBeneath(folder_, RunName(run.number, "log"))) {
      const std::vector<std::string_view> lines = Lines(*log);
      if (!lines.empty()) last = std::string(lines.back());
    }
    return Fail(Code::kUnavailable, "the subject failed")
        .Where(err)
        .Found(fmt::format("status {}: {}", child.status, last));
  }
  const double seconds = after.before_s - before.after_s;
  std::string disturbed = Disturbed(after, child.cpu_s, seconds, sysconf(_SC_NPROCESSORS_ONLN));
  if (const std::string slowed = watch ? watch->SlowedDown() : ""; !slowed.empty())
    disturbed += (disturbed.empty() ? "" : "; ") + ("the device slowed down: " + slowed);
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
                  {"unix_s", before.unix_s + (before.after_s - before.before_s)},  // at before_s
                  {"seconds", seconds},
                  {"cpu_seconds", child.cpu_s ? Json(*child.cpu_s) : Json(nullptr)},
                  {"max_rss_mb", child.max_rss_mb ? Json(*child.max_rss_mb) : Json(nullptr)},
                  {"disturbed", disturbed},
                  {"temperature", Highest(after, sampler, "temp_", "_c", "temperature", "°C")},
                  {"power", Highest(after, sampler, "power_", "_w", "cpu energy", "W")},
                  {"readings", std::move(fields)},
                  {"missing", std::move(missing)},
                  {"sample_interval_s", watch ? Json(kSampleSeconds) : Json(nullptr)},
                  {"samples", watch ? watch->samples() : 0},
                  {"watch_cpu_seconds", watch ? Json(watch->cpu_seconds()) : Json(nullptr)}};
  if (watch) RIDGE_RETURN_IF_ERROR(WriteWhole(folder_ + "/" + RunName(run.number, "monitor.csv"), series));
  return WriteWhole(folder_ + "/" + RunName(run.number, "monitor.json"),
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

}  // namespace ridge::lab
