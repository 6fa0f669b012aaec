// ridge lab run: makes the runs of an experiment that are not there yet.
#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/topology.h"
#include "interrupt.h"
#include "lab.h"
#include "lab/machine.h"
#include "model_options.h"

namespace ridge::app {
namespace {

Json Environment() {
  const lab::Machine m = lab::ReadMachine();
  utsname system{};
  uname(&system);
  const auto first_line = [](const char* path) -> Json {
    std::ifstream file(path);
    std::string line;
    return std::getline(file, line) ? Json(line) : Json(nullptr);
  };
  return {{"ridge", RIDGE_VERSION},
          {"cpu", m.cpu},
          {"features", m.features},
          {"cpus", m.cpus},
          {"cores", m.cores},
          {"l2_bytes", m.l2_bytes},
          {"l3_bytes", m.l3_bytes},
          {"memory_gib", m.memory_gib},
          {"huge_pages", m.huge_pages},
          {"kernel", system.release},
          {"architecture", system.machine},
          {"governor", first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")},
          {"microcode", first_line("/sys/devices/system/cpu/cpu0/microcode/version")},
          {"hypervisor", first_line("/sys/hypervisor/type")},
          {"gpu_driver", first_line("/proc/driver/nvidia/version")},
          {"memory", ReadMemory().reason},
          {"threads", ResolveThreads({}).reason}};
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
  const std::vector<lab::PlannedRun> runs = lab::PlanRuns(e);
  for (const lab::PlannedRun& run : runs) {
    RIDGE_ASSIGN_OR_RETURN(const lab::RunRecord record, bundle.Read(run));
    if (record.done) continue;
    Note(fmt::format("run {} of {}: {} {}", run.number + 1, runs.size(), e.flag, lab::ValueOf(e, run.arm)));
    RIDGE_RETURN_IF_ERROR(bundle.Run(run));
    if (run.block == 0) RIDGE_RETURN_IF_ERROR(Guard(bundle, runs));
  }
  RIDGE_RETURN_IF_ERROR(Guard(bundle, runs));
  RIDGE_RETURN_IF_ERROR(bundle.Seal(Environment().dump(1, ' ', false, Json::error_handler_t::replace) + "\n"));
  Note("evidence: " + folder);
  for (const auto& [value, why] : e.not_run) Note(fmt::format("not run: {} {}: {}", e.flag, value, why));
  return TellReport(bundle, out, o.from);
}

}  // namespace ridge::app
