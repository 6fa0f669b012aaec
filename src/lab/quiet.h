// Was the machine quiet while something was measured? Found by measuring, not by asking: who else used the CPUs, and how far repetitions differ.
//
//   const CpuTimes before = ReadCpuTimes();  ...  Disturbance d = Between(before, ReadCpuTimes());
//   const Verdict verdict = Judge(d);        // verdict.quiet, verdict.reasons
//
// Guarantee: not quiet comes with at least one reason, in words and with the figure.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ridge::lab {

// Counters that only grow. CPU-seconds over all CPUs of the machine, from /proc/stat; absent where it cannot be read.
struct CpuTimes {
  std::optional<double> busy_s, steal_s,
      all_s;         // busy: by any process here; steal: time that the host gave to another machine
  double own_s = 0;  // of this process
};
CpuTimes ReadCpuTimes(const std::string& sys_root = "/");

struct Disturbance {
  std::optional<double> others_share;  // of all CPU time, used by other processes
  std::optional<double> steal_share;   // of all CPU time, taken by the host
  double cpu_share = 1;                // of the time of our threads, the system let them run
  double spread = 0;  // of the headline figures: how far the median repetition lies below the upper quartile
};
Disturbance Between(const CpuTimes& begin, const CpuTimes& end);

struct Verdict {
  bool quiet = true;
  std::vector<std::string> reasons;
};
Verdict Judge(const Disturbance& d);

}  // namespace ridge::lab
