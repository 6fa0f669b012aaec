// Speculation as a setting that `ridge tune` searches: off, lookup and auto answer the lab's fixed prompts in turns, greedily, and the time of a token
// is compared. What it gains depends on the text, so a winner is one for texts like these.
//
//   RIDGE_ASSIGN_OR_RETURN(SpeculationSearch s, SearchSpeculation(options, /*step_s=*/0.02));
//   s.elimination.winner();   // index into SpeculationSearch::kModes; off is the present one
//
// Guarantee: a mode whose answers are not those of `off`, token by token, is refused.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "engine/request.h"
#include "lab/planning/tune.h"
#include "service/runtime.h"

namespace ridge::app {

struct SpeculationSearch {
  static constexpr std::array kModes = {engine::Speculation::kOff, engine::Speculation::kLookup,
                                        engine::Speculation::kAuto};
  lab::Elimination elimination;
  std::vector<std::string> refused;  // of each mode, why; empty: it was measured
  int64_t tokens = 0;                // of an answer
};
// step_s: of one token without speculation, from which the length of the answers follows.
Result<SpeculationSearch> SearchSpeculation(service::RuntimeOptions options, double step_s);

}  // namespace ridge::app
