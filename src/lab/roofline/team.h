// Some threads that do one thing at the same time, timed from the first one's begin to the last one's end.
//
//   RIDGE_ASSIGN_OR_RETURN(TeamRun run, RunTogether(2, [&](int worker) { ... }));
//   bytes / run.seconds
//
// Guarantees: all begin together (starting threads is not counted). cpu_share says how much of that time the system let them run.
#pragma once

#include <functional>

#include "base/result.h"

namespace ridge::lab {

struct TeamRun {
  double seconds = 0;
  double cpu_share = 1;  // CPU time of the threads / (threads * their time): below 1 where others ran on their CPUs
};

// Errors: kResourceExhausted when the system gives no more threads.
Result<TeamRun> RunTogether(int n_threads, const std::function<void(int worker)>& fn);

}  // namespace ridge::lab
