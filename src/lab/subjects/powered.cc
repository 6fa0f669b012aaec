// Any subject, in the power mode that is the variable. The log's last line says which mode the machine was in, as it was read back, and whose run it was.
#include <fmt/format.h>

#include "lab/monitor/power.h"
#include "lab/monitor/recorded.h"
#include "lab/subjects/asked.h"

namespace ridge::lab {
namespace {

constexpr std::string_view kMark = "ridge lab: power mode ";

class Powered : public Subject {
 public:
  std::string_view name() const override { return "power-mode"; }

  Result<std::vector<std::string>> Command(const Experiment& e, size_t arm) const override {
    return FindSubject(e.subject)->Command(e, arm);
  }

  Result<Usage> Run(const Experiment& e, size_t arm, const RunFiles& files) const override {
    const std::string before = ReadPowerModes().current;
    RIDGE_RETURN_IF_ERROR(SetPowerMode(ValueOf(e, arm)));
    auto usage = FindSubject(e.subject)->Run(e, arm, files);
    const std::string now = ReadPowerModes().current;
    const Status back = SetPowerMode(before);
    if (!usage) return usage;
    RIDGE_RETURN_IF_ERROR(AppendLine(files.log, fmt::format("{}{} with {}", kMark, now, e.subject)));
    RIDGE_RETURN_IF_ERROR(back);
    return usage;
  }

  Result<RunOutput> Parse(std::string_view out, std::string_view log) const override {
    const size_t at = log.rfind(kMark);
    if (at == std::string_view::npos) return Fail(Code::kInvalidData, "the log says no power mode");
    const std::vector<std::string_view> words = Words(log.substr(at + kMark.size()));
    const Subject* inner = words.size() >= 3 ? FindSubject(words[2]) : nullptr;
    if (inner == nullptr) return Fail(Code::kInvalidData, "the log says no power mode");
    RIDGE_ASSIGN_OR_RETURN(RunOutput output, inner->Parse(out, log));
    output.resolved["power_mode"] = std::string(words[0]);
    return output;
  }
};

}  // namespace

const Subject& PoweredSubject() {
  static const Powered subject;
  return subject;
}

}  // namespace ridge::lab
