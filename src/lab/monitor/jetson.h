// What a Jetson tells in /sys: rails of its power monitors, the GPU's load and clock, events of over-current, the power mode.
//
//   Jetson jetson(root);   jetson.Fill(row);   for (const auto& [name, count] : jetson.Events()) ...
//
// Guarantees: a sensor that cannot be read is a field without a value. `power_total_w` is the input rail (POM_5V_IN, VDD_IN) where there is one; else the sum of
// the rails that have a name, as with recorded lines of tegrastats. `root` is prefixed to /sys in tests. One thread at a time.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lab/monitor/recorded.h"

namespace ridge::lab {

class Jetson {
 public:
  explicit Jetson(std::string root);
  void Fill(Row& row) const;
  // Counters of over-current and under-voltage: "oc1_events" and so on; null: could not be read.
  std::vector<std::pair<std::string, std::optional<double>>> Events() const;
  bool empty() const { return rails_.empty() && gpus_.empty() && events_.empty(); }
  bool has_rails() const { return !rails_.empty(); }

 private:
  struct Rail {
    std::string name;        // as the board calls it
    std::string milliwatts;  // file; empty: of the two below
    std::string millivolts, milliamperes;
  };
  struct Gpu {
    std::string name, load, hertz;  // load in thousandths
  };
  std::string root_;
  std::vector<Rail> rails_;
  std::vector<Gpu> gpus_;
  std::vector<std::pair<std::string, std::string>> events_;  // name, file
  std::string mode_;
};

}  // namespace ridge::lab
