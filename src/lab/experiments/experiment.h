// An experiment: one setting changed, all others held, in interleaved blocks; and what its samples say.
//
//   RIDGE_ASSIGN_OR_RETURN(Experiment e, ParseExperiment(toml));
//   for (const PlannedRun& run : PlanRuns(e)) ...                         // order of the runs; subjects/subject.h makes and reads them
//   RIDGE_RETURN_IF_ERROR(GuardResolved(e, arms));                        // what was computed with, not what was typed
//   std::vector<Finding> findings = Analyse(e, samples);
//
// Guarantees: an arm that repeats the first value is part of each experiment (A/A): no difference is claimed that is not larger than what it shows. A
// block in which the machine was disturbed is left out as a whole and counted, never trimmed. Order and figures follow from the file and the samples alone.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace ridge::lab {

// [work]: what subjects that answer are asked.
struct Workload {
  std::vector<std::string> prompts;  // own ones; empty: the fixed ones (prompts.h)
  int64_t take = 0;                  // of the fixed ones, the first so many; 0: all
  int64_t max_tokens = 48;
  int64_t requests = 0;  // 0: one for each prompt; more: prompts in turn
  int64_t concurrency = 1;
  int64_t prefix_words = 0;  // of a beginning that all prompts share
  bool ignore_eos = false;
  bool chat = true;  // false: the text is completed as it is, for models without a chat template
};

struct Experiment {
  std::string name, question;
  std::string subject = "bench";  // what is run: a name of subjects/subject.h
  std::string program;            // of the subject; empty: this one
  std::string url, url_model;     // of the subject `url`
  std::optional<Workload>
      work;  // with a subject that does not answer: its arms are asked at the end, for the quality alone
  std::vector<std::pair<std::string, std::string>> base;  // flags of the subject, without dashes
  std::string flag;
  std::vector<std::string> values;             // that can run here; fewer than two: nothing is run
  std::map<std::string, std::string> not_run;  // value -> why it cannot run on this device
  int64_t blocks = 4, repeats = 1, seed = 1;
};

// TOML: [experiment] name question subject program url model blocks repeats seed; [base] flag = value; [work]; [variable] flag values;
// [not_run] value = "why". The variable is a flag of the subject, or `subject`, `program`, `concurrency`, `max_tokens`, `power-mode`, `observer`.
// Errors name the line.
Result<Experiment> ParseExperiment(std::string_view toml);

// Arm 0 is the first value, arm 1 the first value again (A/A), arm 2 the second value, and so on. None where fewer than two values can run.
size_t Arms(const Experiment& e);
const std::string& ValueOf(const Experiment& e, size_t arm);
// A flag of [base], or the variable's value where it is that flag; `names` are spellings of the same.
std::optional<std::string> SettingOf(const Experiment& e, size_t arm, std::initializer_list<std::string_view> names);

Workload WorkloadOf(const Experiment& e, size_t arm);
// False where the variable is `observer` and the arm's value "off": neither the machine is sampled during its runs nor are ops timed.
bool IsObserved(const Experiment& e, size_t arm);
std::string SubjectNameOf(const Experiment& e, size_t arm);
std::string ProgramOf(const Experiment& e, size_t arm);  // empty: this one
// [base] and the variable, where it is a flag; a switch that is "true" has no value, one that is "false" is left out.
struct FlagValue {
  std::string flag;
  std::optional<std::string> value;
};
std::vector<FlagValue> FlagsOf(const Experiment& e, size_t arm);

// Each block runs all arms in an order drawn for it, then in the reverse: a drift of the machine cancels.
// With [work] and a subject that does not answer there is a last block in which each value is asked once: `asks`. Such a run has no tests.
struct PlannedRun {
  int64_t number = 0, block = 0;
  size_t arm = 0;
  bool asks = false;
};
std::vector<PlannedRun> PlanRuns(const Experiment& e);

// A setting as the subject resolved it.
using Resolved = std::map<std::string, std::string>;
// Settings that a flag may move.
std::vector<std::string> MovedBy(std::string_view flag);
// Errors: kInvalidArgument where two arms with different values differ in a setting that the variable does not move, or in none at all, or where
// arms with the same value differ.
Status GuardResolved(const Experiment& e, const std::vector<Resolved>& arms);

// One figure of a run, of which each run gives the same ones in the same order.
struct Measured {
  std::string test;  // "pp512", "tg128 @ d1024", "first token"
  double value = 0;
  std::string unit = "t/s";  // "t/s", "ms", "MiB"
  bool higher_is_better = true;
  // Where the subject compares it with this machine's ceilings: what bounds it, and how fast it read.
  std::string bound = {};
  std::optional<double> read_gbps = {}, read_ceiling_gbps = {};
};

// What the subject answered to one prompt.
struct Answer {
  std::string prompt_id, text;
  std::string finish_reason;       // "stop", "length"; empty: the subject does not tell
  std::vector<std::string> flags;  // what is wrong with it as far as a program can see; empty: nothing
};

// The columns of the record table, of a run as a whole; not measured: no value, and `missing` says why.
struct Measures {
  std::optional<double> ttft_ms;             // median of its requests
  std::optional<double> prefill_per_second;  // tokens/s
  std::optional<double> decode_per_second;   // tokens/s of one stream
  std::optional<double> peak_memory_mib;     // of the subject's process
  std::optional<double> model_bytes;         // of the file
  std::map<std::string, std::string> missing;
};

struct RunOutput {
  Resolved resolved;  // the same for all its tests, without what tells them apart
  std::vector<Measured> tests;
  std::string subject_version;  // as the subject tells it: "ridge 0.1.0", "llama.cpp 1e2d (b4567)"
  std::vector<Answer> answers;
  Measures measures;
};

struct RunSample {
  int64_t number = 0, block = 0;
  size_t arm = 0;
  std::string test;
  double value = 0;
  std::string unit = "t/s";
  bool higher_is_better = true;
  std::string disturbed;  // why the block does not count; empty: quiet
};

// An arm against the first.
struct Finding {
  std::string test, value, unit;
  size_t arm = 0;
  int64_t blocks = 0, left_out = 0;
  std::optional<double> median;            // of all runs in the blocks that count, in `unit`
  std::optional<double> ratio, low, high;  // of the figures, by block; low and high hold it with `confidence`
  double confidence = 0;
  double floor = 0;  // the A/A arm's own deviation, as a share
  // "reference", "A/A", "no difference", "undetermined: …"; by unit "faster" and "slower" (t/s, ms), "smaller" and "larger" (MiB), "better" and "worse".
  std::string verdict;
  bool better = false;  // of a difference: it is one for the better
};
std::vector<Finding> Analyse(const Experiment& e, const std::vector<RunSample>& samples);

std::string SamplesCsv(const std::vector<RunSample>& samples);

}  // namespace ridge::lab
