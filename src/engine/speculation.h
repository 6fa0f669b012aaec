// How many drafted tokens a step verifies: as many as are expected to pay, from measured acceptance and measured step times.
//
//   policy.Choose(drafts, rows, most, costs);               // sets each draft's `take`
//   policy.Learn(record, match, proposed, accepted);
//
// A step of r tokens that decode and j drafts gives r + (expected accepted) tokens in DecodeMs(r + j). The drafts with the best odds are added as
// long as tokens per time grow; they must promise kLeastGain, or none is taken. What a draft's odds are is learnt apart for each length of the match
// (engine-wide) and for each sequence, so drafting stops by itself where it does not pay.
// Guarantees: deterministic in what it was told. What it decides never changes a token, only how soon it comes.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "engine/step_costs.h"

namespace ridge::engine {

struct DraftRecord {  // of tokens; older ones count less
  double accepted = 0, refused = 0;
};
// Of tokens that are accepted, where `prior` is what is expected of a record without any.
double Rate(const DraftRecord& record, double prior);
// Adds the outcome of one step; a record of more than `most` tokens forgets half.
void Count(DraftRecord& record, int64_t accepted, bool refused, double most);

struct DraftChoice {
  double odds = 0;   // that the next drafted token is accepted, if those before were
  int64_t most = 0;  // drafted tokens
  int64_t take = 0;  // of them
};

class DraftPolicy {
 public:
  static constexpr double kLeastGain = 1.04;
  static constexpr int64_t kMostDrafts = 16;  // of one sequence in one step

  double Odds(const DraftRecord& record, int64_t match) const;
  // most: drafts of all sequences that the step has room for.
  void Choose(std::span<DraftChoice> drafts, int64_t rows, int64_t most, const StepCosts& costs) const;
  void Learn(DraftRecord& record, int64_t match, int64_t proposed, int64_t accepted);

 private:
  static size_t Bucket(int64_t match);

  std::array<DraftRecord, 5> by_match_ = {};
};

}  // namespace ridge::engine
