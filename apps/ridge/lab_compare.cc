// ridge lab compare: two results of the same work; status 1 where a loss above the bound is proved.
#include <fmt/format.h>

#include <cmath>

#include "lab.h"
#include "lab/evidence/compare.h"
#include "model_options.h"
#include "text_table.h"

namespace ridge::app {
namespace {

std::string Percent(double log_ratio) { return fmt::format("{:.1f} %", 100 * std::expm1(log_ratio)); }

Json CaseJson(const lab::CompareCase& one, const lab::Compared& r) {
  const auto number = [](const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); };
  return {{"case", one.name},
          {"unit", one.unit},
          {"a", number(r.a)},
          {"b", number(r.b)},
          {"ratio", number(r.ratio)},
          {"ratio_low", number(r.low)},
          {"ratio_high", number(r.high)},
          {"confidence", r.confidence},
          {"samples_a", one.a.size()},
          {"samples_b", one.b.size()},
          {"floor", one.floor},
          {"floor_from", one.floor_from.empty() ? Json(nullptr) : Json(one.floor_from)},
          {"verdict", r.verdict},
          {"gate", r.gate.empty() ? Json(nullptr) : Json(r.gate)}};
}

}  // namespace

Status LabCompare(const LabOptions& o, Output& out) {
  if (o.targets.size() != 2)
    return Fail(Code::kUsage, "compare takes two results")
        .Found(std::to_string(o.targets.size()))
        .Expected("A B: folders of evidence, or files of bench -o json");
  std::optional<double> bound;
  if (!o.fail_on.empty()) {
    RIDGE_ASSIGN_OR_RETURN(bound, lab::ParsePercent(o.fail_on));
  }
  RIDGE_ASSIGN_OR_RETURN(const lab::Comparison c, lab::ReadComparison(o.targets[0], o.targets[1], o.again));
  TextTable table(
      {{"case"}, {"A", true}, {"B", true}, {"B/A", true}, {"interval", true}, {"identical runs", true}, {"verdict"}});
  Json cases = Json::array();
  std::string notes, worst;
  size_t failed = 0, open = 0;
  for (const lab::CompareCase& one : c.cases) {
    const lab::Compared r = lab::Compare(one, bound);
    cases.push_back(CaseJson(one, r));
    const auto value = [&](const std::optional<double>& v) { return v ? fmt::format("{:.2f} {}", *v, one.unit) : "-"; };
    const std::string verdict = r.gate.empty()                       ? r.verdict
                                : r.gate.starts_with("undetermined") ? "undetermined"
                                                                     : r.gate;
    table.Row({Printable(one.name), value(r.a), value(r.b), r.ratio ? fmt::format("{:.3f}", *r.ratio) : "-",
               r.low ? fmt::format("{:.3f} to {:.3f} ({:.0f} %)", *r.low, *r.high, 100 * r.confidence) : "-",
               one.floor_from.empty() ? "not known" : Percent(one.floor), verdict});
    const std::string& said = r.gate.empty() ? r.verdict : r.gate;
    if (said.starts_with("undetermined")) notes += fmt::format("{}: {}\n", Printable(one.name), said), open++;
    if (!r.gate.ends_with("than allowed")) continue;
    failed++;
    if (worst.empty()) worst = fmt::format("{}: B/A {:.3f}, {:.3f} to {:.3f}", one.name, *r.ratio, *r.low, *r.high);
  }
  for (const std::string& name : c.only_one) notes += "not compared: " + Printable(name) + "\n";
  const std::string sum =
      !bound       ? ""
      : failed > 0 ? fmt::format("failed: {} of {} cases lost more than {}\n", failed, c.cases.size(), o.fail_on)
      : open > 0
          ? fmt::format("passed, but {} of {} cases are undetermined: no loss above {} is proved, and none excluded\n",
                        open, c.cases.size(), o.fail_on)
          : fmt::format("passed: no case lost more than {}\n", o.fail_on);
  if (out.json)
    RIDGE_RETURN_IF_ERROR(out.Document({{"a", o.targets[0]},
                                        {"b", o.targets[1]},
                                        {"fail_on", bound ? Json(*bound) : Json(nullptr)},
                                        {"cases", std::move(cases)},
                                        {"not_compared", c.only_one},
                                        {"failed", failed},
                                        {"undetermined", open},
                                        {"passed", bound ? Json(failed == 0) : Json(nullptr)}}));
  else
    RIDGE_RETURN_IF_ERROR(
        out.Write(table.Text() + (notes.empty() ? "" : "\n" + notes) + (sum.empty() ? "" : "\n" + sum)));
  if (failed == 0) return {};
  return Fail(Code::kOutOfRange, "a loss above the bound")
      .Where(o.targets[1])
      .Found(worst)
      .Expected(fmt::format("at most {} below {}", o.fail_on, o.targets[0]));
}

}  // namespace ridge::app
