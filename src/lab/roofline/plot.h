// The roofline as a picture: operations per second over operations per byte, both logarithmic.
//
//   WriteFile("roofline.svg", SvgPlot(roofline, points));   out.Write(TerminalPlot(roofline, points));
//
// Guarantees: well-formed SVG 1.1 without scripts or outside references; the terminal plot is plain ASCII, at most 79 columns wide.
#pragma once

#include <string>
#include <vector>

#include "lab/roofline/roofline.h"

namespace ridge::lab {

struct PlotPoint {
  std::string name;
  double intensity = 0;  // operations per byte
  double gops = 0;
};

// Where each tensor type's decode kernel stands: two operations per weight, at its bandwidth on data in memory.
std::vector<PlotPoint> FormatPoints(const Roofline& roofline);

std::string SvgPlot(const Roofline& roofline, const std::vector<PlotPoint>& points);
std::string TerminalPlot(const Roofline& roofline, const std::vector<PlotPoint>& points);

}  // namespace ridge::lab
