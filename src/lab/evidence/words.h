// The two languages of a report.
//
//   const Wording w{ReportLanguage::kChinese};
//   w("faster", "更快")    w.Reason("no zones in /sys/class/thermal")
//
// Reasons that the lab itself gives are known here in both; any other text (a line of a log) stands as it is.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lab/evidence/document.h"

namespace ridge::lab {

struct Wording {
  ReportLanguage language = ReportLanguage::kEnglish;
  bool chinese() const { return language == ReportLanguage::kChinese; }
  std::string operator()(std::string_view english, std::string_view chinese_text) const {
    return std::string(chinese() ? chinese_text : english);
  }
  std::string Reason(std::string_view english) const;
  std::string Test(std::string_view test) const;        // of Measured::test: "first token"; "pp64" stands as it is
  std::string Flag(std::string_view flag) const;        // of Answer::flags
  std::string Verdict(std::string_view verdict) const;  // of Finding::verdict
  std::string Bound(std::string_view bound) const;      // "memory" …
  std::string List(const std::vector<std::string>& items) const;
};

// Three to four digits that matter: 1234, 412, 61.2, 0.845.
std::string Short(double value);
std::string Short(const std::optional<double>& value, std::string_view none);

}  // namespace ridge::lab
