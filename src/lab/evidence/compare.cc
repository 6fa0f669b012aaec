#include "lab/evidence/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json_text.h"
#include "lab/evidence/evidence.h"
#include "lab/evidence/files.h"
#include "lab/evidence/report.h"
#include "lab/monitor/recorded.h"
#include "lab/statistics.h"

namespace ridge::lab {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kLeastSamples = 4;  // of each side: 4 and 4 give 97 %
constexpr size_t kExact = 60 * 60;   // products of both counts up to which the rank sum's distribution is counted out
constexpr double kConfidence = 0.95;

// Settings of a run, and the samples of each of its tests.
struct Side {
  struct Test {
    std::string unit;
    bool higher_is_better = true;
    std::vector<double> logs;
    double floor = 0;
    std::string floor_from;
    std::map<std::string, std::string> settings;
  };
  std::string machine;
  std::map<std::string, Test> tests;
};

// Names of one and the same thing that may differ between two folders or moments.
bool IsSetting(const std::string& key) {
  for (const char* other : {"build_commit", "build_number", "test_time", "model_filename"}) {
    if (key == other) return false;
  }
  return true;
}

Result<Side> ReadBundleSide(const std::string& folder) {
  RIDGE_ASSIGN_OR_RETURN(const Bundle bundle, Bundle::Open(folder));
  RIDGE_ASSIGN_OR_RETURN(const BundleEvidence e, ReadEvidence(bundle));
  Side side;
  const Json j = ParseJsonText<Json>(e.environment_json);
  if (j.is_object() && j.contains("machine_fingerprint") && j["machine_fingerprint"].is_string())
    side.machine = j["machine_fingerprint"].get<std::string>();
  std::set<int64_t> disturbed;
  for (const RunSample& s : e.samples) {
    if (!s.disturbed.empty()) disturbed.insert(s.block);
  }
  struct Key {
    std::string name;
    int64_t block;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, std::vector<double>> blocks;
  for (const RunSample& s : e.samples) {
    if (s.arm == 1 || disturbed.contains(s.block) || !(s.value > 0)) continue;
    const std::string name = fmt::format("{}, {}", s.test, ArmLabel(e, s.arm));
    Side::Test& test = side.tests[name];
    test.unit = s.unit, test.higher_is_better = s.higher_is_better;
    blocks[{name, s.block}].push_back(std::log(s.value));
    if (test.settings.empty()) {
      for (const EvidenceRun* r : RunsOf(e, s.arm)) {
        for (const auto& [key, value] : r->record.output.resolved) {
          if (IsSetting(key)) test.settings[key] = value;
        }
      }
    }
    for (const Finding& f : e.findings) {
      if (f.arm == 1 && f.test == s.test) test.floor = f.floor, test.floor_from = "the A/A arm of " + folder;
    }
  }
  for (const auto& [key, values] : blocks) {
    double sum = 0;
    for (const double v : values) sum += v;
    side.tests[key.name].logs.push_back(sum / static_cast<double>(values.size()));
  }
  return side;
}

Result<Side> ReadFileSide(const std::string& path) {
  const fs::path p(path);
  const std::string folder = p.parent_path().empty() ? "." : p.parent_path().string();
  RIDGE_ASSIGN_OR_RETURN(const std::string text, ReadBeneath(folder, p.filename().string()));
  const Json rows = ParseJsonText<Json>(text);
  const auto bad = [&](std::string what) {
    return Fail(Code::kInvalidData, std::move(what))
        .Where(path)
        .Expected("the JSON array of ridge bench -o json or llama-bench -o json, or a folder of evidence");
  };
  if (!rows.is_array() || rows.empty()) return bad("no results");
  Side side;
  for (const Json& row : rows) {
    if (!row.is_object() || !row.contains("samples_ts") || !row["samples_ts"].is_array())
      return bad("a row without samples_ts");
    const auto number = [&](const char* key) {
      return row.contains(key) && row[key].is_number() ? row[key].get<double>() : 0.0;
    };
    Side::Test test{.unit = "t/s"};
    for (const Json& v : row["samples_ts"]) {
      if (!v.is_number() || !(v.get<double>() > 0)) return bad("a sample that is no speed");
      test.logs.push_back(std::log(v.get<double>()));
    }
    static constexpr const char* kMeasured[] = {"avg_", "stddev_", "median_", "samples_", "read_", "ceiling_", "bound"};
    for (const auto& [key, value] : row.items()) {
      if (std::ranges::any_of(kMeasured, [&](const char* m) { return key.starts_with(m); }) || !IsSetting(key))
        continue;
      test.settings[key] = value.is_string() ? value.get<std::string>() : value.dump();
    }
    side.machine = test.settings.contains("cpu_info") ? test.settings["cpu_info"] : "";
    // Identical runs of one file: its first half against its second.
    const size_t half = test.logs.size() / 2;
    if (half >= 2) {
      const std::vector<double> first(test.logs.begin(), test.logs.begin() + static_cast<int64_t>(half));
      const std::vector<double> second(test.logs.end() - static_cast<int64_t>(half), test.logs.end());
      test.floor = std::abs(Median(first) - Median(second));
      test.floor_from = "the halves of " + path;
    }
    std::string name = number("n_prompt") > 0 ? fmt::format("pp{}", number("n_prompt")) : "";
    if (number("n_gen") > 0) name += fmt::format("{}tg{}", name.empty() ? "" : "+", number("n_gen"));
    if (number("n_depth") > 0) name += fmt::format(" @ d{}", number("n_depth"));
    // Rows that differ in what they were run with are told apart by it.
    for (const char* key : {"model_type", "n_threads", "n_ubatch", "type_k", "type_v", "isa"}) {
      if (test.settings.contains(key)) name += fmt::format(", {} {}", key, test.settings[key]);
    }
    if (!side.tests.emplace(name, std::move(test)).second) return bad("two rows of one and the same test: " + name);
  }
  return side;
}

Result<Side> ReadSide(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) ? ReadBundleSide(path) : ReadFileSide(path);
}

}  // namespace

