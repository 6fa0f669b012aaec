#include "lab/evidence/plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "lab/evidence/svg.h"

namespace ridge::lab {
namespace {

using namespace svg;

constexpr double kWidth = 1120;

// Round steps (1, 2, 5 times a power of ten) of which about `n` cover the span.
double Step(double span, int n) {
  if (!(span > 0)) return 1;
  const double raw = span / n, power = std::pow(10, std::floor(std::log10(raw)));
  if (!(power > span * 1e-6)) return span;  // of figures beyond all sense: a loop over ticks must end
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw * 0.999) return factor * power;
  }
  return 10 * power;
}

std::string Ratio(double v) { return fmt::format("{:.3g}", v); }

}  // namespace

std::string ArmColour(size_t arm) {
  // Okabe and Ito's palette, darkened where white ground asks for it: told apart by the colour-blind too.
  static constexpr std::array kColours = {"#5a6675", "#9aa4af", "#0072b2", "#c45a00", "#00795a",
                                          "#a3457f", "#8a6d00", "#3d6fb5", "#7a4a2b"};
  return kColours[arm < 2 ? arm : 2 + (arm - 2) % (kColours.size() - 2)];
}

std::string ForestSvg(const std::vector<ForestGroup>& groups, const ForestWords& words) {
  constexpr double kLeft = 290, kRight = 250, kRow = 27, kHead = 30;
  double low = 1, high = 1, height = 14;
  for (const ForestGroup& g : groups) {
    low = std::min(low, std::exp(-g.floor)), high = std::max(high, std::exp(g.floor));
    for (const ForestRow& r : g.rows) {
      for (const auto& v : {r.ratio, r.low, r.high}) {
        if (v && *v > 0) low = std::min(low, *v), high = std::max(high, *v);
      }
    }
    height += kHead + kRow * static_cast<double>(g.rows.size());
  }
  const double pad = std::max(0.01, 0.06 * std::log(high / low));
  const double from = std::log(low) - pad, to = std::log(high) + pad;
  const auto x = [&](double ratio) {
    return kLeft + (std::log(ratio) - from) / (to - from) * (kWidth - kLeft - kRight);
  };
  std::string out = Open(kWidth, height + 46, words.axis);
  // Ticks: round ratios.
  const double step = Step(std::exp(to) - std::exp(from), 7);
  for (double t = std::ceil(std::exp(from) / step) * step; t <= std::exp(to) + 1e-9; t += step) {
    if (std::abs(t - 1) < 1e-9) continue;
    out += Line(x(t), 10, x(t), height, kLine) + Text(x(t), height + 18, "middle", Ratio(t), kSoft);
  }
  double y = 14;
  for (const ForestGroup& g : groups) {
    const double bottom = y + kHead + kRow * static_cast<double>(g.rows.size()) - 4;
    out += Rect(x(std::exp(-g.floor)), y + 6, x(std::exp(g.floor)) - x(std::exp(-g.floor)), bottom - y - 6, "#e4e8ed");
    out += FittedText(0, y + 20, kLeft - 14, "start", g.title, kInk, "font-weight=\"600\"");
    y += kHead;
    for (const ForestRow& r : g.rows) {
      const char* colour = r.tone > 0 ? kBetter : r.tone < 0 ? kWorse : kSame;
      const double mid = y + kRow / 2 - 2;
      out += FittedText(14, mid + 4.5, kLeft - 28, "start", r.label);
      if (r.low && r.high && *r.low > 0) {
        out += Line(x(*r.low), mid, x(*r.high), mid, colour, "stroke-width=\"2.5\"");
        for (const double end : {*r.low, *r.high})
          out += Line(x(end), mid - 5, x(end), mid + 5, colour, "stroke-width=\"2\"");
      }
      if (r.ratio && *r.ratio > 0)
        out += r.tone == 0 ? fmt::format(
                                 "<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"4.5\" fill=\"#fff\" stroke=\"{}\" "
                                 "stroke-width=\"2\"/>\n",
                                 x(*r.ratio), mid, colour)
                           : Rect(x(*r.ratio) - 5, mid - 5, 10, 10, colour);
      out += FittedText(kWidth - kRight + 14, mid + 4.5, kRight - 14, "start", r.note, colour);
      y += kRow;
    }
  }
  out += Line(x(1), 10, x(1), height, kInk, "stroke-width=\"1.2\"");
  out += Text(x(1), height + 18, "middle", "1", kInk, "font-weight=\"600\"");
  out += Text(kLeft + (kWidth - kLeft - kRight) / 2, height + 39, "middle", words.axis, kSoft);
  return out + "</svg>\n";
}

