#include "lab/roofline/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "quant/quant.h"

namespace ridge::lab {
namespace {

// A flat roof: what the arithmetic of one kind and ISA allows.
struct Roof {
  std::string name;
  double gops;
  bool best;  // of the best ISA: drawn solid
};

std::vector<Roof> RoofsOf(const Roofline& r) {
  std::vector<Roof> roofs;
  for (const PeakRow& row : r.peaks) {
    const bool best = row.isa == r.isa;
    if (row.int8_gops) roofs.push_back({"int8 " + row.isa, *row.int8_gops, best});
    if (row.bf16_gflops) roofs.push_back({"bf16 " + row.isa, *row.bf16_gflops, best});
    if (row.fp32_gflops) roofs.push_back({"fp32 " + row.isa, *row.fp32_gflops, best});
  }
  return roofs;
}

// Whole decades around what is shown.
struct Axes {
  double left = 0, right = 0, bottom = 0, top = 0;  // log10
  double width, height;
  double X(double value) const { return (std::log10(value) - left) / (right - left) * width; }
  double Y(double value) const { return height - (std::log10(value) - bottom) / (top - bottom) * height; }
};

Axes AxesOf(const Roofline& r, const std::vector<PlotPoint>& points, double width, double height) {
  const double slope = r.read.empty() ? 1 : r.read.back().gbps;
  double low_x = 0.3, high_x = 300, low_y = low_x * slope, high_y = 10;
  for (const Roof& roof : RoofsOf(r)) {
    high_y = std::max(high_y, roof.gops);
    low_y = std::min(low_y, roof.gops);
    high_x = std::max(high_x, 3 * roof.gops / slope);
  }
  for (const PlotPoint& p : points) {
    if (!(p.intensity > 0 && p.gops > 0)) continue;
    low_x = std::min(low_x, p.intensity), high_x = std::max(high_x, p.intensity);
    low_y = std::min(low_y, p.gops), high_y = std::max(high_y, p.gops);
  }
  return {std::floor(std::log10(low_x)),
          std::ceil(std::log10(high_x)),
          std::floor(std::log10(low_y)),
          std::ceil(std::log10(high_y) + 0.05),
          width,
          height};
}

std::string Escape(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string Text(double x, double y, const std::string& anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, Escape(text));
}

std::string Line(double x1, double y1, double x2, double y2, const std::string& style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2, style);
}

std::string Grid(const Axes& a) {
  std::string out;
  for (double d = a.left; d <= a.right; d++) {
    const double x = a.X(std::pow(10, d));
    out += Line(x, 0, x, a.height, "stroke=\"#ddd\"") +
           Text(x, a.height + 16, "middle", fmt::format("{:g}", std::pow(10, d)));
  }
  for (double d = a.bottom; d <= a.top; d++) {
    const double y = a.Y(std::pow(10, d));
    out += Line(0, y, a.width, y, "stroke=\"#ddd\"") + Text(-6, y + 4, "end", fmt::format("{:g}", std::pow(10, d)));
  }
  return out;
}

}  // namespace

std::vector<PlotPoint> FormatPoints(const Roofline& r) {
  std::vector<PlotPoint> points;
  for (const FormatRow& f : r.formats) {
    const quant::Type* type = quant::Find(f.type);
    if (type == nullptr) continue;
    const double intensity = 2.0 * type->block_elements / (type->block_bytes * f.layout_ratio);
    points.push_back({f.type, intensity, intensity * f.gbps_memory});
  }
  return points;
}

