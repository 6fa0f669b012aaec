// Successive elimination: which of several settings is faster than the one that is there, and when to stop asking.
//
//   Elimination e({"1", "2", "4"}, 2);                 // the second one is there now
//   while (auto turn = e.Next()) e.Add(*turn, pairs_of(*turn));   // times with / without
//   e.winner();                                        // an index; the present one where no difference was proved
//
// Guarantees: pure. A setting is dropped as soon as it is proved slower (the interval of the median of its ratios, whose level is shared out over all
// comparisons and looks); one that is not proved faster by more than the floor never wins, however fast it looked.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/statistics.h"

namespace ridge::lab {

// Between order statistics, with at least this confidence; nullopt: there are too few samples for it.
std::optional<Interval> MedianIntervalAt(std::vector<double> samples, double confidence);

class Elimination {
 public:
  enum class State { kOpen, kFaster, kSlower, kNoDifference };
  struct Entry {
    std::string value;
    std::vector<double> ratios;
    State state = State::kOpen;
    std::optional<Interval> interval;
  };

  // floor: differences below are none (the A/A deviation); most_pairs: of each value.
  Elimination(const std::vector<std::string>& values, size_t present, double floor = 0.02, size_t most_pairs = 24);

  std::optional<size_t> Next() const;  // the open value with the fewest pairs; nullopt: all is decided
  void Add(size_t value, const std::vector<double>& ratios);
  size_t present() const { return present_; }
  size_t winner() const;
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
  size_t present_, most_pairs_;
  double floor_, confidence_;
};
std::string_view Name(Elimination::State state);  // "faster"

// Which value to take where each is also held to limits: the winner if it meets them, else the fastest of those that do, proved faster or not, else
// the winner. meets: of each value; nullopt: not measured.
size_t Choose(const Elimination& elimination, const std::vector<std::optional<bool>>& meets);

// How often two models find the same next token likeliest, text by text.
struct Agreement {
  int64_t positions = 0, same = 0;
};
struct Share {
  int64_t positions = 0;
  double share = 0;
  double low = 0;  // at least this, with 95 % confidence
};
// Texts are the samples, not their tokens, since neighbours are not independent; and never surer than that many independent tokens would be.
Share ShareOf(const std::vector<Agreement>& texts);

}  // namespace ridge::lab