std::string RoofSvg(const Roofline& r, const std::vector<RoofPoint>& points, const RoofWords& words) {
  constexpr double kHeight = 440, kLeft = 66, kTop = 16, kBottom = 52, kRoofs = 130, kLegend = 330 + kRoofs;
  const double plot_w = kWidth - kLeft - kLegend, plot_h = kHeight - kTop - kBottom;
  struct Roof {
    std::string name;
    double gops;
    bool best;
  };
  std::vector<Roof> roofs;
  const auto add = [&](const char* kind, const PeakRow& row, const std::optional<double>& gops) {
    if (gops && *gops > 0) roofs.push_back({kind + (" " + row.isa), *gops, row.isa == r.isa});
  };
  for (const PeakRow& row : r.peaks) {
    add("int8", row, row.int8_gops);
    add("fp32", row, row.fp32_gflops);
    add("bf16", row, row.bf16_gflops);
  }
  const double slope = r.read.empty() ? 0 : r.read.back().gbps;
  if (!(slope > 0)) return "";
  double low_x = 1, high_x = 100, low_y = slope, high_y = 10;
  for (const Roof& roof : roofs) high_y = std::max(high_y, roof.gops), high_x = std::max(high_x, 2 * roof.gops / slope);
  for (const RoofPoint& p : points) {
    if (!(p.intensity > 0 && p.gops > 0)) continue;
    low_x = std::min(low_x, p.intensity), high_x = std::max(high_x, p.intensity * 1.3);
    low_y = std::min(low_y, p.gops), high_y = std::max(high_y, p.gops);
  }
  const double left = std::floor(std::log10(low_x) * 2) / 2, right = std::ceil(std::log10(high_x) * 2) / 2;
  const double bottom = std::floor(std::log10(low_y) * 2) / 2, top = std::ceil(std::log10(high_y * 1.1) * 2) / 2;
  const auto x = [&](double v) { return kLeft + (std::log10(v) - left) / (right - left) * plot_w; };
  const auto y = [&](double v) { return kTop + plot_h - (std::log10(v) - bottom) / (top - bottom) * plot_h; };
  std::string out = Open(kWidth, kHeight, words.y);
  for (double d = std::ceil(left); d <= right; d++)
    out += Line(x(std::pow(10, d)), kTop, x(std::pow(10, d)), kTop + plot_h, kLine) +
           Text(x(std::pow(10, d)), kTop + plot_h + 18, "middle", fmt::format("{:g}", std::pow(10, d)), kSoft);
  for (double d = std::ceil(bottom); d <= top; d++)
    out += Line(kLeft, y(std::pow(10, d)), kLeft + plot_w, y(std::pow(10, d)), kLine) +
           Text(kLeft - 8, y(std::pow(10, d)) + 4.5, "end", fmt::format("{:g}", std::pow(10, d)), kSoft);
  // The best ISA's first: labels that would lie on one that is there are left out.
  std::ranges::sort(roofs, {}, [](const Roof& roof) { return std::pair(!roof.best, roof.gops); });
  std::vector<double> labels;
  // Labels are drawn after all lines and marks, on a white rim; those of marks that lie together go one below the other.
  std::string named;
  constexpr const char* kRim = "stroke=\"#fff\" stroke-width=\"3\" paint-order=\"stroke\"";
  double highest = std::pow(10, bottom);
  for (const Roof& roof : roofs) {
    if (roof.gops < std::pow(10, bottom)) continue;  // far below what is shown
    const double from = std::clamp(roof.gops / slope, std::pow(10, left), std::pow(10, right));
    highest = std::max(highest, roof.gops);
    out += Line(x(from), y(roof.gops), kLeft + plot_w, y(roof.gops), roof.best ? kInk : kSoft,
                roof.best ? "stroke-width=\"2\"" : "stroke-dasharray=\"4 4\" opacity=\"0.7\"");
    if (std::ranges::any_of(labels, [&](double at) { return std::abs(y(roof.gops) - at) < 13; })) continue;
    labels.push_back(y(roof.gops));
    named += Text(kLeft + plot_w + 6, y(roof.gops) + 4, "start", fmt::format("{} {:.0f}", roof.name, roof.gops),
                  roof.best ? kInk : kSoft, "font-size=\"12\"");
  }
  const double start = std::max(std::pow(10, left), std::pow(10, bottom) / slope),
               end = std::min(highest / slope, std::pow(10, right));
  out += Line(x(start), y(start * slope), x(end), y(end * slope), kInk, "stroke-width=\"2\"");
  const double mid = std::sqrt(start * end);
  out += fmt::format(
      "<text transform=\"translate({:.2f},{:.2f}) rotate({:.2f})\" text-anchor=\"middle\" font-size=\"12\" "
      "fill=\"{}\">{}</text>\n",
      x(mid) - 7, y(mid * slope) - 8,
      -std::atan2(y(start * slope) - y(end * slope), x(end) - x(start)) * 180 / 3.14159265358979, kInk,
      EscapeHtml(fmt::format("{} {:.1f} GB/s", words.read, slope)));
  double legend = kTop + 12;
  int number = 1;
  std::vector<std::pair<double, double>> numbers;  // where they stand
  for (const RoofPoint& p : points) {
    if (!(p.intensity > 0 && p.gops > 0)) continue;
    const std::string colour = ArmColour(p.arm);
    const auto mark = [&](double cx, double cy) {
      return p.decode ? fmt::format("<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"6\" fill=\"{}\" stroke=\"#fff\"/>\n", cx,
                                    cy, colour)
                      : Rect(cx - 5.5, cy - 5.5, 11, 11, colour, "stroke=\"#fff\"");
    };
    out += mark(x(p.intensity), y(p.gops));
    const double at_x = x(p.intensity) + 9;
    double at_y = y(p.gops) + 4;
    const auto taken = [&] {
      return std::ranges::any_of(
          numbers, [&](const auto& n) { return std::abs(n.first - at_x) < 18 && std::abs(n.second - at_y) < 12; });
    };
    while (taken()) at_y += 12;
    numbers.emplace_back(at_x, at_y);
    named += Text(at_x, at_y, "start", fmt::format("{}", number), kInk,
                  std::string("font-size=\"11\" font-weight=\"600\" ") + kRim);
    out += mark(kLeft + plot_w + kRoofs + 8, legend - 4) + FittedText(kLeft + plot_w + kRoofs + 22, legend,
                                                                      kLegend - kRoofs - 22, "start",
                                                                      fmt::format("{}  {}", number, p.label));
    legend += 20;
    number++;
  }
  out += named;
  out += Text(kLeft + plot_w / 2, kHeight - 10, "middle", words.x, kSoft);
  out +=
      fmt::format("<text transform=\"translate(16,{:.0f}) rotate(-90)\" text-anchor=\"middle\" fill=\"{}\">{}</text>\n",
                  kTop + plot_h / 2, kSoft, EscapeHtml(words.y));
  return out + "</svg>\n";
}

