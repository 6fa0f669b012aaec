#include "lab/evidence/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "lab/evidence/environment.h"
#include "lab/evidence/files.h"
#include "lab/roofline/roofline_json.h"
#include "lab/statistics.h"

namespace ridge::lab {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::optional<double> Number(const Json& row, const char* key) {
  if (!row.contains(key) || !row[key].is_number()) return std::nullopt;
  return row[key].get<double>();
}

std::string String(const Json& row, const char* key) {
  return row.contains(key) && row[key].is_string() ? row[key].get<std::string>() : "";
}

// Of a program that answers and tells what bounds its decoding in the account of each answer: the bound of most, the median of the shares.
std::vector<Ceiling> CeilingsOfAnswers(const Json& document, const RunOutput& output) {
  const auto decode = std::ranges::find(output.tests, "decode", &Measured::test);
  if (!document.contains("requests") || !document["requests"].is_array() || decode == output.tests.end() ||
      !(decode->value > 0))
    return {};
  Ceiling c{.test = decode->test, .seconds = 1 / decode->value, .tokens = 1};
  std::map<std::string, size_t> votes;
  std::vector<double> shares;
  bool told = false;
  for (const Json& request : document["requests"]) {
    if (!request.is_object() || !request.contains("timings") || !request["timings"].is_object()) continue;
    const Json& timings = request["timings"];
    if (!timings.contains("bound")) continue;
    told = true;
    const std::string bound = String(timings, "bound");
    const auto share = Number(timings, "ceiling_share");
    if (!bound.empty() && share)
      votes[bound]++, shares.push_back(*share);
    else if (c.reason.empty())
      c.reason = String(timings, "ceiling_reason");
  }
  if (!told) return {};
  if (!votes.empty()) {
    c.bound = std::ranges::max_element(votes, {}, [](const auto& v) { return v.second; })->first;
    c.share = Median(shares);
    c.floor_s = *c.share * c.seconds;
    c.reason.clear();
  } else if (c.reason.empty()) {
    c.reason = "the answers are too short";
  }
  return {c};
}

std::vector<Ceiling> CeilingsOf(const std::string& stdout_text, const RunOutput& output) {
  const Json rows = ParseJsonText<Json>(stdout_text);
  if (rows.is_object()) return CeilingsOfAnswers(rows, output);
  std::vector<Ceiling> out;
  if (!rows.is_array() || rows.size() != output.tests.size()) return out;
  for (size_t i = 0; i < rows.size(); i++) {
    const Json& row = rows[i];
    const auto tokens = row.is_object()
                            ? std::optional(Number(row, "n_prompt").value_or(0) + Number(row, "n_gen").value_or(0))
                            : std::nullopt;
    const double speed = output.tests[i].value;
    if (!tokens || !(*tokens > 0) || !(speed > 0)) return {};
    out.push_back({.test = output.tests[i].test,
                   .seconds = *tokens / speed,
                   .tokens = *tokens,
                   .bytes = Number(row, "ceiling_bytes").value_or(0),
                   .flops = Number(row, "ceiling_flops").value_or(0),
                   .memory_s = Number(row, "ceiling_memory_s"),
                   .unpack_s = Number(row, "ceiling_unpack_s"),
                   .arithmetic_s = Number(row, "ceiling_arithmetic_s"),
                   .kernels_s = Number(row, "ceiling_kernels_s"),
                   .bound = String(row, "bound"),
                   .share = Number(row, "ceiling_share"),
                   .reason = String(row, "ceiling_reason")});
    if (out.back().bound.empty() && out.back().reason.empty())
      out.back().reason = "the subject does not tell what bounds it";
  }
  return out;
}

}  // namespace

std::optional<double> Ceiling::Largest() const {
  if (!memory_s || !unpack_s || !arithmetic_s) return floor_s;
  return std::max({*memory_s, *unpack_s, *arithmetic_s});
}

Result<BundleEvidence> ReadEvidence(const Bundle& bundle) {
  BundleEvidence e{.folder = bundle.folder(), .experiment = bundle.experiment()};
  if (auto text = ReadBeneath(e.folder, "environment.json")) {
    e.environment_json = std::move(*text);
    auto hardware = HardwareOf(e.environment_json);
    if (hardware)
      e.hardware = std::move(*hardware);
    else
      e.no_hardware = hardware.error().Message();
  } else {
    e.no_hardware = text.error().what;
  }
  if (const auto text = ReadBeneath(e.folder, "roofline.json"); !text) {
    e.no_roofline = "no roofline of this machine and build was kept when the runs were made: ridge roofline leaves one";
  } else if (auto roofline = FromJson(ParseJsonText<Json>(*text)); roofline) {
    e.roofline = std::move(*roofline);
  } else {
    e.no_roofline = roofline.error().Message();
  }
  for (const std::string& name : ListBeneath(e.folder).value_or(Listing{}).files) {
    if (!name.starts_with("recorded/")) continue;
    e.recorded_name = name.substr(9);
    if (const auto text = ReadBeneath(e.folder, name); !text)
      e.no_recorded = text.error().Message();
    else if (auto log = ParseRecorded(*text); log)
      e.recorded = std::move(*log);
    else
      e.no_recorded = log.error().Message();
    break;
  }
  const std::vector<PlannedRun> plan = PlanRuns(e.experiment);
  e.planned = plan.size();
  for (const PlannedRun& planned : plan) {
    EvidenceRun run{.plan = planned};
    RIDGE_ASSIGN_OR_RETURN(run.record, bundle.Read(planned));
    if (!run.record.done) continue;
    run.log = fmt::format("runs/{:04}.log", planned.number);
    run.out = fmt::format("runs/{:04}.json", planned.number);
    RIDGE_ASSIGN_OR_RETURN(const std::string out, ReadBeneath(e.folder, run.out));
    if (const auto log = ReadBeneath(e.folder, run.log)) run.log_there = true, run.log_empty = log->empty();
    run.spans = SpansOf(run.record.begin_s, run.record.end_s, out);
    run.requests = RequestsOf(run.record.begin_s, run.record.end_s, out);
    run.steps = StepsOf(run.record.begin_s, run.record.end_s, out);
    run.ceilings = CeilingsOf(out, run.record.output);
    const auto csv = ReadBeneath(e.folder, fmt::format("runs/{:04}.monitor.csv", planned.number));
    if (!csv) {
      run.no_series = csv.error().Message();
    } else if (auto series = ParseSeries(*csv); series) {
      run.series = std::move(*series);
    } else {
      run.no_series = series.error().Message();
    }
    e.runs.push_back(std::move(run));
  }
  RIDGE_ASSIGN_OR_RETURN(e.samples, bundle.Samples());
  e.findings = Analyse(e.experiment, e.samples);
  return e;
}

Result<std::vector<std::string>> FindBundles(const std::string& path) {
  if (ExistsBeneath(path, "experiment.toml")) return std::vector<std::string>{path};
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (fs::is_directory(it->symlink_status()) && ExistsBeneath(it->path().string(), "experiment.toml"))
      found.push_back(it->path().string());
  }
  std::ranges::sort(found);
  if (found.empty())
    return Fail(Code::kNotFound, "no evidence of an experiment")
        .Where(path)
        .Found(error ? error.message() : "no experiment.toml, here or one folder below")
        .Remedy("give a folder that ridge lab run has left");
  return found;
}

}  // namespace ridge::lab