double RankSumAtMost(size_t u, size_t m, size_t n) {
  if (u >= m * n) return 1;
  if (m * n > kExact) {
    // Normal, with a correction for what is discrete: good to 1e-3 where there are so many.
    const double mean = static_cast<double>(m * n) / 2;
    const double deviation = std::sqrt(static_cast<double>(m * n) * static_cast<double>(m + n + 1) / 12);
    return 0.5 * std::erfc(-((static_cast<double>(u) + 0.5 - mean) / deviation) / std::sqrt(2.0));
  }
  // p[i][j][v]: probability of v with i and j samples; the largest of all is one of the first with i / (i + j), and then counts j.
  std::vector<std::vector<double>> before(n + 1, std::vector<double>(u + 1, 0));
  for (size_t j = 0; j <= n; j++) before[j][0] = 1;  // i = 0
  for (size_t i = 1; i <= m; i++) {
    std::vector<std::vector<double>> now(n + 1, std::vector<double>(u + 1, 0));
    now[0][0] = 1;
    for (size_t j = 1; j <= n; j++) {
      const double mine = static_cast<double>(i) / static_cast<double>(i + j);
      for (size_t v = 0; v <= u; v++) now[j][v] = (v >= j ? mine * before[j][v - j] : 0) + (1 - mine) * now[j - 1][v];
    }
    before = std::move(now);
  }
  double sum = 0;
  for (const double p : before[n]) sum += p;
  return std::min(sum, 1.0);
}

std::optional<Shift> ShiftBetween(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.empty() || b.empty()) return std::nullopt;
  std::vector<double> differences;
  for (const double x : a) {
    for (const double y : b) differences.push_back(y - x);
  }
  std::ranges::sort(differences);
  // Between the k-th smallest and the k-th largest difference (k from 0) lies the shift unless the rank sum is at most k.
  size_t low = 0, high = differences.size() / 2;
  const auto confidence = [&](size_t k) { return 1 - 2 * RankSumAtMost(k, a.size(), b.size()); };
  while (low < high) {
    const size_t middle = (low + high + 1) / 2;
    if (middle < differences.size() / 2 && confidence(middle) >= kConfidence)
      low = middle;
    else
      high = middle - 1;
  }
  return Shift{Median(differences), differences[low], differences[differences.size() - 1 - low],
               std::max(0.0, confidence(low))};
}

