// Where an experiment ran: the 35 fields that MLPerf asks of a system, and what else tells this lab's runs apart.
//
//   const nlohmann::ordered_json environment = Environment({.framework = "ridge 0.1.0 abc"});
//   environment["mlperf"]["cooling"]   // {"value": null, "reason": "…"} or {"value": "fan", "from": "/sys/class/thermal"}
//
// Guarantees: all 35 fields are there, in the order of MLPerf's own list (SYSTEM_DESC_REQUIRED_FIELDS of its submission checker). What is not known is null and
// says why; nothing is guessed. `sys_root` is prefixed to /proc, /sys, /etc and /var so that tests feed fake trees.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ridge::lab {

struct EnvironmentFacts {
  std::string framework;  // "ridge 0.1.0 1a2b3c"
  std::string threads;    // how many this process may use, and why
  std::string memory;     // the same
  std::string sys_root = "/";
};

std::vector<std::string_view> EnvironmentFields();  // the 35
nlohmann::ordered_json Environment(const EnvironmentFacts& facts);

// The line that stands for the machine in tables: "AMD EPYC 9R14, 2 CPUs, 23 GiB". From an environment of Environment(); kInvalidData if it is none.
Result<std::string> HardwareOf(std::string_view environment_json);

}  // namespace ridge::lab
