// The machine's power modes: nvpmodel's on a Jetson, else the governors of cpufreq.
//
//   const PowerModes modes = ReadPowerModes();   if (modes.names.empty()) tell(modes.reason);
//   RIDGE_RETURN_IF_ERROR(SetPowerMode("powersave"));
//
// Guarantees: a mode is set for all CPUs or the error says for which not; nothing is set that was not listed. `root` is prefixed to /sys in tests.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace ridge::lab {

struct PowerModes {
  std::vector<std::string> names;  // of nvpmodel: its numbers
  std::string current;
  bool nvpmodel = false;
  std::string reason;  // why there is none
};

PowerModes ReadPowerModes(const std::string& root = "");
// Errors: kInvalidArgument (no such mode), kPermissionDenied (only root may).
Status SetPowerMode(const std::string& name, const std::string& root = "");

}  // namespace ridge::lab
