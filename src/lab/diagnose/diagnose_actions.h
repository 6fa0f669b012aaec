// What to do about a bottleneck: the location table, as rules with their reasons.
//
//   for (const Action& a : ActionsFor(diagnosis)) ...   // {"-t 2", "…", "measured: 1.9 times as fast"}
//
// Guarantee: what was tried stands first, with what was predicted and what came of it; what was not is marked so.
#pragma once

#include <string>
#include <vector>

#include "lab/diagnose/diagnose.h"

namespace ridge::lab {

struct Action {
  std::string action, reason;
  bool tried = false, helps = false;
};

std::vector<Action> ActionsFor(const Diagnosis& diagnosis);

}  // namespace ridge::lab