Compared Compare(const CompareCase& one, std::optional<double> bound) {
  Compared r;
  if (!one.a.empty()) r.a = std::exp(Median(one.a));
  if (!one.b.empty()) r.b = std::exp(Median(one.b));
  const auto shift = ShiftBetween(one.a, one.b);
  if (!shift || one.a.size() < kLeastSamples || one.b.size() < kLeastSamples) {
    r.verdict = fmt::format("undetermined: {} and {} samples, {} of each are needed", one.a.size(), one.b.size(),
                            kLeastSamples);
    if (shift) r.ratio = std::exp(shift->value);
    if (bound) r.gate = r.verdict;
    return r;
  }
  r.ratio = std::exp(shift->value), r.low = std::exp(shift->low), r.high = std::exp(shift->high);
  r.confidence = shift->confidence;
  // As gains: above 0 is better.
  const double gain = one.higher_is_better ? shift->value : -shift->value;
  const double least = one.higher_is_better ? shift->low : -shift->high,
               most = one.higher_is_better ? shift->high : -shift->low;
  const bool time = one.unit == "t/s" || one.unit == "ms";
  if (least > 0 && gain > one.floor)
    r.verdict = time ? "faster" : "better";
  else if (most < 0 && -gain > one.floor)
    r.verdict = time ? "slower" : "worse";
  else
    r.verdict = "no difference";
  if (!bound) return r;
  const double allowed = std::log1p(-*bound);
  if (most < allowed && -gain > one.floor)
    r.gate = time ? "slower than allowed" : "worse than allowed";
  else if (least >= allowed)
    r.gate = "within the bound";
  else if (most < allowed)
    r.gate = fmt::format("undetermined: identical runs differ by up to {:.1f} %; make more blocks on a quieter machine",
                         100 * std::expm1(one.floor));
  else
    r.gate = fmt::format("undetermined: the loss lies between {:.1f} % and {:.1f} %; make more blocks",
                         std::max(0.0, -100 * std::expm1(most)), -100 * std::expm1(least));
  return r;
}

Result<Comparison> ReadComparison(const std::string& a, const std::string& b, const std::string& again) {
  RIDGE_ASSIGN_OR_RETURN(const Side left, ReadSide(a));
  RIDGE_ASSIGN_OR_RETURN(const Side right, ReadSide(b));
  Side third;
  if (!again.empty()) {
    RIDGE_ASSIGN_OR_RETURN(third, ReadSide(again));
  }
  for (const auto& [side, path] : {std::pair<const Side*, const std::string*>{&right, &b}, {&third, &again}}) {
    if (!path->empty() && side->machine != left.machine)
      return Fail(Code::kInvalidArgument, "the two were made on different machines")
          .Where(*path)
          .Found(side->machine.empty() ? "(not told)" : side->machine)
          .Expected(left.machine.empty() ? "(not told)" : left.machine)
          .Remedy("make both on one machine, one right after the other");
  }
  Comparison out;
  for (const auto& [name, test] : left.tests) {
    const auto other = right.tests.find(name);
    if (other == right.tests.end()) {
      out.only_one.push_back(fmt::format("{} (only in {})", name, a));
      continue;
    }
    std::set<std::string> keys;
    for (const auto& [key, value] : test.settings) keys.insert(key);
    for (const auto& [key, value] : other->second.settings) keys.insert(key);
    for (const std::string& key : keys) {
      const auto x = test.settings.find(key), y = other->second.settings.find(key);
      // A setting that only one build tells of is new, not moved.
      if (x == test.settings.end() || y == other->second.settings.end() || x->second == y->second) continue;
      return Fail(Code::kInvalidArgument, "the two were not run with the same settings")
          .Where(name + ": " + key)
          .Found(y->second)
          .Expected(x->second);
    }
    CompareCase one{name, test.unit, test.higher_is_better, test.logs, other->second.logs, test.floor, test.floor_from};
    if (other->second.floor > one.floor) one.floor = other->second.floor, one.floor_from = other->second.floor_from;
    if (const auto repeated = third.tests.find(name); repeated != third.tests.end()) {
      if (const auto shift = ShiftBetween(test.logs, repeated->second.logs)) {
        const double differs = std::max(std::abs(shift->low), std::abs(shift->high));
        if (differs > one.floor) one.floor = differs, one.floor_from = a + " against " + again;
      }
    }
    out.cases.push_back(std::move(one));
  }
  for (const auto& [name, test] : right.tests) {
    if (!left.tests.contains(name)) out.only_one.push_back(fmt::format("{} (only in {})", name, b));
  }
  if (out.cases.empty())
    return Fail(Code::kInvalidArgument, "the two have no test in common")
        .Where(a + " and " + b)
        .Found(out.only_one.empty() ? "no test" : out.only_one[0]);
  return out;
}

Result<double> ParsePercent(const std::string& text) {
  const auto value = text.ends_with('%') ? ToNumber(std::string_view(text).substr(0, text.size() - 1)) : std::nullopt;
  if (!value || !(*value >= 0) || *value >= 100)
    return Fail(Code::kUsage, "no share")
        .Where("--fail-on")
        .Found(text)
        .Expected("a percentage from 0% to below 100%, as 3%");
  return *value / 100;
}

}  // namespace ridge::lab
