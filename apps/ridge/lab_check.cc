// ridge lab check: is the evidence as it was sealed, and does what was derived follow from the raw files?
#include <fmt/format.h>

#include "lab.h"
#include "model_options.h"
#include "text_table.h"

namespace ridge::app {

Status LabCheck(const LabOptions& o, Output& out) {
  RIDGE_ASSIGN_OR_RETURN(const std::vector<std::string> problems, lab::CheckBundle(o.targets[0]));
  if (!problems.empty()) {
    for (const std::string& p : problems) Note(Printable(p));
    return Fail(Code::kInvalidData, "the evidence does not hold")
        .Where(o.targets[0])
        .Found(problems[0] + (problems.size() > 1 ? fmt::format(" and {} more", problems.size() - 1) : ""));
  }
  if (out.json) return out.Document({{"folder", o.targets[0]}, {"problems", problems}});
  return out.Write("every file is as it was sealed, and samples.csv follows from the raw runs\n");
}

}  // namespace ridge::app
