// How many tokens a draft model is asked for: as many as are expected to pay, from measured acceptance and measured times of both models.
//
//   policy.Choose(asks, rows, most, costs);                  // sets each ask's `take`
//   policy.Learn(record, proposed, accepted);
//   policy.ObservePass(sequences, ms);   policy.ObserveCatchUp(tokens, ms);
//
// A step of `rows` tokens that decode, m sequences of which are drafted k tokens each, gives rows + (expected accepted) tokens in
// DecodeMs(rows + m k) + k passes of the draft model over m sequences. The best m and k are taken if they promise kLeastGain. A sequence that the draft
// model has not read yet joins only if the rest of its answer is expected to bring back more than the reading costs.
// Where nothing pays, one sequence is drafted once in a while, for a hundredth of the time since, to see whether that has changed.
// Guarantees: deterministic in what it was told. What it decides never changes a token, only how soon it comes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/speculation.h"
#include "engine/step_costs.h"

namespace ridge::engine {

struct DraftModelAsk {
  double odds = 0;     // that the next drafted token is accepted, if those before were
  int64_t most = 0;    // drafted tokens
  int64_t behind = 0;  // tokens that the draft model has to read first
  int64_t left = 0;    // tokens that the answer may still get
  int64_t take = 0;    // to draft now
  bool pays = false;   // the take is expected to pay, and no probe
};

class DraftModelPolicy {
 public:
  static constexpr int64_t kMostDrafts = 12;    // of one sequence in one step
  static constexpr double kProbeShare = 0.01;   // of the time, where nothing pays
  static constexpr int64_t kLeastCatchUp = 32;  // tokens of a step

  // cost_ratio: time of the draft model over the target's until both were measured; that of their sizes.
  DraftModelPolicy(int64_t max_rows, double cost_ratio) : passes_(max_rows), cost_ratio_(cost_ratio) {}

  double Odds(const DraftRecord& record) const;
  // rows: tokens that the step decodes already; most: drafts that it has room for. costs: of the target's steps.
  void Choose(std::span<DraftModelAsk> asks, int64_t rows, int64_t most, const StepCosts& costs);
  void Learn(DraftRecord& record, int64_t proposed, int64_t accepted);
  // One pass of the draft model over the latest tokens of so many sequences, drawing included.
  void ObservePass(int64_t sequences, double ms) { passes_.Observe({.decode_tokens = sequences}, ms); }
  void ObserveCatchUp(int64_t tokens, double ms) { passes_.Observe({.prompt_tokens = tokens}, ms); }
  // Tokens that the draft model may read in a step of so many rows, so that those who decode do not wait long.
  int64_t CatchUpTokens(int64_t rows, const StepCosts& costs) const;

 private:
  double PassMs(int64_t sequences, const StepCosts& costs) const;
  double CatchUpMs(int64_t tokens, const StepCosts& costs) const;

  StepCosts passes_;
  double cost_ratio_;
  DraftRecord all_;
  double idle_ms_ = 0;  // of steps since the latest drafts
  std::vector<size_t> order_;
};

}  // namespace ridge::engine