std::string SvgPlot(const Roofline& r, const std::vector<PlotPoint>& points) {
  const Axes a = AxesOf(r, points, 760, 440);
  std::string out =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" viewBox=\"0 0 900 560\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"900\" height=\"560\" fill=\"white\"/>\n";
  out += fmt::format("<title>Roofline of {}</title>\n", Escape(r.machine.cpu));
  out += "<g transform=\"translate(70,50)\">\n";
  out += Text(0, -26, "start",
              fmt::format("{}, {} threads, measured {}{}", r.machine.cpu, r.threads, r.measured_at,
                          r.verdict.quiet ? "" : ", machine not quiet"));
  out += Grid(a);
  const double slope = r.read.empty() ? 1 : r.read.back().gbps;
  double ridge = std::pow(10, a.left);
  for (const Roof& roof : RoofsOf(r)) {
    const double from = std::clamp(roof.gops / slope, std::pow(10, a.left), std::pow(10, a.right));
    ridge = std::max(ridge, from);
    out += Line(a.X(from), a.Y(roof.gops), a.width, a.Y(roof.gops),
                roof.best ? "stroke=\"#1f4e9c\" stroke-width=\"2\"" : "stroke=\"#888\" stroke-dasharray=\"5 4\"");
    out += Text(a.width - 4, a.Y(roof.gops) - 4, "end", fmt::format("{} {:.0f}", roof.name, roof.gops));
  }
  const double start = std::max(std::pow(10, a.left), std::pow(10, a.bottom) / slope);
  out += Line(a.X(start), a.Y(start * slope), a.X(ridge), a.Y(ridge * slope), "stroke=\"#b03030\" stroke-width=\"2\"");
  out += Text(a.X(start) + 8, a.Y(start * slope) - 14, "start", fmt::format("read {:.1f} GB/s", slope));
  for (const PlotPoint& p : points) {
    if (!(p.intensity > 0 && p.gops > 0)) continue;
    out += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"#2a7f3f\"><title>{}: {:.1f} operations a "
        "byte, {:.1f} GOPS</title></circle>\n",
        a.X(p.intensity), a.Y(p.gops), Escape(p.name), p.intensity, p.gops);
    out += Text(a.X(p.intensity) + 6, a.Y(p.gops) + 12, "start", p.name);
  }
  out += Text(a.width / 2, a.height + 38, "middle", "operations per byte of memory");
  out += fmt::format(
      "<text transform=\"translate(-48,{:.0f}) rotate(-90)\" text-anchor=\"middle\">billions of "
      "operations per second</text>\n",
      a.height / 2);
  return out + "</g>\n</svg>\n";
}

std::string TerminalPlot(const Roofline& r, const std::vector<PlotPoint>& points) {
  constexpr int kColumns = 64, kRows = 18, kMargin = 9;
  const Axes a = AxesOf(r, points, kColumns - 1, kRows - 1);
  std::vector<std::string> grid(kRows, std::string(kColumns, ' '));
  const auto put = [&](double intensity, double gops, char c) {
    const long x = std::lround(a.X(intensity)), y = std::lround(a.Y(gops));
    if (x >= 0 && x < kColumns && y >= 0 && y < kRows) grid[static_cast<size_t>(y)][static_cast<size_t>(x)] = c;
  };
  const double slope = r.read.empty() ? 1 : r.read.back().gbps;
  double top = 0;
  for (const Roof& roof : RoofsOf(r)) top = std::max(top, roof.gops);
  for (int x = 0; x < kColumns; x++) {
    const double intensity = std::pow(10, a.left + (a.right - a.left) * x / (kColumns - 1));
    for (const Roof& roof : RoofsOf(r)) {
      if (intensity * slope >= roof.gops) put(intensity, roof.gops, roof.best ? '=' : '-');
    }
    if (intensity * slope < top) put(intensity, intensity * slope, '/');
  }
  std::string legend;
  char mark = 'a';
  for (const PlotPoint& p : points) {
    if (!(p.intensity > 0 && p.gops > 0) || mark > 'z') continue;
    put(p.intensity, p.gops, mark);
    const std::string entry = fmt::format("{} {}", mark++, p.name);
    const size_t line = legend.size() - (legend.rfind('\n') == legend.npos ? 0 : legend.rfind('\n') + 1);
    legend += legend.empty()             ? std::string(kMargin, ' ')
              : line + entry.size() > 76 ? "\n" + std::string(kMargin, ' ')
                                         : "  ";
    legend += entry;
  }
  std::string out = fmt::format("{:>{}} billions of operations/s: '=' peaks of {}, '-' of other ISAs, '/' memory\n", "",
                                kMargin - 2, r.isa);
  for (int y = 0; y < kRows; y++) {
    const double decade = a.top - (a.top - a.bottom) * y / (kRows - 1);
    const bool labelled = std::abs(decade - std::round(decade)) < 0.5 * (a.top - a.bottom) / (kRows - 1) - 1e-9;
    std::string row = fmt::format("{:>{}} |{}", labelled ? fmt::format("{:g}", std::pow(10, std::round(decade))) : "",
                                  kMargin - 2, grid[static_cast<size_t>(y)]);
    row.erase(row.find_last_not_of(' ') + 1);
    out += row + "\n";
  }
  out += std::string(kMargin - 1, ' ') + "+" + std::string(kColumns, '-') + "\n";
  std::string ticks(kMargin + kColumns, ' ');
  for (double d = a.left; d <= a.right; d++) {
    const std::string label = fmt::format("{:g}", std::pow(10, d));
    const size_t at = std::min(static_cast<size_t>(kMargin + a.X(std::pow(10, d))), ticks.size() - label.size());
    for (size_t i = 0; i < label.size() && at + i < ticks.size(); i++) ticks[at + i] = label[i];
  }
  ticks.erase(ticks.find_last_not_of(' ') + 1);
  out += ticks + "  operations/byte\n";
  return out + legend + (legend.empty() ? "" : "\n");
}

}  // namespace ridge::lab