std::string BarsSvg(const std::vector<Bar>& bars, const std::vector<std::string>& kinds, const std::string& unit) {
  constexpr double kLeft = 290, kRight = 300, kRow = 30;
  static constexpr std::array kFills = {"#1c2430", "#7f97b5", "#d8b48c"};
  double most = 0;
  for (const Bar& b : bars) {
    double sum = 0;
    for (const BarPart& p : b.parts) sum += p.value;
    most = std::max(most, sum);
  }
  const double height = 34 + kRow * static_cast<double>(bars.size());
  std::string out = Open(kWidth, height + 40, unit);
  double legend = kLeft;
  for (size_t i = 0; i < kinds.size() && i < kFills.size(); i++) {
    out += Rect(legend, 4, 13, 13, kFills[i]) + Text(legend + 19, 15, "start", kinds[i], kSoft);
    legend += 44 + WidthOf(kinds[i]);
  }
  const auto x = [&](double v) { return kLeft + (most > 0 ? v / most : 0) * (kWidth - kLeft - kRight); };
  const double step = Step(most, 6);
  for (double t = 0; t <= most * 1.0001; t += step)
    out += Line(x(t), 28, x(t), height, kLine) + Text(x(t), height + 16, "middle", fmt::format("{:.4g}", t), kSoft);
  out += Text(kLeft + (kWidth - kLeft - kRight) / 2, height + 34, "middle", unit, kSoft);
  double y = 32;
  for (const Bar& b : bars) {
    out += FittedText(14, y + 17, kLeft - 28, "start", b.label);
    double at = 0;
    for (const BarPart& p : b.parts) {
      const size_t kind = std::min<size_t>(static_cast<size_t>(p.kind), kFills.size() - 1);
      if (p.value > 0)
        out += Rect(x(at), y + 4, x(at + p.value) - x(at), 18, kFills[kind], "stroke=\"#fff\" stroke-width=\"0.5\"");
      at += p.value;
    }
    out += FittedText(x(at) + 10, y + 17, kWidth - x(at) - 10, "start", b.note, kSoft);
    y += kRow;
  }
  return out + "</svg>\n";
}

