// Chooses the number of threads by a short measurement where nobody gave one.
//
//   const CpuBudget budget = ProbeThreads(ResolveThreads(asked));   // budget.threads, budget.reason
//
// Guarantees: run, serve, bench and doctor get their number here. A number that was asked for stays; so does the automatic one unless
// fewer threads read clearly faster. At most about 50 ms; what cannot be measured leaves the automatic number, and the reason says so.
// The choice never changes a result (docs/numerics.md).
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/topology.h"

namespace ridge {

struct ProbeSample {
  int threads = 1;
  double gbps = 0;
};

// What a decode step does to memory, on 1, half and all of budget.threads.
CpuBudget ProbeThreads(CpuBudget budget);

// The rule: samples by increasing threads; the last one is the automatic number. Fewer only where that is at least 10 % faster.
int ChooseThreads(std::span<const ProbeSample> samples);

}  // namespace ridge
