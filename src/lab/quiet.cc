#include "lab/quiet.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace ridge::lab {
namespace {

// A quiet two-core machine shows 1-2 % of others (shells, the system itself), under 0.5 % of steal and a CPU share above 99 %; one busy loop beside as
// many threads as CPUs takes a third of them. The limits lie between, nearer to quiet.
constexpr double kMostOthers = 0.06, kMostSteal = 0.02, kLeastCpuShare = 0.95, kMostSpread = 0.06;

double Seconds(const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; }

std::optional<double> Share(const std::optional<double>& part, const std::optional<double>& whole) {
  if (!part || !whole || *whole <= 0) return std::nullopt;
  return std::clamp(*part / *whole, 0.0, 1.0);
}

std::optional<double> Difference(const std::optional<double>& begin, const std::optional<double>& end) {
  if (!begin || !end) return std::nullopt;
  return *end - *begin;
}

}  // namespace

CpuTimes ReadCpuTimes(const std::string& sys_root) {
  CpuTimes times;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  times.own_s = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  std::ifstream file(sys_root + (sys_root.ends_with('/') ? "" : "/") + "proc/stat");
  std::string line, word;
  if (!std::getline(file, line)) return times;
  std::istringstream words(line);
  // cpu user nice system idle iowait irq softirq steal (guest time is already in user): proc(5)
  double ticks[8];
  if (!(words >> word) || word != "cpu") return times;
  for (double& t : ticks) {
    if (!(words >> t)) return times;
  }
  const double unit = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  times.busy_s = (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) * unit;
  times.steal_s = ticks[7] * unit;
  times.all_s = *times.busy_s + *times.steal_s + (ticks[3] + ticks[4]) * unit;
  return times;
}

Disturbance Between(const CpuTimes& begin, const CpuTimes& end) {
  Disturbance d;
  const std::optional<double> all = Difference(begin.all_s, end.all_s);
  std::optional<double> others = Difference(begin.busy_s, end.busy_s);
  if (others) *others -= end.own_s - begin.own_s;
  d.others_share = Share(others, all);
  d.steal_share = Share(Difference(begin.steal_s, end.steal_s), all);
  return d;
}

Verdict Judge(const Disturbance& d) {
  Verdict verdict;
  const auto check = [&](bool good, const std::string& reason) {
    if (good) return;
    verdict.quiet = false;
    verdict.reasons.push_back(reason);
  };
  check(d.others_share.value_or(0) <= kMostOthers,
        fmt::format("other processes used {:.0f} % of the CPU time (limit {:.0f})", 100 * d.others_share.value_or(0),
                    100 * kMostOthers));
  check(d.steal_share.value_or(0) <= kMostSteal,
        fmt::format("the host took {:.1f} % of the CPU time for other machines (limit {:.0f})",
                    100 * d.steal_share.value_or(0), 100 * kMostSteal));
  check(d.cpu_share >= kLeastCpuShare, fmt::format("the measuring threads ran only {:.0f} % of the time (limit {:.0f})",
                                                   100 * d.cpu_share, 100 * kLeastCpuShare));
  check(d.spread <= kMostSpread,
        fmt::format("repetitions differ: the median lies {:.0f} % below the upper quartile (limit {:.0f})",
                    100 * d.spread, 100 * kMostSpread));
  return verdict;
}

}  // namespace ridge::lab
