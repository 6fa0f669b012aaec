// ridge lab check: is the evidence as it was sealed, does everything follow from the raw files, and is the record complete?
#include <fmt/format.h>

#include "base/quantity.h"
#include "lab.h"
#include "lab/evidence/acceptance.h"
#include "lab/evidence/seal.h"
#include "model_options.h"
#include "text_table.h"

namespace ridge::app {
namespace {

Json AcceptedJson(const lab::Accepted& a) {
  Json have = Json::array(), lacks = Json::array();
  for (const lab::Bilingual& one : a.have) have.push_back(one.english);
  for (const lab::Bilingual& one : a.lacks) lacks.push_back(one.english);
  return {
      {"id", a.id}, {"title", a.title.english}, {"met", a.ok}, {"have", std::move(have)}, {"lacks", std::move(lacks)}};
}

std::string AcceptedText(const lab::Accepted& a) {
  std::string text = fmt::format("{:<8} {}\n", a.ok ? "met" : "NOT MET", a.title.english);
  for (const lab::Bilingual& one : a.have) text += "           " + Printable(one.english) + "\n";
  for (const lab::Bilingual& one : a.lacks) text += "           missing: " + Printable(one.english) + "\n";
  return text;
}

}  // namespace

Status LabCheck(const LabOptions& o, Output& out) {
  std::vector<std::string> folders;
  for (const std::string& target : o.targets) {
    RIDGE_ASSIGN_OR_RETURN(const std::vector<std::string> found, lab::FindBundles(target));
    folders.insert(folders.end(), found.begin(), found.end());
  }
  std::vector<lab::BundleEvidence> evidences;
  Json checked = Json::array();
  std::string text, first;
  size_t problems = 0;
  for (const std::string& folder : folders) {
    RIDGE_ASSIGN_OR_RETURN(const lab::Checked c, lab::CheckBundle(folder, {.rederive = o.rederive}));
    for (const std::string& p : c.problems) Note(Printable(folder + "/" + p));
    if (first.empty() && !c.problems.empty()) first = folder + "/" + c.problems[0];
    problems += c.problems.size();
    text += fmt::format(
        "{}: {}\n", Printable(folder),
        !c.problems.empty() ? Count(c.problems.size(), "problem")
        : o.rederive ? fmt::format("{} as they were sealed, and all {} that are derived follow from the raw runs",
                                   Count(c.files, "file is", "files are"), c.derived)
                     : fmt::format("{} as they were sealed, and samples.csv follows from the raw runs",
                                   Count(c.files, "file is", "files are")));
    checked.push_back({{"folder", folder}, {"files", c.files}, {"derived", c.derived}, {"problems", c.problems}});
    const auto bundle = lab::Bundle::Open(folder);
    if (!bundle) continue;
    if (auto evidence = lab::ReadEvidence(*bundle)) evidences.push_back(std::move(*evidence));
  }
  const std::vector<lab::Accepted> accepted = lab::Acceptance(evidences);
  Json acceptance = Json::array();
  bool complete = true;
  text += "\n";
  for (const lab::Accepted& a : accepted) {
    text += AcceptedText(a);
    acceptance.push_back(AcceptedJson(a));
    complete &= a.ok;
  }
  if (out.json)
    RIDGE_RETURN_IF_ERROR(out.Document({{"folders", std::move(checked)},
                                        {"problems", problems},
                                        {"acceptance", std::move(acceptance)},
                                        {"complete", complete}}));
  else
    RIDGE_RETURN_IF_ERROR(out.Write(text));
  if (problems > 0)
    return Fail(Code::kInvalidData, "the evidence does not hold")
        .Where(folders.size() == 1 ? folders[0] : Count(folders.size(), "folder"))
        .Found(first + (problems > 1 ? fmt::format(" and {} more", problems - 1) : ""));
  if (o.complete && !complete)
    return Fail(Code::kInvalidData, "the record is not complete")
        .Expected("what stands after `missing` above")
        .Remedy("run it, or record why it cannot run here");
  return {};
}

}  // namespace ridge::app
