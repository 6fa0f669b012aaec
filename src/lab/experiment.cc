#include "lab/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "lab/recorded.h"
#include "lab/statistics.h"

namespace ridge::lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostBlocks = 1000, kMostValues = 64;

Fail Bad(int64_t line, std::string what) {
  return Fail(Code::kInvalidData, std::move(what)).Where(fmt::format("line {}", line));
}

std::string_view Trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t' || s.back() == '\r')) s.remove_suffix(1);
  return s;
}

// Up to a # that stands in no string.
std::string_view WithoutComment(std::string_view line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); i++) {
    if (quote != 0) {
      if (line[i] == '\\' && quote == '"')
        i++;
      else if (line[i] == quote)
        quote = 0;
    } else if (line[i] == '"' || line[i] == '\'') {
      quote = line[i];
    } else if (line[i] == '#') {
      return line.substr(0, i);
    }
  }
  return line;
}

// One scalar as text: "a\"b", 'raw', 12, true. Takes it from the front of `text`.
Result<std::string> TakeScalar(std::string_view& text, int64_t line) {
  std::string out;
  if (text.starts_with('"') || text.starts_with('\'')) {
    const char quote = text[0];
    size_t i = 1;
    for (; i < text.size() && text[i] != quote; i++) {
      if (quote == '"' && text[i] == '\\') {
        if (++i >= text.size()) break;
        const char c = text[i];
        if (c == 'n')
          out += '\n';
        else if (c == 't')
          out += '\t';
        else if (c == '"' || c == '\\')
          out += c;
        else
          return Bad(line, fmt::format("an escape that this build does not know: \\{}", c));
      } else {
        out += text[i];
      }
    }
    if (i >= text.size()) return Bad(line, "a string without its end");
    text.remove_prefix(i + 1);
    return out;
  }
  const size_t end = std::min(text.find_first_of(",] \t"), text.size());
  out = std::string(text.substr(0, end));
  if (out != "true" && out != "false" && !ToNumber(out))
    return Bad(line, fmt::format("no value: {}; strings stand in quotes", out));
  text.remove_prefix(end);
  return out;
}

Result<std::vector<std::string>> TakeValue(std::string_view text, int64_t line) {
  std::vector<std::string> values;
  if (!text.starts_with('[')) {
    RIDGE_ASSIGN_OR_RETURN(std::string value, TakeScalar(text, line));
    values.push_back(std::move(value));
  } else {
    text = Trimmed(text.substr(1));
    while (!text.starts_with(']')) {
      if (text.empty()) return Bad(line, "an array without its end");
      RIDGE_ASSIGN_OR_RETURN(std::string value, TakeScalar(text, line));
      values.push_back(std::move(value));
      text = Trimmed(text);
      if (text.starts_with(','))
        text = Trimmed(text.substr(1));
      else if (!text.starts_with(']'))
        return Bad(line, "an array whose values have no comma between");
    }
    text.remove_prefix(1);
  }
  if (!Trimmed(text).empty()) return Bad(line, fmt::format("text after the value: {}", Trimmed(text)));
  return values;
}

Result<int64_t> Whole(const std::string& text, int64_t line, int64_t most) {
  const auto n = ToNumber(text);
  if (!n || *n < 1 || *n > static_cast<double>(most) || *n != std::floor(*n))
    return Bad(line, fmt::format("{} is no whole number from 1 to {}", text, most));
  return static_cast<int64_t>(*n);
}

std::string Flag(const Experiment& e, const std::string& name) {
  // llama-bench has -ngl and --model, this program -m and --anything.
  return (name.size() == 1 || (e.llama_bench && name.size() <= 3) ? "-" : "--") + name;
}

std::string TestName(double prompt, double gen, double depth) {
  std::string name = prompt > 0 ? fmt::format("pp{}", prompt) : "";
  if (gen > 0) name += fmt::format("{}tg{}", name.empty() ? "" : "+", gen);
  if (depth > 0) name += fmt::format(" @ d{}", depth);
  return name;
}

