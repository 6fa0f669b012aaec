// The actions of ridge lab: one file each, called by lab.cc.
//
//   Status LabRun(const LabOptions& options, Output& out);    // options.targets[0] is the experiment's file
#pragma once

#include <string>
#include <vector>

#include "command.h"
#include "lab/bundle.h"

namespace ridge::app {

struct LabOptions {
  std::string action;
  std::vector<std::string> targets;
  std::string out;
};

Status LabRun(const LabOptions& options, Output& out);
Status LabCheck(const LabOptions& options, Output& out);
Status LabReport(const LabOptions& options, Output& out);

// What an experiment has found, as `lab run` prints it at its end.
Status TellReport(const lab::Bundle& bundle, Output& out);

}  // namespace ridge::app
