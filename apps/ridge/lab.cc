// ridge lab: experiments in which one setting changes, with their evidence.
#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "base/topology.h"
#include "commands.h"
#include "interrupt.h"
#include "lab/bundle.h"
#include "lab/machine.h"
#include "model_options.h"
#include "text_table.h"

namespace ridge::app {
namespace {

struct Options {
  std::string action, target, out;
};

std::string Hardware() {
  const lab::Machine m = lab::ReadMachine();
  return fmt::format("{}, {} CPUs, {} GiB", Printable(m.cpu), m.cpus, m.memory_gib);
}

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

Json FindingJson(const lab::Finding& f) {
  const auto number = [](const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); };
  return {{"test", f.test},
          {"value", f.value},
          {"arm", f.arm},
          {"median", number(f.median)},
          {"unit", f.unit},
          {"ratio", number(f.ratio)},
          {"ratio_low", number(f.low)},
          {"ratio_high", number(f.high)},
          {"confidence", f.confidence},
          {"floor", f.floor},
          {"blocks", f.blocks},
          {"blocks_left_out", f.left_out},
          {"verdict", f.verdict},
          {"better", f.better}};
}

Status Tell(const lab::Bundle& bundle, Output& out) {
  RIDGE_ASSIGN_OR_RETURN(const std::vector<lab::RunSample> samples, bundle.Samples());
  RIDGE_ASSIGN_OR_RETURN(const std::string report, lab::ReportMarkdown(bundle, Hardware()));
  if (!out.json) return out.Write(report);
  Json findings = Json::array();
  for (const lab::Finding& f : lab::Analyse(bundle.experiment(), samples)) findings.push_back(FindingJson(f));
  return out.Document({{"name", bundle.experiment().name},
                       {"folder", bundle.folder()},
                       {"flag", bundle.experiment().flag},
                       {"samples", samples.size()},
                       {"findings", std::move(findings)}});
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

Status Run(const Options& o, Output& out) {
  Interrupt interrupt(out.json);
  std::ifstream file(o.target, std::ios::binary);
  if (!file) return Fail(Code::kNotFound, "cannot open the experiment").Where(o.target).Remedy("check the path");
  const std::string toml(std::istreambuf_iterator<char>(file), {});
  const std::string folder = o.out.empty() ? std::filesystem::path(o.target).replace_extension(".lab").string() : o.out;
  auto opened = lab::Bundle::Create(folder, toml);
  if (!opened) {
    if (opened.error().code == Code::kInvalidData)
      opened.error().where = o.target + (opened.error().where.empty() ? "" : ": " + opened.error().where);
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
  return Tell(bundle, out);
}

Status Check(const Options& o, Output& out) {
  RIDGE_ASSIGN_OR_RETURN(const std::vector<std::string> problems, lab::CheckBundle(o.target));
  if (!problems.empty()) {
    for (const std::string& p : problems) Note(Printable(p));
    return Fail(Code::kInvalidData, "the evidence does not hold")
        .Where(o.target)
        .Found(problems[0] + (problems.size() > 1 ? fmt::format(" and {} more", problems.size() - 1) : ""));
  }
  if (out.json) return out.Document({{"folder", o.target}, {"problems", problems}});
  return out.Write("every file is as it was sealed, and samples.csv follows from the raw runs\n");
}

Status Lab(const Options& o, Output& out) {
  if (!o.out.empty() && o.action != "run") return Fail(Code::kUsage, "-o goes with run only");
  if (o.action == "run") return Run(o, out);
  if (o.action == "check") return Check(o, out);
  if (o.action == "report") {
    RIDGE_ASSIGN_OR_RETURN(const lab::Bundle bundle, lab::Bundle::Open(o.target));
    return Tell(bundle, out);
  }
  return Fail(Code::kUsage, "unknown action").Where("ACTION").Found(o.action).Expected("run, check or report");
}

}  // namespace

void AddLab(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<Options>();
  CLI::App* app =
      AddSubcommand(root, "lab", "experiments: one setting changes, with raw logs, monitoring and intervals",
                    "ridge lab run threads.toml\n  ridge lab check threads.lab\n  ridge lab report threads.lab");
  app->add_option("ACTION", o->action, "run FILE.toml (goes on where it was interrupted), check FOLDER, report FOLDER")
      ->required();
  app->add_option("TARGET", o->target, "the experiment's file, or the folder of its evidence")->required();
  app->add_option("-o,--output", o->out, "run: folder of the evidence (default: FILE.lab)");
  invocation.Bind(app, [o](Output& out) { return Lab(*o, out); });
}

}  // namespace ridge::app
