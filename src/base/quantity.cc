#include "base/quantity.h"

#include <charconv>
#include <cmath>
#include <utility>

namespace ridge {

Result<uint64_t> ParseByteSize(std::string_view text) {
  constexpr double kMost = 1e18;
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},     {"b", 1},      {"k", 0x1p10},   {"kib", 0x1p10}, {"kb", 1e3},   {"m", 0x1p20},   {"mib", 0x1p20},
      {"mb", 1e6}, {"g", 0x1p30}, {"gib", 0x1p30}, {"gb", 1e9},     {"t", 0x1p40}, {"tib", 0x1p40}, {"tb", 1e12}};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  if (unit.size() > 1 && unit.starts_with(' ')) unit.erase(0, 1);
  for (char& c : unit) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const auto& [name, factor] : kUnits) {
    if (error != std::errc() || unit != name || std::signbit(number) || !(number * factor < kMost)) continue;
    return static_cast<uint64_t>(number * factor);
  }
  return Fail(Code::kUsage, "not a size")
      .Found(text.empty() ? "\"\"" : std::string(text))
      .Expected("a number and a unit, such as 512MiB or 2GiB");
}

}  // namespace ridge
