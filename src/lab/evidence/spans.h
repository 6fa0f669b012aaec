// When what of a run happened: its phases, from what the subject itself said, on the clock of the monitor.
//
//   const std::vector<Span> spans = SpansOf(run_begin_s, run_end_s, stdout_text);   // {"load and warm up", 10.1, 10.9}, {"pp64", 10.9, 11.4}, …
//   const std::vector<PhaseReading> readings = Align(spans, series);                // cpu_use_percent in "pp64": mean 97.1 of 5 samples
//
// Guarantees: spans lie inside the run and do not overlap, so they nest in a trace. A subject that does not say when its phases began gives none, never a guess. A
// phase that holds fewer than two samples whose whole time lies inside it gets no reading.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/evidence/watch.h"

namespace ridge::lab {

struct Span {
  std::string name;
  double begin_s = 0, end_s = 0;  // CLOCK_MONOTONIC_RAW
  std::string how;  // what places it: "stamped", or that only durations are known and the order is the program's
};

// bench: samples_at_s and samples_ns of each row. run: the ledgers of its requests, laid in the program's order up to the end of each process. Anything else: none.
std::vector<Span> SpansOf(double begin_s, double end_s, std::string_view stdout_text);

// A step of the program whose ops were timed one by one (--op-trace). They lie inside it, one after the other.
struct OpSpan {
  std::string name;
  double begin_s = 0, end_s = 0;
};
struct StepSpan {
  std::string phase;  // "prefill", "decode"
  int64_t tokens = 0;
  double begin_s = 0, end_s = 0;  // CLOCK_MONOTONIC_RAW
  int64_t every = 0;              // one step in so many was timed
  std::vector<OpSpan> ops;
};
// Of bench's rows and of the documents of run, in the order of time; what lies outside the run, overlaps or is damaged is none.
std::vector<StepSpan> StepsOf(double begin_s, double end_s, std::string_view stdout_text);

// What a client waited for: requests may overlap.
struct RequestSpan {
  std::string prompt;
  double begin_s = 0, end_s = 0;  // CLOCK_MONOTONIC_RAW
  std::optional<double> first_token_s;
};
// Of the record of requests that the lab's own client writes; requests without a stamp, and what lies outside the run, are none.
std::vector<RequestSpan> RequestsOf(double begin_s, double end_s, std::string_view stdout_text);

struct PhaseReading {
  size_t span = 0, name = 0;  // of Series::names
  size_t samples = 0;
  std::optional<double> mean;  // none: fewer than two samples
};
// For every span and reading.
std::vector<PhaseReading> Align(const std::vector<Span>& spans, const Series& series);

}  // namespace ridge::lab
