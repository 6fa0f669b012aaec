// The evidence of an experiment: a folder with its file, the raw output of every run, what the machine did meanwhile, and a checksum of each file.
//
//   RIDGE_ASSIGN_OR_RETURN(Bundle bundle, Bundle::Create("threads.lab", toml));     // or goes on with what is there
//   RIDGE_RETURN_IF_ERROR(bundle.Begin(environment, roofline));                      // once; later only where machine and build are the same
//   RIDGE_RETURN_IF_ERROR(bundle.Run(planned));                                      // done runs are left as they are
//   RIDGE_RETURN_IF_ERROR(SealBundle(bundle));                                       // evidence/seal.h: derives the rest, and checksums
//
// Raw files: experiment.toml, environment.json, roofline.json (where there is one), runs/NNNN.json (stdout), runs/NNNN.log (stderr), runs/NNNN.monitor.csv (the machine,
// five times a second), runs/NNNN.monitor.json. Derived from them: evidence/derive.h. Guarantees: a run counts once its monitor.json is there, which is written last
// and whole; so an interrupted experiment loses one run at most. Reading follows no link and trusts no file.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "lab/experiments/experiment.h"

namespace ridge::lab {

// What a run did to the machine and the machine to it.
struct RunRecord {
  bool done = false;
  double seconds = 0;
  double begin_s = 0, end_s = 0;                  // CLOCK_MONOTONIC_RAW
  double unix_s = 0;                              // at begin_s
  std::optional<double> cpu_seconds, max_rss_mb;  // none: the subject runs elsewhere
  std::string disturbed;                          // empty: nothing seen
  std::string temperature, power;                 // as figures with unit, or why there is none
  std::string subject;                            // its name
  std::map<std::string, std::string> missing;     // what the machine does not tell -> why
  RunOutput output;
};

class Bundle {
 public:
  // Errors: kAlreadyExists where the folder holds another experiment.
  static Result<Bundle> Create(const std::string& folder, std::string_view toml);
  static Result<Bundle> Open(const std::string& folder);

  // Where the experiment begins. roofline_json: of this machine and build; empty: none is kept. Errors: kInvalidArgument where runs are there that another
  // machine or build has made.
  Status Begin(std::string_view environment_json, std::string_view roofline_json) const;

  const Experiment& experiment() const { return experiment_; }
  const std::string& folder() const { return folder_; }
  Result<RunRecord> Read(const PlannedRun& run) const;  // done = false: not yet
  // Errors: kUnavailable where the subject fails, with the last line it wrote.
  Status Run(const PlannedRun& run) const;
  // From the raw runs.
  Result<std::vector<RunSample>> Samples() const;

 private:
  std::string folder_;
  Experiment experiment_;
};

}  // namespace ridge::lab
