// ridge lab run: makes the runs of an experiment that are not there yet.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/topology.h"
#include "ceilings.h"
#include "interrupt.h"
#include "lab.h"
#include "lab/evidence/environment.h"
#include "lab/evidence/files.h"
#include "lab/evidence/seal.h"
#include "lab/roofline/roofline_json.h"
#include "model_options.h"

namespace ridge::app {
namespace {

// What is written once, where the experiment begins: the machine, and its ceilings where they were measured.
Status Begin(const lab::Bundle& bundle) {
  const Json environment = lab::Environment(
      {.framework = "ridge " + BuildName(), .threads = ResolveThreads({}).reason, .memory = ReadMemory().reason});
  const Ceilings ceilings = Ceilings::Cached();
  if (!ceilings.roofline()) Note("what bounds the runs will not be known: " + ceilings.reason());
  return bundle.Begin(environment.dump(1, ' ', false, Json::error_handler_t::replace) + "\n",
                      ceilings.roofline() ? lab::ToJson(*ceilings.roofline()).dump(1) + "\n" : "");
}

// The settings of each arm as its first run resolved them, compared as soon as all arms have run once.
Status Guard(const lab::Bundle& bundle, const std::vector<lab::PlannedRun>& runs) {
  std::vector<lab::Resolved> arms(lab::Arms(bundle.experiment()));
  for (const lab::PlannedRun& run : runs) {
    RIDGE_ASSIGN_OR_RETURN(lab::RunRecord record, bundle.Read(run));
    if (!record.done) return {};
    if (arms[run.arm].empty()) arms[run.arm] = std::move(record.output.resolved);
    if (std::ranges::none_of(arms, [](const lab::Resolved& r) { return r.empty(); })) break;
  }
  return lab::GuardResolved(bundle.experiment(), arms);
}

}  // namespace

Status LabRun(const LabOptions& o, Output& out) {
  // A run has the settings that the experiment gives it: a stored profile would be a second thing that moves. One that is named is used.
  setenv("RIDGE_NO_PROFILE", "1", 1);
  Interrupt interrupt(out.json);
  RIDGE_ASSIGN_OR_RETURN(const LabFile file, OpenLabFile(o));
  const std::string& toml = file.toml;
  if (!o.write.empty()) return WriteLabFile(o, toml, out);
  const std::string folder = o.out.empty() ? file.folder : o.out;
  auto opened = lab::Bundle::Create(folder, toml);
  if (!opened) {
    if (opened.error().code == Code::kInvalidData)
      opened.error().where = o.targets[0] + (opened.error().where.empty() ? "" : ": " + opened.error().where);
    return std::unexpected(std::move(opened).error());
  }
  const lab::Bundle& bundle = *opened;
  const lab::Experiment& e = bundle.experiment();
  bool recorded = false;
  RIDGE_RETURN_IF_ERROR(KeepRecorded(bundle, o.from, recorded));
  RIDGE_RETURN_IF_ERROR(Begin(bundle));
  const std::vector<lab::PlannedRun> runs = lab::PlanRuns(e);
  size_t made = 0;
  for (const lab::PlannedRun& run : runs) {
    RIDGE_ASSIGN_OR_RETURN(const lab::RunRecord record, bundle.Read(run));
    if (record.done) continue;
    Note(fmt::format("run {} of {}: {} {}", run.number + 1, runs.size(), e.flag, lab::ValueOf(e, run.arm)));
    RIDGE_RETURN_IF_ERROR(bundle.Run(run));
    made++;
    if (run.block == 0) RIDGE_RETURN_IF_ERROR(Guard(bundle, runs));
  }
  RIDGE_RETURN_IF_ERROR(Guard(bundle, runs));
  // What was sealed and not added to stays as it is: sealing it again would hide what has changed since.
  if (made > 0 || recorded || !lab::ExistsBeneath(folder, "MANIFEST")) RIDGE_RETURN_IF_ERROR(lab::SealBundle(bundle));
  Note("evidence: " + folder);
  for (const auto& [value, why] : e.not_run) Note(fmt::format("not run: {} {}: {}", e.flag, value, why));
  return TellFindings(bundle, out);
}

}  // namespace ridge::app
