// ridge lab report: what experiments have found, as Markdown or as one HTML page, in Chinese, English or both.
#include <fmt/format.h>

#include <filesystem>

#include "lab.h"
#include "lab/evidence/document.h"
#include "lab/evidence/files.h"
#include "lab/evidence/report.h"
#include "model_options.h"
#include "text_table.h"

namespace ridge::app {
namespace {

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

Json EvidenceJson(const lab::BundleEvidence& e) {
  Json findings = Json::array();
  for (const lab::Finding& f : e.findings) findings.push_back(FindingJson(f));
  const lab::Conclusion conclusion = lab::ConclusionOf(e, {lab::ReportLanguage::kEnglish});
  Json not_run = Json::object();
  for (const auto& [value, why] : e.experiment.not_run) not_run[value] = why;
  return {{"name", e.experiment.name},
          {"folder", e.folder},
          {"hardware", e.hardware.empty() ? Json(nullptr) : Json(e.hardware)},
          {"flag", e.experiment.flag},
          {"runs", e.runs.size()},
          {"planned", e.planned},
          {"samples", e.samples.size()},
          {"findings", std::move(findings)},
          {"not_run", std::move(not_run)},
          {"where", conclusion.where},
          {"seen", conclusion.seen}};
}

Result<std::vector<lab::ReportLanguage>> Languages(const std::string& name) {
  if (name == "en") return std::vector{lab::ReportLanguage::kEnglish};
  if (name == "zh") return std::vector{lab::ReportLanguage::kChinese};
  if (name == "both") return std::vector{lab::ReportLanguage::kEnglish, lab::ReportLanguage::kChinese};
  return Fail(Code::kUsage, "unknown language").Where("--lang").Found(name).Expected("zh, en or both");
}

// Of the file, resolved, one that lies in sealed evidence.
bool LiesIn(const std::string& file, const std::string& folder) {
  std::error_code error;
  const auto inner = std::filesystem::weakly_canonical(file, error)
                         .lexically_relative(std::filesystem::weakly_canonical(folder, error));
  return !error && !inner.empty() && *inner.begin() != "..";
}

}  // namespace

Status TellFindings(const lab::Bundle& bundle, Output& out) {
  RIDGE_ASSIGN_OR_RETURN(const lab::BundleEvidence evidence, lab::ReadEvidence(bundle));
  std::string homework;
  if (lab::HomeworkNumber(bundle.experiment()) > 0) {
    // The title is the document's: here the answer stands in the text.
    for (const lab::ReportLanguage language : {lab::ReportLanguage::kEnglish, lab::ReportLanguage::kChinese}) {
      lab::Document d{.language = language, .title = evidence.experiment.name};
      for (lab::Block& block : lab::HomeworkOf(evidence, {language})) d.Add(std::move(block));
      const std::string text = lab::ToMarkdown({d});
      homework += (homework.empty() ? "" : "\n") + text.substr(std::min(text.find("\n\n") + 2, text.size()));
    }
  }
  if (out.json) {
    Json document = EvidenceJson(evidence);
    document["homework"] = homework.empty() ? Json(nullptr) : Json(homework);
    return out.Document(document);
  }
  const lab::Conclusion c = lab::ConclusionOf(evidence, {lab::ReportLanguage::kEnglish});
  std::string text = c.where.empty() ? "" : Printable(c.where) + "\n";
  for (const std::string& seen : c.seen) text += "- " + Printable(seen) + "\n";
  return out.Write(text + (homework.empty() ? "" : "\n" + homework));
}

Status LabReport(const LabOptions& o, Output& out) {
  RIDGE_ASSIGN_OR_RETURN(const std::vector<lab::ReportLanguage> languages, Languages(o.language));
  const bool html = o.out.ends_with(".html") || o.out.ends_with(".htm");
  if (!o.out.empty() && !html && !o.out.ends_with(".md"))
    return Fail(Code::kUsage, "unknown form of a report")
        .Where("-o")
        .Found(o.out)
        .Expected("a name that ends in .md or .html");
  std::vector<lab::BundleEvidence> evidences;
  for (const std::string& target : o.targets) {
    RIDGE_ASSIGN_OR_RETURN(const std::vector<std::string> folders, lab::FindBundles(target));
    for (const std::string& folder : folders) {
      if (!o.out.empty() && LiesIn(o.out, folder))
        return Fail(Code::kUsage, "the report would lie in sealed evidence")
            .Where("-o")
            .Found(o.out)
            .Remedy("write it beside the folder; one of this experiment alone is in it already");
      RIDGE_ASSIGN_OR_RETURN(const lab::Bundle bundle, lab::Bundle::Open(folder));
      RIDGE_ASSIGN_OR_RETURN(lab::BundleEvidence evidence, lab::ReadEvidence(bundle));
      evidences.push_back(std::move(evidence));
    }
  }
  std::vector<lab::Document> documents;
  for (const lab::ReportLanguage language : languages) documents.push_back(lab::ReportOf(evidences, language));
  if (!o.out.empty()) {
    RIDGE_RETURN_IF_ERROR(lab::WriteWhole(o.out, html ? lab::ToHtml(documents) : lab::ToMarkdown(documents)));
    Note("report: " + o.out);
  }
  if (out.json) {
    Json all = Json::array();
    for (const lab::BundleEvidence& e : evidences) all.push_back(EvidenceJson(e));
    return out.Document(evidences.size() == 1 ? all[0] : Json{{"experiments", std::move(all)}});
  }
  return o.out.empty() ? out.Write(lab::ToMarkdown(documents)) : Status();
}

}  // namespace ridge::app
