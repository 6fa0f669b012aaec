// Where threads and memory may lie: --cpu-mask, --cpu-range and --numa, checked against what the process is allowed.
//
//   RIDGE_ASSIGN_OR_RETURN(const Placement placement, ResolvePlacement({.cpu_range = "0-3"}));
//   RIDGE_RETURN_IF_ERROR(ApplyPlacement(placement));   // before threads are started and memory is touched
//
// Guarantees: a CPU that the process may not use is an error that names it; each choice comes with its reason, also where it changes
// nothing. `sys_root` is prefixed to /proc and /sys, as in base/topology.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ridge {

struct PlacementOptions {
  std::string cpu_mask = {};   // hexadecimal, bit i is CPU i: "0x3", "ff"; empty: not given
  std::string cpu_range = {};  // "LO-HI", both included; empty: not given
  std::string numa = "off";    // off, distribute, isolate
};

struct Placement {
  std::vector<int> cpus = {};   // threads run on these only; empty: wherever the process may
  std::vector<int> nodes = {};  // memory is spread over these page by page; empty: left to first touch
  std::string cpus_reason = "not pinned";
  std::string numa = "off", numa_reason = "not asked for";
};

// Errors: kUsage (what is not a mask, a range or a mode; both of mask and range), kInvalidArgument (a CPU that may not be used).
Result<Placement> ResolvePlacement(const PlacementOptions& options, const std::string& sys_root = "/");

// For the calling thread and all threads that it starts later. Errors: kPermissionDenied, kUnsupported: what the system refused.
Status ApplyPlacement(const Placement& placement);

// "0-3,8" of ascending numbers.
std::string CpuListText(const std::vector<int>& cpus);

}  // namespace ridge