namespace {

constexpr double kLongestPause = 4;  // seconds between runs that the axis shows as they are

// Time with the long pauses cut out.
class Axis {
 public:
  explicit Axis(const std::vector<Band>& bands) {
    double end = 0;
    for (const Band& b : bands) {
      if (!pieces_.empty() && b.begin_s - end <= kLongestPause) {
        pieces_.back().end = std::max(pieces_.back().end, b.end_s);
      } else {
        const double shown =
            pieces_.empty() ? 0 : pieces_.back().shown + (pieces_.back().end - pieces_.back().begin) + kGap;
        pieces_.push_back({b.begin_s, b.end_s, shown});
      }
      end = std::max(end, b.end_s);
    }
  }
  double length() const {
    return pieces_.empty() ? 1 : std::max(1e-3, pieces_.back().shown + pieces_.back().end - pieces_.back().begin);
  }
  double At(double s) const {
    for (auto it = pieces_.rbegin(); it != pieces_.rend(); ++it) {
      if (s >= it->begin) return it->shown + std::min(s, it->end + kGap / 2) - it->begin;
    }
    return 0;
  }
  std::vector<double> Cuts() const {
    std::vector<double> cuts;
    for (size_t i = 1; i < pieces_.size(); i++) cuts.push_back(pieces_[i].shown - kGap / 2);
    return cuts;
  }

 private:
  static constexpr double kGap = 1.5;
  struct Piece {
    double begin, end, shown;
  };
  std::vector<Piece> pieces_;
};

}  // namespace

