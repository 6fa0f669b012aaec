// The evidence of an experiment: a folder with its file, the raw output of every run, what the machine did meanwhile, and a checksum of each file.
//
//   RIDGE_ASSIGN_OR_RETURN(Bundle bundle, Bundle::Create("threads.lab", toml));     // or goes on with what is there
//   RIDGE_RETURN_IF_ERROR(bundle.Run(planned));                                      // done runs are left as they are
//   RIDGE_RETURN_IF_ERROR(bundle.Seal());
//   RIDGE_ASSIGN_OR_RETURN(std::vector<std::string> problems, CheckBundle(folder));  // empty: as it was sealed, and samples.csv follows from the raw runs
//
// Files: experiment.toml, environment.json, runs/NNNN.json (stdout), runs/NNNN.log (stderr), runs/NNNN.monitor.json, samples.csv, MANIFEST.
// Guarantees: a run counts once its monitor file is there, which is written last and whole; so an interrupted experiment loses one run at most.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "lab/experiment.h"

namespace ridge::lab {

// What a run did to the machine and the machine to it.
struct RunRecord {
  bool done = false;
  double seconds = 0;
  std::optional<double> cpu_seconds, max_rss_mb;  // none: the subject runs elsewhere
  std::string disturbed;                          // empty: nothing seen
  std::string temperature, power;                 // as figures with unit, or why there is none
  RunOutput output;
};

class Bundle {
 public:
  // Errors: kAlreadyExists where the folder holds another experiment.
  static Result<Bundle> Create(const std::string& folder, std::string_view toml);
  static Result<Bundle> Open(const std::string& folder);

  const Experiment& experiment() const { return experiment_; }
  const std::string& folder() const { return folder_; }
  Result<RunRecord> Read(const PlannedRun& run) const;  // done = false: not yet
  // Errors: kUnavailable where the subject fails, with the last line it wrote.
  Status Run(const PlannedRun& run) const;
  // From the raw runs.
  Result<std::vector<RunSample>> Samples() const;
  Status Seal(std::string_view environment_json) const;

 private:
  std::string folder_;
  Experiment experiment_;
};

Result<std::vector<std::string>> CheckBundle(const std::string& folder);

// The seed's table, effects with intervals, and the conclusion, in Markdown.
Result<std::string> ReportMarkdown(const Bundle& bundle, std::string_view hardware);

}  // namespace ridge::lab
