// ridge lab: experiments in which one setting changes, with their evidence.
#include "lab.h"

#include <memory>

#include "commands.h"

namespace ridge::app {
namespace {

Status Lab(const LabOptions& o, Output& out) {
  if (!o.out.empty() && o.action != "run") return Fail(Code::kUsage, "-o goes with run only");
  if (o.action != "run" &&
      (!o.models.empty() || !o.peer.empty() || !o.url.empty() || !o.write.empty() || !o.from.empty() || o.blocks > 0))
    return Fail(Code::kUsage, "-m, --peer, --url, --blocks, --from and --write go with run only");
  if (o.action == "list") {
    if (!o.targets.empty()) return Fail(Code::kUsage, "list takes no target").Found(o.targets[0]);
    return LabList(out);
  }
  if (o.targets.empty()) return Fail(Code::kUsage, "a target is missing").Where("TARGET").Remedy("ridge lab --help");
  if (o.targets.size() > 1) return Fail(Code::kUsage, "one target is taken").Found(o.targets[1]);
  if (o.action == "run") return LabRun(o, out);
  if (o.action == "check") return LabCheck(o, out);
  if (o.action == "report") return LabReport(o, out);
  return Fail(Code::kUsage, "unknown action").Where("ACTION").Found(o.action).Expected("list, run, check or report");
}

}  // namespace

void AddLab(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<LabOptions>();
  CLI::App* app =
      AddSubcommand(root, "lab", "experiments: one setting changes, with raw logs, monitoring and intervals",
                    "ridge lab list\n  ridge lab run threads -m smollm2:135m\n  ridge lab check threads.lab\n  ridge "
                    "lab report threads.lab");
  app->add_option("ACTION", o->action,
                  "list; run NAME or run FILE.toml (goes on where it was interrupted), check FOLDER, report FOLDER")
      ->required();
  app->add_option("TARGET", o->targets,
                  "a ready-made experiment's name, an experiment's file, or the folder of its evidence");
  app->add_option("-o,--output", o->out, "run: folder of the evidence (default: FILE.lab, NAME.lab)");
  app->add_option("-m,--model", o->models, "run NAME: the model, or several where they are compared")->expected(1, 64);
  app->add_option("--peer", o->peer,
                  "run NAME: a folder of llama.cpp's or ik_llama.cpp's programs, which are run instead of this one");
  app->add_option("--url", o->url, "run concurrency: an OpenAI-compatible server that runs already");
  app->add_option("--blocks", o->blocks, "run NAME: blocks of the experiment (default 4, the least for a verdict)")
      ->check(CLI::Range(1, 1000));
  app->add_option("--from", o->from, "run homework-N: a log that was recorded elsewhere, shown in the answer");
  app->add_option("--write", o->write, "run NAME: write the experiment's file there and run nothing");
  invocation.Bind(app, [o](Output& out) { return Lab(*o, out); });
}

}  // namespace ridge::app
