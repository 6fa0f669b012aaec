// The actions of ridge lab: one file each, called by lab.cc.
//
//   Status LabRun(const LabOptions& options, Output& out);    // options.targets[0] is the experiment's file
#pragma once

#include <string>
#include <vector>

#include "command.h"
#include "lab/evidence/bundle.h"

namespace ridge::app {

struct LabOptions {
  std::string action;
  std::vector<std::string> targets;
  // run NAME: of a ready-made experiment.
  std::vector<std::string> models;
  std::string peer, url, write, from;
  int64_t blocks = 0;
  std::string out;                          // run: folder; report: file
  std::string language = "both";            // report
  bool rederive = false, complete = false;  // check
  std::string fail_on, again;               // compare
};

// The experiment of `lab run`: its file, or what a ready-made one says for this device.
struct LabFile {
  std::string toml, folder;
};
Result<LabFile> OpenLabFile(const LabOptions& options);
Status WriteLabFile(const LabOptions& options, const std::string& toml, Output& out);
Status LabList(Output& out);
// Keeps the log of --from, which some other device has written, in the evidence of a homework; nothing where none is given. `added`: it was not there.
Status KeepRecorded(const lab::Bundle& bundle, const std::string& from, bool& added);

Status LabRun(const LabOptions& options, Output& out);
Status LabCheck(const LabOptions& options, Output& out);
Status LabReport(const LabOptions& options, Output& out);
Status LabCompare(const LabOptions& options, Output& out);

// What an experiment has found, as `lab run` prints it at its end; of a homework its answer too.
Status TellFindings(const lab::Bundle& bundle, Output& out);

}  // namespace ridge::app
