#include "lab/planning/tune.h"

#include <algorithm>
#include <cmath>

namespace ridge::lab {
namespace {

constexpr double kError = 0.05;  // of all comparisons together
constexpr double kLooks = 3;     // at about 8, 16 and 24 pairs

}  // namespace

std::optional<Interval> MedianIntervalAt(std::vector<double> samples, double confidence) {
  const size_t n = samples.size();
  if (n < 2 || n > 1000) return std::nullopt;
  std::sort(samples.begin(), samples.end());
  // Both tails outside the k-th smallest and k-th largest: 2 * P(Binomial(n, 1/2) <= k).
  double term = std::exp2(-static_cast<double>(n)), tail = term;
  if (1 - 2 * tail < confidence) return std::nullopt;
  size_t k = 0;
  double held = 1 - 2 * tail;
  for (size_t next = 1; next < n / 2; next++) {
    term *= static_cast<double>(n - next + 1) / static_cast<double>(next);
    tail += term;
    if (1 - 2 * tail < confidence) break;
    k = next;
    held = 1 - 2 * tail;
  }
  return Interval{samples[k], samples[n - 1 - k], held};
}

Elimination::Elimination(const std::vector<std::string>& values, size_t present, double floor, size_t most_pairs)
    : present_(present), most_pairs_(most_pairs), floor_(floor) {
  for (const std::string& value : values) entries_.push_back({.value = value});
  const double comparisons = std::max<double>(1, static_cast<double>(values.size()) - 1);
  confidence_ = 1 - kError / (comparisons * kLooks);
  entries_[present_].state = State::kNoDifference;
}

std::optional<size_t> Elimination::Next() const {
  std::optional<size_t> next;
  for (size_t i = 0; i < entries_.size(); i++) {
    if (entries_[i].state != State::kOpen) continue;
    if (!next || entries_[i].ratios.size() < entries_[*next].ratios.size()) next = i;
  }
  return next;
}

void Elimination::Add(size_t value, const std::vector<double>& ratios) {
  Entry& e = entries_[value];
  e.ratios.insert(e.ratios.end(), ratios.begin(), ratios.end());
  e.interval = MedianIntervalAt(e.ratios, confidence_);
  const bool last = e.ratios.size() >= most_pairs_ || ratios.empty();
  if (e.interval && e.interval->low > 1 + floor_)
    e.state = State::kSlower;
  else if (last)
    e.state = e.interval && e.interval->high < 1 - floor_ ? State::kFaster : State::kNoDifference;
}

size_t Elimination::winner() const {
  size_t best = present_;
  double ratio = 1;
  for (size_t i = 0; i < entries_.size(); i++) {
    if (entries_[i].state != State::kFaster || Median(entries_[i].ratios) >= ratio) continue;
    best = i;
    ratio = Median(entries_[i].ratios);
  }
  return best;
}

std::string_view Name(Elimination::State state) {
  switch (state) {
    case Elimination::State::kOpen: return "open";
    case Elimination::State::kFaster: return "faster";
    case Elimination::State::kSlower: return "slower";
    case Elimination::State::kNoDifference: return "no difference";
  }
  return "?";
}

}  // namespace ridge::lab
