// What people see while a model is fetched: a progress bar, notices, and Ctrl-C that leaves a resumable download.
//
//   PullReporter reporter;
//   RIDGE_ASSIGN_OR_RETURN(hub::Entry entry, hub::Pull(model, reporter.Options(force)));
//
//   RIDGE_ASSIGN_OR_RETURN(std::string path, ResolveOrPull(options.model));   // in a command that fetches what is missing
//
// Guarantees: only stderr is written; the bar only where stderr is a terminal, after a second of work, and it is wiped at the end. While a
// reporter lives SIGINT and SIGTERM ask the download to stop; its end restores the handlers. One reporter at a time.
#pragma once

#include <memory>
#include <string>

#include "hub/hub.h"

namespace ridge::app {

class PullReporter {
 public:
  PullReporter();
  ~PullReporter();
  PullReporter(const PullReporter&) = delete;
  PullReporter& operator=(const PullReporter&) = delete;
  hub::PullOptions Options(bool force = false);  // valid as long as the reporter

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The path of MODEL (a path, a name in the store, a reference), fetched first when it is not there.
Result<std::string> ResolveOrPull(const std::string& model);

// One line of at most `columns`: label, bar, percent, sizes, speed, remaining time.
std::string ProgressLine(const hub::Progress& progress, size_t columns);

std::string SizeText(uint64_t bytes);  // "98.4 MB", powers of 1000

}  // namespace ridge::app
