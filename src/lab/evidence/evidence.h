// All that a folder of evidence says, read once: what tables, trace, database and report are made from.
//
//   RIDGE_ASSIGN_OR_RETURN(BundleEvidence evidence, ReadEvidence(bundle));
//   evidence.findings[2].ratio   evidence.runs[0].series   evidence.hardware
//
// Guarantees: it follows from the raw files of the folder alone (experiment.toml, environment.json, roofline.json, recorded/, runs/), so what is made from it can be made again
// anywhere, bit for bit. It reads nothing else of the machine it runs on.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/evidence/bundle.h"
#include "lab/evidence/spans.h"
#include "lab/evidence/watch.h"
#include "lab/monitor/recorded.h"
#include "lab/roofline/roofline.h"

namespace ridge::lab {

// What one test of one run says of its ceiling, where the subject is `ridge bench`, or `ridge run`, which tells the share alone.
struct Ceiling {
  std::string test;
  double seconds = 0;  // of one repetition: the median
  double tokens = 0;   // of one repetition
  double bytes = 0, flops = 0;
  std::optional<double> memory_s, unpack_s, arithmetic_s, kernels_s;  // at the ceilings
  std::string bound;              // "memory", …; empty: not known, and `reason` says why
  std::optional<double> share;    // of the ceiling that was reached
  std::optional<double> floor_s;  // what the nearest ceiling would take, where its parts are not told
  std::string reason;
  std::optional<double> Largest() const;
};

struct EvidenceRun {
  PlannedRun plan;
  RunRecord record;
  std::string log, out;  // names in the folder
  bool log_there = false, log_empty = true;
  std::vector<Span> spans;
  std::vector<RequestSpan> requests;
  std::vector<StepSpan> steps;  // a sample of them, op by op
  std::optional<Series> series;
  std::string no_series;  // why there is none
  std::vector<Ceiling> ceilings;
  double unix_s(double monotonic_s) const { return record.unix_s + (monotonic_s - record.begin_s); }
};

struct BundleEvidence {
  std::string folder;
  Experiment experiment;
  std::string hardware, no_hardware;  // the second: why the first is empty
  std::string environment_json;
  std::optional<Roofline> roofline;
  std::string no_roofline;
  std::optional<Recorded> recorded;        // a log of another device that was given with --from: recorded/NAME
  std::string recorded_name, no_recorded;  // the second: why the log cannot be read
  size_t planned = 0;
  std::vector<EvidenceRun> runs;  // those that were made, in the order of the plan
  std::vector<RunSample> samples;
  std::vector<Finding> findings;
};

// Errors: those of Bundle::Read. A monitor, environment or roofline that is missing or damaged is no error: it is absent, with the reason.
Result<BundleEvidence> ReadEvidence(const Bundle& bundle);

// The folders of evidence that `path` names: itself, or those in it. Errors: kNotFound.
Result<std::vector<std::string>> FindBundles(const std::string& path);

}  // namespace ridge::lab