bool IsMeasured(const std::string& key) {
  for (const char* prefix : {"avg_", "stddev_", "median_", "samples_", "read_", "ceiling_", "bound", "test_time"}) {
    if (key.starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace

Result<Experiment> ParseExperiment(std::string_view toml) {
  Experiment e;
  std::string table;
  std::set<std::string> seen;
  int64_t number = 0;
  for (const std::string_view raw : Lines(toml)) {
    number++;
    const std::string_view line = Trimmed(WithoutComment(raw));
    if (line.empty()) continue;
    if (line.starts_with('[')) {
      table = std::string(Trimmed(line.substr(1, line.size() - 2)));
      if (!line.ends_with(']') || (table != "experiment" && table != "base" && table != "variable"))
        return Bad(number, fmt::format("an unknown table: {}; there are [experiment], [base] and [variable]", line));
      continue;
    }
    const size_t equal = line.find('=');
    if (equal == std::string_view::npos || table.empty())
      return Bad(number, "neither a table nor a key with its value");
    std::string key(Trimmed(line.substr(0, equal)));
    while (key.starts_with('-')) key.erase(0, 1);
    RIDGE_ASSIGN_OR_RETURN(const std::vector<std::string> values, TakeValue(Trimmed(line.substr(equal + 1)), number));
    if (key.empty() || !seen.insert(table + "." + key).second)
      return Bad(number, fmt::format("a key that is given twice, or none: {}", key));
    const bool list = table == "variable" && key == "values";
    if (!list && values.size() != 1) return Bad(number, fmt::format("{} takes one value", key));
    if (table == "base") {
      e.base.emplace_back(key, values[0]);
    } else if (table == "variable") {
      if (key == "flag")
        e.flag = values[0].substr(std::min(values[0].find_first_not_of('-'), values[0].size()));
      else if (list)
        e.values = values;
      else
        return Bad(number, fmt::format("an unknown key: {}; [variable] has flag and values", key));
    } else if (key == "name") {
      e.name = values[0];
    } else if (key == "question") {
      e.question = values[0];
    } else if (key == "program") {
      e.program = values[0];
    } else if (key == "subject") {
      if (values[0] != "ridge" && values[0] != "llama-bench")
        return Bad(number, fmt::format("an unknown subject: {}; there are ridge and llama-bench", values[0]));
      e.llama_bench = values[0] == "llama-bench";
    } else if (key == "blocks") {
      RIDGE_ASSIGN_OR_RETURN(e.blocks, Whole(values[0], number, kMostBlocks));
    } else if (key == "repeats") {
      RIDGE_ASSIGN_OR_RETURN(e.repeats, Whole(values[0], number, kMostBlocks));
    } else if (key == "seed") {
      RIDGE_ASSIGN_OR_RETURN(e.seed, Whole(values[0], number, int64_t{1} << 50));
    } else {
      return Bad(
          number,
          fmt::format("an unknown key: {}; [experiment] has name, question, subject, program, blocks, repeats and seed",
                      key));
    }
  }
  if (e.name.empty() || e.flag.empty())
    return Fail(Code::kInvalidData, "the experiment lacks a name or a variable")
        .Expected("[experiment] name, [variable] flag and values");
  if (e.values.size() < 2 || e.values.size() > kMostValues ||
      std::set<std::string>(e.values.begin(), e.values.end()).size() != e.values.size())
    return Fail(Code::kInvalidData, "a variable takes two different values at least")
        .Where("[variable] values")
        .Found(std::to_string(e.values.size()));
  for (const auto& [key, value] : e.base) {
    if (key == e.flag)
      return Fail(Code::kInvalidData, "the variable stands in [base] too").Where(key).Remedy("take it out of [base]");
    if (key == "o" || key == "output" || key == "r" || key == "repetitions" || key == "json")
      return Fail(Code::kInvalidData, "the lab sets this flag itself").Where(key).Remedy("see [experiment] repeats");
  }
  if (e.llama_bench && e.program.empty())
    return Fail(Code::kInvalidData, "subject llama-bench needs its program").Where("[experiment] program");
  return e;
}

size_t Arms(const Experiment& e) { return e.values.size() + 1; }

const std::string& ValueOf(const Experiment& e, size_t arm) { return e.values[arm == 0 ? 0 : arm - 1]; }

std::vector<std::string> ArgumentsOf(const Experiment& e, size_t arm) {
  std::vector<std::string> out;
  if (!e.llama_bench) out.push_back("bench");
  for (const auto& [key, value] : e.base) out.push_back(Flag(e, key)), out.push_back(value);
  out.push_back(Flag(e, e.flag));
  out.push_back(ValueOf(e, arm));
  out.insert(out.end(), {"-r", std::to_string(e.repeats), "-o", "json"});
  return out;
}

std::vector<PlannedRun> PlanRuns(const Experiment& e) {
  std::vector<PlannedRun> runs;
  std::mt19937_64 random(static_cast<uint64_t>(e.seed));
  for (int64_t block = 0; block < e.blocks; block++) {
    std::vector<size_t> order(Arms(e));
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    // Fisher and Yates, by hand: std::shuffle may differ between libraries.
    for (size_t i = order.size() - 1; i > 0; i--) std::swap(order[i], order[random() % (i + 1)]);
    for (size_t i = 0; i < order.size(); i++) runs.push_back({static_cast<int64_t>(runs.size()), block, order[i]});
    for (size_t i = order.size(); i-- > 0;) runs.push_back({static_cast<int64_t>(runs.size()), block, order[i]});
  }
  return runs;
}

std::vector<std::string> MovedBy(std::string_view flag) {
  static const std::map<std::string_view, std::vector<std::string>> kMoved = {
      {"t", {"n_threads"}},
      {"threads", {"n_threads"}},
      {"ub", {"n_ubatch"}},
      {"ubatch-size", {"n_ubatch"}},
      {"b", {"n_batch"}},
      {"batch-size", {"n_batch"}},
      {"ctk", {"type_k"}},
      {"cache-type-k", {"type_k"}},
      {"ctv", {"type_v"}},
      {"cache-type-v", {"type_v"}},
      {"fa", {"flash_attn"}},
      {"flash-attn", {"flash_attn"}},
      {"isa", {"isa"}},
      {"fusion", {"fusion"}},
      {"matmul", {"matmul"}},
      {"ngl", {"n_gpu_layers"}},
      {"gpu-layers", {"n_gpu_layers"}},
      {"m", {"model_filename", "model_type", "model_size", "model_n_params"}},
      {"model", {"model_filename", "model_type", "model_size", "model_n_params"}},
      {"d", {"n_depth"}},
      {"n-depth", {"n_depth"}},
      {"p", {"n_prompt"}},
      {"n", {"n_gen"}},
  };
  const auto it = kMoved.find(flag);
  return it == kMoved.end() ? std::vector<std::string>{} : it->second;
}

Status GuardResolved(const Experiment& e, const std::vector<Resolved>& arms) {
  const std::vector<std::string> allowed = MovedBy(e.flag);
  if (allowed.empty())
    return Fail(Code::kUnsupported, "the lab does not know which settings this flag moves")
        .Where(e.flag)
        .Expected("t, ub, b, ctk, ctv, fa, isa, fusion, matmul, ngl, m, d, p or n");
  for (size_t a = 0; a < arms.size(); a++) {
    for (size_t b = a + 1; b < arms.size(); b++) {
      std::set<std::string> keys;
      for (const auto& [key, value] : arms[a]) keys.insert(key);
      for (const auto& [key, value] : arms[b]) keys.insert(key);
      bool moved = false;
      for (const std::string& key : keys) {
        const auto x = arms[a].find(key), y = arms[b].find(key);
        const std::string left = x == arms[a].end() ? "(none)" : x->second,
                          right = y == arms[b].end() ? "(none)" : y->second;
        if (left == right) continue;
        if (ValueOf(e, a) != ValueOf(e, b) && std::ranges::find(allowed, key) != allowed.end()) {
          moved = true;
          continue;
        }
        return Fail(Code::kInvalidArgument, "more than the one variable moved")
            .Where(key)
            .Found(
                fmt::format("{} with {} {}, {} with {} {}", left, e.flag, ValueOf(e, a), right, e.flag, ValueOf(e, b)))
            .Remedy("give this setting in [base]");
      }
      if (ValueOf(e, a) != ValueOf(e, b) && !moved) {
        const auto it = arms[a].find(allowed[0]);
        return Fail(Code::kInvalidArgument, "the variable did not move")
            .Where(e.flag)
            .Found(fmt::format("{} and {} both resolve to {} {}", ValueOf(e, a), ValueOf(e, b), allowed[0],
                               it == arms[a].end() ? "(not told)" : it->second))
            .Remedy("this device or build cannot do it: record that as the result");
      }
    }
  }
  return {};
}

Result<RunOutput> ParseBenchOutput(std::string_view json) {
  const Json rows = Json::parse(json, nullptr, false);
  if (!rows.is_array() || rows.empty())
    return Fail(Code::kInvalidData, "the subject printed no table of results")
        .Expected("the JSON array of bench -o json");
  RunOutput out;
  std::map<std::string, std::set<std::string>> tests;  // of the keys that tell tests apart
  for (const Json& row : rows) {
    if (!row.is_object() || !row.contains("avg_ts") || !row["avg_ts"].is_number())
      return Fail(Code::kInvalidData, "a row without avg_ts");
    const auto number = [&](const char* key) {
      return row.contains(key) && row[key].is_number() ? row[key].get<double>() : 0.0;
    };
    const Json& speed = row.contains("median_ts") && row["median_ts"].is_number() ? row["median_ts"] : row["avg_ts"];
    out.tests.push_back({TestName(number("n_prompt"), number("n_gen"), number("n_depth")), speed.get<double>()});
    for (const auto& [key, value] : row.items()) {
      if (!IsMeasured(key)) tests[key].insert(value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  for (const auto& [key, values] : tests) {
    std::string all;
    for (const std::string& v : values) all += (all.empty() ? "" : ",") + v;
    out.resolved[key] = all;
  }
  return out;
}

std::vector<Finding> Analyse(const Experiment& e, const std::vector<RunSample>& samples) {
  // What the variable itself names is not the same test in two arms: they are matched by position.
  std::map<size_t, std::vector<std::string>> names;                                    // arm -> tests in order
  std::map<std::pair<int64_t, size_t>, std::map<size_t, std::vector<double>>> speeds;  // block, arm -> test -> runs
  std::set<int64_t> disturbed, all_blocks;
  std::map<int64_t, size_t> position;  // of the next test in a run
  for (const RunSample& s : samples) {
    all_blocks.insert(s.block);
    if (!s.disturbed.empty()) disturbed.insert(s.block);
    const size_t test = position[s.number]++;
    std::vector<std::string>& arm = names[s.arm];
    if (arm.size() <= test) arm.resize(test + 1);
    arm[test] = s.test;
    speeds[{s.block, s.arm}][test].push_back(s.per_second);
  }
  std::vector<Finding> out;
  const size_t n_tests = names.empty() ? 0 : names.begin()->second.size();
  for (size_t test = 0; test < n_tests; test++) {
    double floor = 0;
    for (size_t arm = 0; arm < Arms(e); arm++) {
      Finding f{.test = test < names[arm].size() ? names[arm][test] : "",
                .value = ValueOf(e, arm),
                .arm = arm,
                .floor = floor};
      std::vector<double> ratios, medians;
      for (const int64_t block : all_blocks) {
        if (disturbed.contains(block)) {
          f.left_out++;
          continue;
        }
        const auto& mine = speeds[{block, arm}][test];
        const auto& first = speeds[{block, 0}][test];
        if (mine.empty() || first.empty()) continue;
        f.blocks++;
        double a = 0, b = 0;
        for (const double v : mine) a += std::log(v) / static_cast<double>(mine.size());
        for (const double v : first) b += std::log(v) / static_cast<double>(first.size());
        ratios.push_back(a - b);
        medians.insert(medians.end(), mine.begin(), mine.end());
      }
      if (!medians.empty()) f.median_per_second = Median(medians);
      if (f.blocks > 0) f.ratio = std::exp(Median(ratios));
      if (const auto interval = MedianInterval(ratios))
        f.low = std::exp(interval->low), f.high = std::exp(interval->high), f.confidence = interval->confidence;
      if (arm == 1 && f.low) floor = f.floor = std::max(std::abs(std::log(*f.low)), std::abs(std::log(*f.high)));
      if (arm <= 1)
        f.verdict = arm == 0 ? "reference" : "A/A";
      else if (f.blocks < 4)
        f.verdict = fmt::format("undetermined: {} quiet blocks, 4 are needed", f.blocks);
      else if (*f.low > 1 && std::log(*f.ratio) > floor)
        f.verdict = "faster";
      else if (*f.high < 1 && -std::log(*f.ratio) > floor)
        f.verdict = "slower";
      else
        f.verdict = "no difference";
      out.push_back(std::move(f));
    }
  }
  return out;
}

std::string SamplesCsv(const std::vector<RunSample>& samples) {
  std::string text = "run,block,arm,test,tokens_per_second,disturbed\n";
  for (const RunSample& s : samples)
    text += fmt::format("{},{},{},{},{},{}\n", s.number, s.block, s.arm, CsvCell(s.test), s.per_second,
                        CsvCell(s.disturbed));
  return text;
}

}  // namespace ridge::lab
