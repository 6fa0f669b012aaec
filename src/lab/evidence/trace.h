// The runs of an experiment as a trace that Perfetto and chrome://tracing open.
//
//   WriteWhole("trace.json", TraceJson(evidence));
//
// Guarantees: time is in microseconds from the first run on. Blocks, runs and phases are complete events that nest on each track; what would overlap goes to a track
// of its own. Requests are asynchronous pairs, readings of the monitor counters. The text follows from the evidence alone.
#pragma once

#include <string>

#include "lab/evidence/evidence.h"

namespace ridge::lab {

std::string TraceJson(const BundleEvidence& evidence);

}  // namespace ridge::lab
