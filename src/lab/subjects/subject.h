// What an experiment runs: a program, or a server that is asked. One file per subject.
//
//   const Subject& subject = SubjectOf(experiment, run);
//   RIDGE_ASSIGN_OR_RETURN(Usage usage, subject.Run(experiment, run, files));       // writes files.out and files.log
//   RIDGE_ASSIGN_OR_RETURN(RunOutput output, subject.Parse(out_text, log_text));    // from those files alone, also years later
//
// Guarantees: Run makes no figures, it keeps what was said; Parse reads nothing but its arguments. A figure that is not there has no value.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "lab/experiments/experiment.h"
#include "lab/experiments/process.h"

namespace ridge::lab {

// Where a run leaves what was said: `out` holds the subject's stdout or the answers of a server, `log` its stderr.
struct RunFiles {
  std::string out, log;
};

class Subject {
 public:
  virtual ~Subject() = default;
  virtual std::string_view name() const = 0;  // "bench", "llama-bench"
  // What the subject needs that the experiment's tables do not give. The program is not started.
  virtual Status Check(const Experiment& e) const;
  // The program and its arguments for an arm. Errors: kInvalidArgument where a setting cannot be said to this subject.
  virtual Result<std::vector<std::string>> Command(const Experiment& e, size_t arm) const = 0;
  // Once, to its end. usage.status is not 0 where the subject failed.
  virtual Result<Usage> Run(const Experiment& e, size_t arm, const RunFiles& files) const;
  virtual Result<RunOutput> Parse(std::string_view out, std::string_view log) const = 0;
};

const Subject* FindSubject(std::string_view name);  // nullptr: there is none
std::string SubjectNames();                         // "bench, llama-bench"
// Of an arm's run: its subject, or who answers in its place, and with `power-mode` as the variable the same within that mode.
const Subject& SubjectOf(const Experiment& e, const PlannedRun& run);
// Who answers prompts for a subject: "serve" for "bench", itself for those that answer.
std::string AskedBy(std::string_view subject);

// This program's own file.
Result<std::string> OwnProgram();
// Adds the flags of an arm as the program of the subject spells them ("-t", "--isa"); not those of `left_out`.
void AddFlags(const Experiment& e, size_t arm, bool llama, std::initializer_list<std::string_view> left_out,
              std::vector<std::string>& out);
// --op-trace of this program's bench and run, as the bundle's trace wants it; nothing for another program, with it in [base], and where `observer` is off.
void AddTrace(const Experiment& e, size_t arm, std::vector<std::string>& out);
double MonotonicSeconds();

const Subject& BenchSubject();
const Subject& LlamaBenchSubject();
const Subject& BatchedBenchSubject();
const Subject& LlamaBatchedBenchSubject();
const Subject& RunSubject();
const Subject& ServeSubject();
const Subject& LlamaCliSubject();
const Subject& LlamaServerSubject();
const Subject& UrlSubject();
const Subject& OpenVinoSubject();
const Subject& AskingSubject(bool llama);  // asks the arms of a subject that does not answer, with the server beside it
const Subject& PoweredSubject();           // any subject, in the power mode that is the variable

}  // namespace ridge::lab
