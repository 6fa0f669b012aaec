#include "bench_sweep.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace ridge::app {
namespace {

constexpr int64_t kMost = int64_t{1} << 31;
constexpr size_t kMostValues = 1000;

// Takes a number from the front of `text`.
bool TakeNumber(std::string_view& text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value > kMost) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool Expand(std::string_view item, std::vector<int64_t>& out) {
  int64_t first = 0, last = 0, step = 1;
  if (!TakeNumber(item, first)) return false;
  if (item.empty()) {
    out.push_back(first);
    return true;
  }
  if (!item.starts_with('-')) return false;
  item.remove_prefix(1);
  if (!TakeNumber(item, last) || last < first) return false;
  char how = '+';
  if (!item.empty()) {
    how = item[0];
    item.remove_prefix(1);
    if ((how != '+' && how != '*') || !TakeNumber(item, step) || !item.empty()) return false;
  }
  if (step < 1 || (how == '*' && (step < 2 || first == 0))) return false;  // would not get anywhere
  for (int64_t v = first; v <= last && out.size() <= kMostValues; v = how == '+' ? v + step : v * step)
    out.push_back(v);
  return true;
}

}  // namespace

std::vector<std::string> SplitList(std::string_view list) {
  std::vector<std::string> items;
  for (;;) {
    const size_t comma = list.find(',');
    items.emplace_back(list.substr(0, comma));
    if (comma == list.npos) return items;
    list.remove_prefix(comma + 1);
  }
}

Result<std::vector<int64_t>> ParseNumbers(const std::string& flag, std::string_view list) {
  std::vector<int64_t> values;
  for (const std::string& item : SplitList(list)) {
    if (!Expand(item, values) || values.size() > kMostValues) {
      return Fail(Code::kUsage, "not a list of numbers")
          .Where(flag)
          .Found("\"" + std::string(list) + "\"")
          .Expected("N, a,b,c, a-b, a-b+step or a-b*factor");
    }
  }
  return values;
}

Statistics Summarize(std::vector<double> samples) {
  Statistics s;
  if (samples.empty()) return s;
  const double n = static_cast<double>(samples.size());
  for (double v : samples) s.mean += v / n;
  for (double v : samples) s.stddev += (v - s.mean) * (v - s.mean);
  s.stddev = samples.size() > 1 ? std::sqrt(s.stddev / (n - 1)) : 0;
  std::sort(samples.begin(), samples.end());
  const size_t half = samples.size() / 2;
  s.median = samples.size() % 2 == 1 ? samples[half] : (samples[half - 1] + samples[half]) / 2;
  return s;
}

}  // namespace ridge::app
