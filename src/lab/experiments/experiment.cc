#include "lab/experiments/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <set>

#include "lab/monitor/recorded.h"
#include "lab/statistics.h"
#include "lab/subjects/subject.h"

namespace ridge::lab {

namespace {

// What is no flag of any subject.
bool IsLabSetting(std::string_view flag) {
  for (const char* name : {"subject", "program", "concurrency", "max_tokens", "power-mode", "observer"}) {
    if (flag == name) return true;
  }
  return false;
}

}  // namespace

size_t Arms(const Experiment& e) { return e.values.size() < 2 ? 0 : e.values.size() + 1; }

const std::string& ValueOf(const Experiment& e, size_t arm) { return e.values[arm == 0 ? 0 : arm - 1]; }

std::optional<std::string> SettingOf(const Experiment& e, size_t arm, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (e.flag == name) return ValueOf(e, arm);
    for (const auto& [key, value] : e.base) {
      if (key == name) return value;
    }
  }
  return {};
}

Workload WorkloadOf(const Experiment& e, size_t arm) {
  Workload work = e.work.value_or(Workload{});
  if (e.flag == "concurrency") work.concurrency = std::max<int64_t>(1, std::atoll(ValueOf(e, arm).c_str()));
  if (e.flag == "max_tokens") work.max_tokens = std::max<int64_t>(1, std::atoll(ValueOf(e, arm).c_str()));
  return work;
}

bool IsObserved(const Experiment& e, size_t arm) { return e.flag != "observer" || ValueOf(e, arm) != "off"; }

std::string SubjectNameOf(const Experiment& e, size_t arm) { return e.flag == "subject" ? ValueOf(e, arm) : e.subject; }

std::string ProgramOf(const Experiment& e, size_t arm) {
  std::string program = e.flag == "program" ? ValueOf(e, arm) : e.program;
  // A folder of llama.cpp's programs; beside them this program stays this one.
  if (program.ends_with('/'))
    program = SubjectNameOf(e, arm).starts_with("llama-") ? program + SubjectNameOf(e, arm) : "";
  return program;
}

std::vector<FlagValue> FlagsOf(const Experiment& e, size_t arm) {
  std::vector<FlagValue> out;
  const auto add = [&](const std::string& flag, const std::string& value) {
    if (value != "false") out.push_back({flag, value == "true" ? std::nullopt : std::optional(value)});
  };
  for (const auto& [flag, value] : e.base) add(flag, value);
  if (!IsLabSetting(e.flag)) add(e.flag, ValueOf(e, arm));
  return out;
}

std::vector<PlannedRun> PlanRuns(const Experiment& e) {
  if (Arms(e) == 0) return {};
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
  if (e.work && AskedBy(e.subject) != e.subject) {
    for (size_t arm = 0; arm < Arms(e); arm++) {
      if (arm != 1) runs.push_back({static_cast<int64_t>(runs.size()), e.blocks, arm, true});
    }
  }
  return runs;
}

namespace {

const char* Word(std::string_view unit, bool more, bool better) {
  if (unit == "t/s" || unit == "ms") return better ? "faster" : "slower";
  if (unit == "MiB") return more ? "larger" : "smaller";
  return better ? "better" : "worse";
}

using Tests = std::map<size_t, std::vector<const RunSample*>>;

// Tests of one name are one test; what the variable itself names ("pp128") is matched by position.
size_t IndexOf(const Tests& tests, const RunSample& s, size_t position) {
  const auto first = tests.find(0);
  if (s.arm == 0 || first == tests.end()) return position;
  for (size_t i = 0; i < first->second.size(); i++) {
    if (first->second[i] != nullptr && first->second[i]->test == s.test) return i;
  }
  return position;
}

}  // namespace

std::vector<Finding> Analyse(const Experiment& e, const std::vector<RunSample>& samples) {
  Tests tests;                                                                         // arm -> one of each, in order
  std::map<std::pair<int64_t, size_t>, std::map<size_t, std::vector<double>>> speeds;  // block, arm -> test -> runs
  std::set<int64_t> disturbed, all_blocks;
  std::map<int64_t, size_t> position;   // of the next test in a run
  std::vector<const RunSample*> order;  // those of the first arm before all others
  for (const RunSample& s : samples) order.push_back(&s);
  std::ranges::stable_partition(order, [](const RunSample* s) { return s->arm == 0; });
  for (const RunSample* sample : order) {
    const RunSample& s = *sample;
    all_blocks.insert(s.block);
    if (!s.disturbed.empty()) disturbed.insert(s.block);
    const size_t test = IndexOf(tests, s, position[s.number]++);
    std::vector<const RunSample*>& arm = tests[s.arm];
    if (arm.size() <= test) arm.resize(test + 1);
    arm[test] = &s;
    speeds[{s.block, s.arm}][test].push_back(s.value);
  }
  std::vector<Finding> out;
  const size_t n_tests = tests.empty() ? 0 : tests.begin()->second.size();
  for (size_t test = 0; test < n_tests; test++) {
    double floor = 0;
    for (size_t arm = 0; arm < Arms(e); arm++) {
      Finding f{.value = ValueOf(e, arm), .arm = arm, .floor = floor};
      bool higher = true;
      if (test < tests[arm].size() && tests[arm][test] != nullptr)
        f.test = tests[arm][test]->test, f.unit = tests[arm][test]->unit, higher = tests[arm][test]->higher_is_better;
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
      if (!medians.empty()) f.median = Median(medians);
      if (f.blocks > 0) f.ratio = std::exp(Median(ratios));
      if (const auto interval = MedianInterval(ratios))
        f.low = std::exp(interval->low), f.high = std::exp(interval->high), f.confidence = interval->confidence;
      if (arm == 1 && f.low) floor = f.floor = std::max(std::abs(std::log(*f.low)), std::abs(std::log(*f.high)));
      if (arm <= 1)
        f.verdict = arm == 0 ? "reference" : "A/A";
      else if (f.blocks < 4)
        f.verdict = fmt::format("undetermined: {} quiet blocks, 4 are needed", f.blocks);
      else if ((*f.low > 1 || *f.high < 1) && std::abs(std::log(*f.ratio)) > floor)
        f.better = (*f.low > 1) == higher, f.verdict = Word(f.unit, *f.low > 1, f.better);
      else
        f.verdict = "no difference";
      out.push_back(std::move(f));
    }
  }
  return out;
}

std::string SamplesCsv(const std::vector<RunSample>& samples) {
  std::string text = "run,block,arm,test,value,unit,better,disturbed\n";
  for (const RunSample& s : samples)
    text += fmt::format("{},{},{},{},{},{},{},{}\n", s.number, s.block, s.arm, CsvCell(s.test), s.value,
                        CsvCell(s.unit), s.higher_is_better ? "higher" : "lower", CsvCell(s.disturbed));
  return text;
}

}  // namespace ridge::lab
