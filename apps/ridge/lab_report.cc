// ridge lab report: what an experiment has found.
#include <fmt/format.h>

#include "lab.h"
#include "lab/homework.h"
#include "lab/machine.h"
#include "text_table.h"

namespace ridge::app {
namespace {

std::string Hardware() {
  const lab::Machine m = lab::ReadMachine();
  return fmt::format("{}, {} CPUs, {} GiB", Printable(m.cpu), m.cpus, m.memory_gib);
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

}  // namespace

Status TellReport(const lab::Bundle& bundle, Output& out, const std::string& from) {
  RIDGE_ASSIGN_OR_RETURN(const std::vector<lab::RunSample> samples, bundle.Samples());
  RIDGE_ASSIGN_OR_RETURN(const std::string report, lab::ReportMarkdown(bundle, Hardware()));
  std::string homework;
  if (lab::HomeworkNumber(bundle.experiment()) > 0) {
    RIDGE_ASSIGN_OR_RETURN(homework, HomeworkText(bundle, from));
  }
  if (!out.json) return out.Write(report + (homework.empty() ? "" : "\n" + homework));
  Json findings = Json::array();
  for (const lab::Finding& f : lab::Analyse(bundle.experiment(), samples)) findings.push_back(FindingJson(f));
  return out.Document({{"name", bundle.experiment().name},
                       {"folder", bundle.folder()},
                       {"flag", bundle.experiment().flag},
                       {"samples", samples.size()},
                       {"not_run", bundle.experiment().not_run},
                       {"homework", homework.empty() ? Json(nullptr) : Json(homework)},
                       {"findings", std::move(findings)}});
}

Status LabReport(const LabOptions& o, Output& out) {
  RIDGE_ASSIGN_OR_RETURN(const lab::Bundle bundle, lab::Bundle::Open(o.targets[0]));
  return TellReport(bundle, out);
}

}  // namespace ridge::app
