// The pictures of a report, as SVG inside HTML: they take the page's font and width, need no script, and every text in them is escaped.
//
//   ForestSvg({{"tg32", {{"t = 2", 1.62, 1.58, 1.66, "faster", true}}, 0.008}}, words)
//
// Colours: blue for the better, orange for the worse, grey for no difference; arms by one list in all pictures (ArmColour). Told apart by shape or text as well.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/roofline/roofline.h"

namespace ridge::lab {

std::string ArmColour(size_t arm);

// Ratios with intervals, per test, over the band in which identical runs differ.
struct ForestRow {
  std::string label;
  std::optional<double> ratio, low, high;
  std::string note;  // at the right
  int tone = 0;      // 1 better, -1 worse, 0 neither
};
struct ForestGroup {
  std::string title;
  std::vector<ForestRow> rows;
  double floor = 0;  // as log ratio
};
struct ForestWords {
  std::string axis, same;  // "ratio to t = 1", "1 = the same"
};
std::string ForestSvg(const std::vector<ForestGroup>& groups, const ForestWords& words);

struct RoofPoint {
  std::string label;
  double intensity = 0, gops = 0;
  size_t arm = 0;
  bool decode = false;  // a circle; else a square
};
struct RoofWords {
  std::string x, y, read, peak;  // axis titles; "read", "peak"
};
std::string RoofSvg(const Roofline& roofline, const std::vector<RoofPoint>& points, const RoofWords& words);

// Where the time of a token went: bars of parts.
struct BarPart {
  double value = 0;
  int kind = 0;  // 0: the ceiling itself, 1: kernels below it, 2: everything else
};
struct Bar {
  std::string label, note;
  std::vector<BarPart> parts;
};
std::string BarsSvg(const std::vector<Bar>& bars, const std::vector<std::string>& kinds, const std::string& unit);

// Series over time, one panel each, with the runs as bands behind.
struct Band {
  double begin_s = 0, end_s = 0;
  size_t arm = 0;
  std::string title;
  bool left_out = false;
};
struct Panel {
  std::string title, unit;
  std::vector<std::vector<std::pair<double, double>>> lines;  // a piece per run: time, value
  std::optional<double> least, most;                          // of the axis; else of the data
};
struct TimelineWords {
  std::string seconds, left_out, gap;  // gap: what a cut in the axis says
};
// Times are seconds from the first run on; pauses longer than a few seconds are cut out of the axis and marked.
std::string TimelineSvg(const std::vector<Band>& bands, const std::vector<Panel>& panels,
                        const std::vector<std::pair<size_t, std::string>>& arms, const TimelineWords& words);

}  // namespace ridge::lab
