// ridge lab: experiments in which one setting changes, with their evidence.
#include "lab.h"

#include <memory>

#include "commands.h"

namespace ridge::app {
namespace {

// What each action takes besides its targets; a flag of another one is refused, never ignored.
Status CheckFlags(const LabOptions& o) {
  const auto refuse = [&](const char* flag, const char* with) -> Status {
    return Fail(Code::kUsage, fmt::format("{} goes with {} only", flag, with)).Where(flag).Found("lab " + o.action);
  };
  if (!o.out.empty() && o.action != "run" && o.action != "report") return refuse("-o", "run and report");
  if (o.language != "both" && o.action != "report") return refuse("--lang", "report");
  if (o.rederive && o.action != "check") return refuse("--rederive", "check");
  if (o.complete && o.action != "check") return refuse("--complete", "check");
  if (!o.fail_on.empty() && o.action != "compare") return refuse("--fail-on", "compare");
  if (!o.again.empty() && o.action != "compare") return refuse("--again", "compare");
  if (o.action != "run" &&
      (!o.models.empty() || !o.peer.empty() || !o.url.empty() || !o.write.empty() || !o.from.empty() || o.blocks > 0))
    return Fail(Code::kUsage, "-m, --peer, --url, --blocks, --from and --write go with run only");
  if (o.action == "list" && !o.targets.empty()) return Fail(Code::kUsage, "list takes no target").Found(o.targets[0]);
  if (o.action != "list" && o.targets.empty())
    return Fail(Code::kUsage, "a target is missing").Where("TARGET").Remedy("ridge lab --help");
  for (const std::string& target : o.targets) {
    if (target.empty())
      return Fail(Code::kUsage, "a target is empty").Where("TARGET").Found("\"\"").Remedy("is a variable unset?");
  }
  if (o.action == "run" && o.targets.size() > 1) return Fail(Code::kUsage, "run takes one file").Found(o.targets[1]);
  return {};
}

Status Lab(const LabOptions& o, Output& out) {
  RIDGE_RETURN_IF_ERROR(CheckFlags(o));
  if (o.action == "list") return LabList(out);
  if (o.action == "run") return LabRun(o, out);
  if (o.action == "check") return LabCheck(o, out);
  if (o.action == "report") return LabReport(o, out);
  if (o.action == "compare") return LabCompare(o, out);
  return Fail(Code::kUsage, "unknown action")
      .Where("ACTION")
      .Found(o.action)
      .Expected("list, run, check, report or compare");
}

}  // namespace

void AddLab(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<LabOptions>();
  CLI::App* app = AddSubcommand(
      root, "lab", "experiments: one setting changes, with raw logs, monitoring and intervals",
      "ridge lab list\n  ridge lab run threads -m smollm2:135m\n  ridge lab check threads.lab --rederive\n"
      "  ridge lab report threads.lab --lang zh -o report.html\n"
      "  ridge lab compare before.lab after.lab --fail-on 3%");
  app->add_option("ACTION", o->action,
                  "list: the ready-made experiments\n"
                  "run NAME, run FILE.toml: makes an experiment, or goes on where it was interrupted\n"
                  "check FOLDER...: is the evidence as it was sealed, and is the record complete?\n"
                  "report FOLDER...: what was found\n"
                  "compare A B: two results of the same work, folders or files of bench -o json")
      ->required();
  app->add_option("TARGET", o->targets,
                  "run: a ready-made experiment's name or an experiment's file; else folders of evidence, or folders "
                  "that hold some");
  app->add_option("-o,--output", o->out,
                  "run: folder of the evidence (default: FILE.lab, NAME.lab); report: a file .md or .html (default: "
                  "Markdown on stdout)");
  app->add_option("-m,--model", o->models, "run NAME: the model, or several where they are compared")->expected(1, 64);
  app->add_option("--peer", o->peer,
                  "run NAME: a folder of llama.cpp's or ik_llama.cpp's programs, which are run instead of this one");
  app->add_option("--url", o->url, "run concurrency: an OpenAI-compatible server that runs already");
  app->add_option("--blocks", o->blocks,
                  "run NAME: blocks of the experiment (default 6; 4 quiet ones are needed for a verdict)")
      ->check(CLI::Range(1, 1000));
  app->add_option(
      "--from", o->from,
      "run homework-N: a log that was recorded elsewhere; it is kept in the evidence and shown in the answer");
  app->add_option("--write", o->write, "run NAME: write the experiment's file there and run nothing");
  app->add_option("--lang", o->language, "report: zh, en or both")->capture_default_str();
  app->add_flag("--rederive", o->rederive,
                "check: make every derived file (tables, figures, database, trace) again from the raw runs and "
                "compare, bit for bit");
  app->add_flag("--complete", o->complete,
                "check: fail where the record lacks what is asked for: offload, context and format covered, raw logs, "
                "monitoring, "
                "a bottleneck named, quality judged");
  app->add_option(
      "--fail-on", o->fail_on,
      "compare: status 1 where a loss above this percentage is proved, beyond what identical runs differ by");
  app->add_option(
      "--again", o->again,
      "compare: a second result of what A is of, made after B: what differs between these two is no effect");
  invocation.Bind(app, [o](Output& out) { return Lab(*o, out); });
}

}  // namespace ridge::app
