#include "lab/planning/tune.h"

#include <algorithm>
#include <cmath>

namespace ridge::lab {
namespace {

constexpr double kError = 0.05;  // of all comparisons together
constexpr double kLooks = 3;     // at about 8, 16 and 24 pairs

constexpr double kOneSided = 1.6449;  // of the normal distribution, 95 %

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

size_t Choose(const Elimination& elimination, const std::vector<std::optional<bool>>& meets) {
  const size_t winner = elimination.winner();
  if (meets[winner].value_or(true)) return winner;
  const auto ratio = [&](size_t i) {
    const auto& ratios = elimination.entries()[i].ratios;
    return ratios.empty() ? 1 : Median(ratios);
  };
  std::optional<size_t> best;
  for (size_t i = 0; i < meets.size(); i++) {
    if (meets[i].value_or(false) && (!best || ratio(i) < ratio(*best))) best = i;
  }
  return best.value_or(winner);
}

Share ShareOf(const std::vector<Agreement>& texts) {
  double n = 0, positions = 0, same = 0;
  for (const Agreement& t : texts) {
    n += 1;
    positions += static_cast<double>(t.positions);
    same += static_cast<double>(t.same);
  }
  if (positions == 0) return {};
  const double share = same / positions, z2 = kOneSided * kOneSided;
  // Wilson's lower limit for independent tokens.
  const double tokens = (share + z2 / (2 * positions) -
                         kOneSided * std::sqrt(share * (1 - share) / positions + z2 / (4 * positions * positions))) /
                        (1 + z2 / positions);
  if (n < 2) return {static_cast<int64_t>(positions), share, 0};  // one text says nothing of others
  // The ratio of two sums over texts (Cochran, Sampling Techniques, 6.4), with Student's t for as many texts (Abramowitz and Stegun 26.7.5).
  double squares = 0;
  for (const Agreement& t : texts) {
    const double off = static_cast<double>(t.same) - share * static_cast<double>(t.positions);
    squares += off * off;
  }
  const double freedom = n - 1, z3 = z2 * kOneSided, z5 = z3 * z2;
  const double t =
      kOneSided + (z3 + kOneSided) / (4 * freedom) + (5 * z5 + 16 * z3 + 3 * kOneSided) / (96 * freedom * freedom);
  const double error = std::sqrt(n / freedom * squares) / positions;
  return {static_cast<int64_t>(positions), share, std::max(0.0, std::min(tokens, share - t * error))};
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
