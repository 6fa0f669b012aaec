// An experiment: one setting changed, all others held, in interleaved blocks; and what its samples say.
//
//   RIDGE_ASSIGN_OR_RETURN(Experiment e, ParseExperiment(toml));
//   for (const PlannedRun& run : PlanRuns(e)) ...                         // order of the runs
//   RIDGE_RETURN_IF_ERROR(GuardResolved(e, arms));                        // what was computed with, not what was typed
//   std::vector<Finding> findings = Analyse(e, samples);
//
// Guarantees: an arm that repeats the first value is part of each experiment (A/A): no difference is claimed that is not larger than what it shows. A
// block in which the machine was disturbed is left out as a whole and counted, never trimmed. Order and figures follow from the file and the samples alone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace ridge::lab {

struct Experiment {
  std::string name, question;
  std::string program;  // of the subject; empty: this one
  bool llama_bench = false;
  std::vector<std::pair<std::string, std::string>> base;  // flags of `bench`, without dashes
  std::string flag;
  std::vector<std::string> values;
  int64_t blocks = 4, repeats = 1, seed = 1;
};

// [experiment] name question subject program blocks repeats seed; [base] flag = value; [variable] flag values. The subset of TOML that this takes:
// tables, strings, numbers, booleans and arrays of them. Errors name the line.
Result<Experiment> ParseExperiment(std::string_view toml);

// Arm 0 is the first value, arm 1 the first value again (A/A), arm 2 the second value, and so on.
size_t Arms(const Experiment& e);
const std::string& ValueOf(const Experiment& e, size_t arm);
std::vector<std::string> ArgumentsOf(const Experiment& e, size_t arm);  // after the program

// Each block runs all arms in an order drawn for it, then in the reverse: a drift of the machine cancels.
struct PlannedRun {
  int64_t number = 0, block = 0;
  size_t arm = 0;
};
std::vector<PlannedRun> PlanRuns(const Experiment& e);

// A setting as the subject resolved it.
using Resolved = std::map<std::string, std::string>;
// Settings that a flag may move.
std::vector<std::string> MovedBy(std::string_view flag);
// Errors: kInvalidArgument where two arms with different values differ in a setting that the variable does not move, or in none at all, or where
// arms with the same value differ.
Status GuardResolved(const Experiment& e, const std::vector<Resolved>& arms);

struct Measured {
  std::string test;  // "pp512", "tg128 @ d1024"
  double per_second = 0;
};
struct RunOutput {
  Resolved resolved;  // the same for all its tests, without what tells them apart
  std::vector<Measured> tests;
};
// The JSON array that ridge bench and llama-bench print with -o json.
Result<RunOutput> ParseBenchOutput(std::string_view json);

struct RunSample {
  int64_t number = 0, block = 0;
  size_t arm = 0;
  std::string test;
  double per_second = 0;
  std::string disturbed;  // why the block does not count; empty: quiet
};

// An arm against the first.
struct Finding {
  std::string test, value;
  size_t arm = 0;
  int64_t blocks = 0, left_out = 0;
  std::optional<double> median_per_second;  // of all runs in the blocks that count
  std::optional<double> ratio, low, high;   // of speeds, by block; low and high hold it with `confidence`
  double confidence = 0;
  double floor = 0;     // the A/A arm's own deviation, as a share
  std::string verdict;  // "A/A", "faster", "slower", "no difference", "undetermined: …"
};
std::vector<Finding> Analyse(const Experiment& e, const std::vector<RunSample>& samples);

std::string SamplesCsv(const std::vector<RunSample>& samples);

}  // namespace ridge::lab
