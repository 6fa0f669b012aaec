// One line of `ridge doctor`, and the checks that stand in files of their own.
//
//   for (const Check& check : MachineChecks(threads)) ...      // swap, NUMA, throttling, steal, memory speed, …
//   RIDGE_ASSIGN_OR_RETURN(auto checks, ModelChecks({.model = "smollm2:135m"}));
//
// Guarantee: each has evidence; what is not ok has a remedy, and what does not apply here says why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace ridge::app {

enum class State { kOk, kWarn, kFail, kNotApplicable };

struct Check {
  std::string id;
  State state;
  std::string evidence;
  std::string remedy = {};  // empty where nothing is to be done
};

// Takes about half a second: some of it is watched.
std::vector<Check> MachineChecks(int threads);

struct ModelQuestion {
  std::string model;               // as typed
  std::optional<int64_t> context;  // as for `ridge run`
  std::string evidence;            // folder of `ridge lab`; empty: none given
};
Result<std::vector<Check>> ModelChecks(const ModelQuestion& question);

}  // namespace ridge::app
