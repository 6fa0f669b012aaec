// What one experiment or several have found, as a document in one language.
//
//   const Document d = ReportOf({evidence}, ReportLanguage::kChinese);
//   WriteWhole("report.html", ToHtml({ReportOf(all, ReportLanguage::kEnglish), d}));
//
// Guarantees: every figure follows from the evidence; a cell without a value says why. Conclusions name device, model and settings and say "we saw", never that
// something is faster as such. The text is the same wherever it is made.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/evidence/acceptance.h"
#include "lab/evidence/document.h"
#include "lab/evidence/evidence.h"

namespace ridge::lab {

Document ReportOf(const std::vector<BundleEvidence>& evidences, ReportLanguage language);

// Pieces of it, in report_tables.cc, report_quality.cc, report_details.cc, report_figures.cc and report_conclusion.cc.
// Over the runs that have the figure.
std::optional<double> MedianOf(const std::vector<const EvidenceRun*>& runs, std::optional<double> Measures::* of);
std::string ShortValue(std::string_view value);                                // of a path its last part
std::string ArmLabel(const BundleEvidence& e, size_t arm);                     // "t = 2", "t = 1 (A/A)"
std::string ModelOf(const BundleEvidence& e, size_t arm, const Wording& w);    // or that it is not told
std::vector<const EvidenceRun*> RunsOf(const BundleEvidence& e, size_t arm);   // those that were measured
std::vector<const EvidenceRun*> AskedOf(const BundleEvidence& e, size_t arm);  // those that gave answers

// What one test of an arm says of its ceiling: medians over its runs.
struct ArmCeiling {
  std::string test;
  Ceiling median;
};
std::vector<ArmCeiling> CeilingsOf(const BundleEvidence& e, size_t arm);

struct ArmQuality {
  std::string text;   // prompt by prompt
  std::string brief;  // flag by flag
  bool judged = false, flagged = false;
  std::optional<bool> still_good;  // no more flagged answers than the first value has
};
ArmQuality QualityOf(const BundleEvidence& e, size_t arm, const Wording& w);

// The course's question that the experiment answers, and its answer; nothing where it is none. In report_homework.cc.
int HomeworkNumber(const Experiment& e);  // 0: the experiment is no homework
std::vector<Block> HomeworkOf(const BundleEvidence& e, const Wording& w);

DataTable RecordTable(const std::vector<BundleEvidence>& evidences, const Wording& w);  // the course's own columns
DataTable TradeTable(const BundleEvidence& e,
                     const Wording& w);  // smaller, faster, still good; no rows: nothing to weigh
DataTable EffectTable(const BundleEvidence& e, const Wording& w);
DataTable CeilingTable(const BundleEvidence& e, const Wording& w);
DataTable AccountsTable(const std::vector<BundleEvidence>& evidences, const Wording& w);
DataTable AcceptanceTable(const std::vector<Accepted>& accepted, const Wording& w);
DataTable ResolvedTable(const BundleEvidence& e, const Wording& w);
DataTable RunsTable(const BundleEvidence& e, const Wording& w);
DataTable EnvironmentTable(const BundleEvidence& e, const Wording& w);
DataTable AnswersTable(const BundleEvidence& e, const Wording& w);
std::vector<std::string> LeftOut(const BundleEvidence& e,
                                 const Wording& w);  // blocks that do not count, with the reason
std::vector<std::string> NotMonitored(const BundleEvidence& e, const Wording& w);

// Where it was seen, and what: each of `seen` is to be read after `where`.
struct Conclusion {
  std::string where;  // "On this device (…), with this model (…), …, we saw:"
  std::vector<std::string> seen;
};
Conclusion ConclusionOf(const BundleEvidence& e, const Wording& w);

std::string ForestOf(const BundleEvidence& e, const Wording& w);  // empty: nothing to show
std::string RoofOf(const BundleEvidence& e, const Wording& w);
std::string GapOf(const BundleEvidence& e, const Wording& w);
std::string TimelineOf(const BundleEvidence& e, const Wording& w);

}  // namespace ridge::lab
