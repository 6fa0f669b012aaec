// Other programs as children of this one: run to their end, or kept running and stopped.
//
//   RIDGE_ASSIGN_OR_RETURN(Usage usage, RunProcess({"llama-bench", "-o", "json"}, "out.json", "out.log"));
//
// Guarantees: stdin is /dev/null; stdout and stderr go to the files named, whole. What a child used is the kernel's own account of it (wait4).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace ridge::lab {

// What a run used.
struct Usage {
  int status = 0;                    // 128 + N: ended by signal N
  std::optional<double> cpu_s;       // of the subject and of who asked it; none: it runs elsewhere
  std::optional<double> max_rss_mb;  // the same
};

// Errors: kNotFound where the program cannot be started.
Result<Usage> RunProcess(const std::vector<std::string>& command, const std::string& out, const std::string& err);

}  // namespace ridge::lab
