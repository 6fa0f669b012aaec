// The figures of a report.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "lab/evidence/plots.h"
#include "lab/evidence/report.h"

namespace ridge::lab {

std::string ForestOf(const BundleEvidence& e, const Wording& w) {
  std::vector<ForestGroup> groups;
  std::string test;
  for (const Finding& f : e.findings) {
    if (f.arm == 0) {
      groups.push_back({.title = w.Test(f.test) + " (" + f.unit + ")"});
      continue;
    }
    if (groups.empty()) continue;
    if (f.arm == 1) groups.back().floor = f.floor;
    const bool undetermined = f.verdict.starts_with("undetermined");
    const bool differs = f.arm > 1 && f.verdict != "no difference" && !undetermined;
    std::string note = f.ratio ? fmt::format("{:.3f}", *f.ratio) : "-";
    note += f.arm == 1 ? w("  identical runs", "  相同运行")
                       : "  " + (undetermined ? w("undetermined", "无法判定") : w.Verdict(f.verdict));
    groups.back().rows.push_back({ArmLabel(e, f.arm), f.ratio, f.low, f.high, note, differs ? (f.better ? 1 : -1) : 0});
  }
  const bool any = std::ranges::any_of(groups, [](const ForestGroup& g) {
    return std::ranges::any_of(g.rows, [](const ForestRow& r) { return r.ratio.has_value(); });
  });
  if (!any) return "";
  return ForestSvg(groups, {w("ratio to ", "与下者的比值：") + ArmLabel(e, 0), ""});
}

std::string RoofOf(const BundleEvidence& e, const Wording& w) {
  if (!e.roofline) return "";
  std::vector<RoofPoint> points;
  for (size_t arm = 0; arm < Arms(e.experiment); arm++) {
    if (arm == 1) continue;
    for (const ArmCeiling& c : CeilingsOf(e, arm)) {
      if (!(c.median.bytes > 0) || !(c.median.flops > 0) || !(c.median.seconds > 0)) continue;
      points.push_back(
          {fmt::format("{}, {}: {:.1f} GOPS", c.test, ArmLabel(e, arm), c.median.flops / c.median.seconds / 1e9),
           c.median.flops / c.median.bytes, c.median.flops / c.median.seconds / 1e9, arm, c.test.starts_with("tg")});
    }
  }
  if (points.empty()) return "";
  return RoofSvg(*e.roofline, points,
                 {w("operations per byte read", "每读取一字节的运算数"),
                  w("billions of operations per second", "每秒十亿次运算"), w("reading", "读取"), w("peak", "峰值")});
}

std::string GapOf(const BundleEvidence& e, const Wording& w) {
  std::vector<Bar> bars;
  // One figure per test: a prompt token and a generated one differ by an order.
  std::map<std::string, std::vector<Bar>> by_test;
  for (size_t arm = 0; arm < Arms(e.experiment); arm++) {
    if (arm == 1) continue;
    size_t test = 0;
    for (const ArmCeiling& c : CeilingsOf(e, arm)) {
      const Ceiling& m = c.median;
      const auto largest = m.Largest();
      test++;
      if (!largest || !(*largest > 0)) continue;
      const double ms = 1e3 / m.tokens;
      const double top = std::min(*largest, m.seconds);
      const double kernels = m.kernels_s ? std::max(0.0, std::min(*m.kernels_s, m.seconds) - top) : 0;
      by_test[fmt::format("{:03}", test)].push_back(
          {c.test + ", " + ArmLabel(e, arm),
           fmt::format("{} ms, {}", Short(m.seconds * ms),
                       w(fmt::format("{:.0f} % of {}", 100 * *largest / m.seconds, w.Bound(m.bound)),
                         fmt::format("达到{}上限的 {:.0f} %", m.bound == "overhead" ? "最近" : w.Bound(m.bound),
                                     100 * *largest / m.seconds))),
           {{top * ms, 0}, {kernels * ms, 1}, {std::max(0.0, m.seconds - top - kernels) * ms, 2}}});
    }
  }
  std::string out;
  for (const auto& [test, all] : by_test)
    out += BarsSvg(all,
                   {w("at the nearest ceiling", "最近的上限"), w("kernels below it", "kernel 低于上限的部分"),
                    w("everything else", "其余开销")},
                   w("milliseconds per token", "每 token 毫秒"));
  return out;
}

std::string TimelineOf(const BundleEvidence& e, const Wording& w) {
  double zero = 0;
  for (size_t i = 0; i < e.runs.size(); i++)
    zero = i == 0 ? e.runs[i].record.unix_s : std::min(zero, e.runs[i].record.unix_s);
  std::vector<Band> bands;
  std::map<size_t, std::string> arms;
  for (const EvidenceRun& r : e.runs) {
    bands.push_back({r.unix_s(r.record.begin_s) - zero, r.unix_s(r.record.end_s) - zero, r.plan.arm,
                     fmt::format("{} {}: {}", w("run", "运行"), r.plan.number, ArmLabel(e, r.plan.arm)),
                     !r.record.disturbed.empty()});
    arms[r.plan.arm] = ArmLabel(e, r.plan.arm);
  }
  std::ranges::sort(bands, {}, &Band::begin_s);
  struct Wanted {
    std::string prefix, title, unit;
    std::optional<double> least, most;
    bool only_moving;
  };
  const std::vector<Wanted> wanted = {
      {"cpu_use_percent", w("CPU use", "CPU 占用"), "%", 0, 100, false},
      {"process_rss_mb", w("Memory of the run", "进程内存"), "MiB", 0, std::nullopt, false},
      {"temp_", w("Temperature", "温度"), "°C", std::nullopt, std::nullopt, false},
      {"power_package", w("Power", "功耗"), "W", 0, std::nullopt, false},
      {"power_total_w", w("Power of the board", "整板功耗"), "W", 0, std::nullopt, false},
      {"gpu*_sm_percent", w("GPU use", "GPU 占用"), "%", 0, 100, false},
      {"gpu*_fb_mb", w("GPU memory", "显存"), "MiB", 0, std::nullopt, false},
      {"gpu*_gtemp_c", w("GPU temperature", "GPU 温度"), "°C", std::nullopt, std::nullopt, false},
      {"gpu*_pwr_w", w("GPU power", "GPU 功耗"), "W", 0, std::nullopt, false},
      {"memory_read_gbps", w("Read from memory", "内存读取"), "GB/s", 0, std::nullopt, false},
      {"cpu0_mhz", w("CPU 0 clock", "CPU 0 频率"), "MHz", std::nullopt, std::nullopt, true},
      {"cpu_steal_percent", w("Taken by the host", "宿主机夺走"), "%", 0, 1, true},
      {"pressure_cpu_some_percent", w("CPU pressure", "CPU 压力"), "%", 0, 1, false},
      {"cgroup_throttled_percent", w("Held by quota", "配额限制"), "%", 0, 1, true}};
  std::vector<Panel> panels;
  for (const Wanted& want : wanted) {
    Panel panel{.title = want.title, .unit = want.unit, .least = want.least, .most = want.most};
    double low = 1e300, high = -1e300;
    for (const EvidenceRun& r : e.runs) {
      if (!r.series) continue;
      for (size_t i = 0; i < r.series->names.size(); i++) {
        const std::string& name = r.series->names[i];
        const size_t star = want.prefix.find('*');  // a number
        const bool fits = star != std::string::npos ? name.starts_with(want.prefix.substr(0, star)) &&
                                                          name.ends_with(want.prefix.substr(star + 1))
                          : want.prefix.ends_with('_') || want.prefix == "power_package" ? name.starts_with(want.prefix)
                                                                                         : name == want.prefix;
        if (!fits) continue;
        std::vector<std::pair<double, double>> line;
        for (const Series::Point& p : r.series->points) {
          if (!p.values[i]) continue;
          line.emplace_back(r.unix_s(p.before_s) - zero, *p.values[i]);
          low = std::min(low, *p.values[i]), high = std::max(high, *p.values[i]);
        }
        if (!line.empty()) panel.lines.push_back(std::move(line));
      }
    }
    if (panel.lines.empty() || (want.only_moving && high - low < 1e-3 * std::max(1.0, std::abs(high)))) continue;
    panels.push_back(std::move(panel));
  }
  if (bands.empty() || panels.empty()) return "";
  return TimelineSvg(bands, panels, {arms.begin(), arms.end()},
                     {w("seconds", "秒"), w("left out with its block", "连同区块剔除"), w("pause", "间歇")});
}

}  // namespace ridge::lab
