// ridge lab: experiments in which one setting changes, with their evidence.
#include "lab.h"

#include <memory>

#include "commands.h"

namespace ridge::app {
namespace {

Status Lab(const LabOptions& o, Output& out) {
  if (!o.out.empty() && o.action != "run") return Fail(Code::kUsage, "-o goes with run only");
  if (o.targets.size() > 1) return Fail(Code::kUsage, "one target is taken").Found(o.targets[1]);
  if (o.action == "run") return LabRun(o, out);
  if (o.action == "check") return LabCheck(o, out);
  if (o.action == "report") return LabReport(o, out);
  return Fail(Code::kUsage, "unknown action").Where("ACTION").Found(o.action).Expected("run, check or report");
}

}  // namespace

void AddLab(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<LabOptions>();
  CLI::App* app =
      AddSubcommand(root, "lab", "experiments: one setting changes, with raw logs, monitoring and intervals",
                    "ridge lab run threads.toml\n  ridge lab check threads.lab\n  ridge lab report threads.lab");
  app->add_option("ACTION", o->action, "run FILE.toml (goes on where it was interrupted), check FOLDER, report FOLDER")
      ->required();
  app->add_option("TARGET", o->targets, "the experiment's file, or the folder of its evidence")->required();
  app->add_option("-o,--output", o->out, "run: folder of the evidence (default: FILE.lab)");
  invocation.Bind(app, [o](Output& out) { return Lab(*o, out); });
}

}  // namespace ridge::app
