// Runs another program to its end and collects what it says.
//
//   RIDGE_ASSIGN_OR_RETURN(ProcessResult done, RunProcess({"python3", "-m", "pip", "--version"}, {.tick = [] { return
//   true; }}));
//
// Guarantees: no shell; stdin is empty; stdout and stderr go to the callback line by line and are kept (bounded). The
// child ends with us, also when we are killed. `tick` is called about ten times a second; when it returns false the
// child is terminated and the error is kCancelled.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace ridge::hub {

struct ProcessOptions {
  std::vector<std::string> environment;  // NAME=VALUE, added to ours
  std::function<bool()> tick;
  std::function<void(const std::string& line)> line;
};

struct ProcessResult {
  int exit_status = 0;  // 128 + signal when a signal ended it
  std::string output;   // the last 64 KiB of both streams
};

// Errors: kNotFound when there is no such program, kCancelled, kResourceExhausted.
Result<ProcessResult> RunProcess(const std::vector<std::string>& command, const ProcessOptions& options);

}  // namespace ridge::hub