std::string TimelineSvg(const std::vector<Band>& bands, const std::vector<Panel>& panels,
                        const std::vector<std::pair<size_t, std::string>>& arms, const TimelineWords& words) {
  constexpr double kLeft = 200, kRight = 20, kPanel = 74, kSpace = 16, kLine0 = 20;
  const bool any_out = std::ranges::any_of(bands, &Band::left_out);
  // The legend takes as many lines as it needs.
  struct Entry {
    double x, y, width;
  };
  std::vector<Entry> entries;
  double at_x = kLeft, at_y = 0;
  const auto place = [&](const std::string& name) {
    const double width = std::min(40 + WidthOf(name), kWidth - kLeft);
    if (at_x > kLeft && at_x + width > kWidth) at_x = kLeft, at_y += kLine0;
    entries.push_back({at_x, at_y, width});
    at_x += width;
  };
  for (const auto& [arm, name] : arms) place(name);
  if (any_out) place(words.left_out);
  const double kTop = 52 + at_y, bars = 28 + at_y;
  const Axis axis(bands);
  const auto x = [&](double s) { return kLeft + axis.At(s) / axis.length() * (kWidth - kLeft - kRight); };
  const double bottom = kTop + (kPanel + kSpace) * static_cast<double>(panels.size());
  std::string out = Open(kWidth, bottom + 30, words.seconds);
  for (size_t i = 0; i < arms.size(); i++) {
    const Entry& e = entries[i];
    out += Rect(e.x, e.y + 4, 13, 13, ArmColour(arms[i].first)) +
           FittedText(e.x + 19, e.y + 15, e.width - 21, "start", arms[i].second, kSoft);
  }
  for (const Band& b : bands) {
    const double left = x(b.begin_s), width = std::max(0.8, x(b.end_s) - x(b.begin_s) - 0.6);
    out += Rect(left, bars, width, 14, ArmColour(b.arm), "", b.title);
    out += Rect(left, kTop - 4, width, bottom - kTop - kSpace + 8, ArmColour(b.arm), "opacity=\"0.10\"");
    if (b.left_out) out += Rect(left, bars - 6, width, 4, kWorse, "", words.left_out);
  }
  if (any_out) {
    const Entry& e = entries.back();
    out += Rect(e.x, e.y + 9, 13, 4, kWorse) +
           FittedText(e.x + 19, e.y + 15, e.width - 21, "start", words.left_out, kSoft);
  }
  double y = kTop;
  for (const Panel& p : panels) {
    double low = 1e300, high = -1e300;
    for (const auto& line : p.lines) {
      for (const auto& [t, v] : line) low = std::min(low, v), high = std::max(high, v);
    }
    if (low > high) low = 0, high = 1;
    if (p.least) low = *p.least;
    if (p.most) high = std::max(high, *p.most);
    if (high - low < 1e-9 * std::max(1.0, std::abs(high))) high = low + 1;
    const auto to_y = [&](double v) { return y + kPanel - (v - low) / (high - low) * kPanel; };
    out += FittedText(0, y + 14, kLeft - 60, "start", p.title, kInk) +
           Text(0, y + 31, "start", p.unit, kSoft, "font-size=\"12\"");
    for (const double v : {low, high}) {
      out += Line(kLeft, to_y(v), kWidth - kRight, to_y(v), kLine);
      out += Text(kLeft - 8, to_y(v) + (v == low ? 0 : 9), "end", fmt::format("{:.4g}", v), kSoft, "font-size=\"11\"");
    }
    for (const auto& line : p.lines) {
      if (line.empty()) continue;
      std::string path;
      for (const auto& [t, v] : line) path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", x(t), to_y(v));
      if (line.size() == 1)
        out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"1.6\" fill=\"{}\"/>\n", x(line[0].first),
                           to_y(line[0].second), kInk);
      else
        out += fmt::format(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.4\" stroke-linejoin=\"round\"/>\n",
            path, kInk);
    }
    y += kPanel + kSpace;
  }
  for (const double cut : axis.Cuts()) {
    const double at = kLeft + cut / axis.length() * (kWidth - kLeft - kRight);
    out += Line(at, bars - 2, at, bottom - kSpace, kSoft, "stroke-dasharray=\"2 4\"");
    out += Text(at, bottom - kSpace + 14, "middle", words.gap, kSoft, "font-size=\"11\"");
  }
  const double step = Step(axis.length(), 10);
  if (axis.Cuts().empty()) {
    for (double t = 0; t <= axis.length() * 1.0001; t += step) {
      const double at = kLeft + t / axis.length() * (kWidth - kLeft - kRight);
      out += Text(at, bottom - kSpace + 16, "middle", fmt::format("{:.4g}", t), kSoft, "font-size=\"12\"");
    }
  }
  out += Text(0, bottom - kSpace + 16, "start", words.seconds, kSoft, "font-size=\"12\"");
  return out + "</svg>\n";
}

}  // namespace ridge::lab
