// Two results of the same work, made one after the other: has it become slower?
//
//   RIDGE_ASSIGN_OR_RETURN(Comparison c, ReadComparison("before.lab", "after.lab", {}));     // or files of bench -o json
//   for (const CompareCase& one : c.cases) const Compared r = Compare(one, 0.03);            // r.gate: "slower than allowed"
//
// The samples of both sides are independent: blocks of an experiment, repetitions of a bench. The shift between them is the median of all differences of two logarithms
// (Hodges and Lehmann), its interval that of the rank sum (Mann and Whitney), exact. A difference is claimed only where the interval excludes "the same" and the shift is
// beyond what identical runs of either side differ by. Guarantees: nothing is compared that was not run with the same resolved settings on the same machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace ridge::lab {

// Of b - a, in the unit of the samples.
struct Shift {
  double value = 0, low = 0, high = 0, confidence = 0;
};
// nullopt for an empty side. With few samples the confidence is less than 95 %: it says what it is (3 and 3: 90 %).
std::optional<Shift> ShiftBetween(const std::vector<double>& a, const std::vector<double>& b);
// Probability that the rank sum statistic of m and n samples is at most u, where both are of one kind.
double RankSumAtMost(size_t u, size_t m, size_t n);

struct CompareCase {
  std::string name, unit;
  bool higher_is_better = true;
  std::vector<double> a, b;  // logarithms of figures
  double floor = 0;          // what identical runs differ by, as a logarithm
  std::string floor_from;    // which
};

struct Compared {
  std::optional<double> a, b;              // medians of the figures
  std::optional<double> ratio, low, high;  // b over a
  double confidence = 0;
  std::string verdict;  // "slower", "faster", "worse", "better", "no difference", "undetermined: …"
  std::string gate;     // with a bound: "slower than allowed", "within the bound", "undetermined: …"; else empty
};
// bound: the largest loss that is allowed, as a share (0.03); none: no gate.
Compared Compare(const CompareCase& one, std::optional<double> bound);

struct Comparison {
  std::vector<CompareCase> cases;
  std::vector<std::string> only_one;  // cases of one side: not compared
};
// again: a second result of what `a` is of, made after `b`: what differs between a and again is no effect of b. Empty: none.
// Errors: kInvalidArgument where settings or machines differ, or nothing is common; those of reading.
Result<Comparison> ReadComparison(const std::string& a, const std::string& b, const std::string& again);

// "3%" -> 0.03. Errors: kUsage.
Result<double> ParsePercent(const std::string& text);

}  // namespace ridge::lab
