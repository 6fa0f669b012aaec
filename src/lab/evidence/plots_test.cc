#include "lab/evidence/plots.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <regex>
#include <string>
#include <vector>

#include "lab/evidence/svg.h"

namespace ridge::lab {
namespace {

struct Label {
  double left, right, y;
  std::string text;
};

// Texts that lie straight, as wide as they are drawn.
std::vector<Label> LabelsOf(const std::string& svg) {
  static const std::regex kText(R"re(<text x="([-0-9.]+)" y="([-0-9.]+)" text-anchor="(\w+)"[^>]*>([^<]*)<)re");
  std::vector<Label> out;
  for (std::sregex_iterator it(svg.begin(), svg.end(), kText), end; it != end; ++it) {
    const double x = std::stod((*it)[1]), width = svg::WidthOf((*it)[4].str());
    const double left = (*it)[3] == "start" ? x : (*it)[3] == "end" ? x - width : x - width / 2;
    out.push_back({left, left + width, std::stod((*it)[2]), (*it)[4]});
  }
  return out;
}

// No label is cut at the picture's edges, and none lies on another.
void ExpectReadable(const std::string& svg) {
  const std::vector<Label> labels = LabelsOf(svg);
  EXPECT_GT(labels.size(), 3u);
  for (size_t i = 0; i < labels.size(); i++) {
    EXPECT_GE(labels[i].left, -1) << labels[i].text;
    EXPECT_LE(labels[i].right, 1121) << labels[i].text;
    for (size_t j = i + 1; j < labels.size(); j++) {
      const bool apart = labels[i].right <= labels[j].left + 1 || labels[j].right <= labels[i].left + 1 ||
                         std::abs(labels[i].y - labels[j].y) >= 10;
      EXPECT_TRUE(apart) << labels[i].text << " | " << labels[j].text;
    }
  }
}

const std::string kLong = "m = A-Model-With-A-Name-As-They-Are-Given-Today-70B-Instruct-2511-UD-Q4_K_XL.gguf";

TEST(Plots, LongNamesAreShortenedInTheMiddle) {
  const std::string text = svg::FittedText(0, 0, 120, "start", kLong);
  const std::vector<Label> labels = LabelsOf(text);
  ASSERT_EQ(labels.size(), 1u);
  EXPECT_LE(labels[0].right, 120);
  EXPECT_GT(labels[0].right, 90);
  EXPECT_TRUE(labels[0].text.starts_with("m = A-M")) << labels[0].text;
  EXPECT_TRUE(labels[0].text.ends_with(".gguf")) << labels[0].text;
  EXPECT_NE(text.find("<title>" + kLong), std::string::npos);
  EXPECT_EQ(LabelsOf(svg::FittedText(0, 0, 1200, "start", kLong))[0].text, kLong);
  const std::string chinese = svg::FittedText(0, 0, 60, "start", "没有超出相同运行差异的差别");
  EXPECT_TRUE(LabelsOf(chinese)[0].text.starts_with("没")) << chinese;
  EXPECT_LE(LabelsOf(chinese)[0].right, 60);
}

TEST(Plots, ForestAndBarsKeepTheirLabelsApart) {
  ForestGroup g{.title = "tg128 with a long name for a test of its own (t/s)", .floor = 0.02};
  for (int i = 0; i < 4; i++)
    g.rows.push_back({kLong, 0.5 + i, 0.4 + i, 0.6 + i, "1.234  undetermined, and a long note about it", 0});
  ExpectReadable(ForestSvg({g, g}, {"ratio to this", ""}));
  std::vector<Bar> bars;
  for (int i = 1; i < 4; i++)
    bars.push_back({"tg128, " + kLong,
                    "3.25 ms, 94 % of memory bandwidth, which is a long note",
                    {{1.0 * i, 0}, {0.5, 1}, {0.7, 2}}});
  ExpectReadable(BarsSvg(bars, {"at the nearest ceiling", "kernels below it", "everything else"}, "ms per token"));
}

TEST(Plots, RoofsAndRunsThatLieTogetherStayReadable) {
  Roofline r;
  r.isa = "avx512";
  ReadRow read;
  read.threads = 2, read.gbps = 30;
  r.read = {read};
  for (const auto& [isa, gops] : {std::pair{"avx2", 330.0}, {"avx512", 349.0}, {"avxvnni", 640.0}}) {
    PeakRow row;
    row.isa = isa;
    row.int8_gops = 3 * gops, row.fp32_gflops = gops;
    r.peaks.push_back(row);
  }
  std::vector<RoofPoint> points;
  for (int i = 0; i < 12; i++)
    points.push_back({"pp128, " + kLong, 60 + 0.1 * i, 340, static_cast<size_t>(i), i % 2 == 0});
  ExpectReadable(RoofSvg(r, points, {"operations per byte", "billions of operations", "reading", "peak"}));
}

TEST(Plots, ATimelineOfManyValuesHasALegendOfSeveralLines) {
  std::vector<std::pair<size_t, std::string>> arms;
  std::vector<Band> bands;
  for (size_t i = 0; i < 9; i++) {
    arms.emplace_back(i, i == 3 ? kLong + kLong : "value = " + std::to_string(1000 + i) + " of a setting");
    bands.push_back({2.0 * static_cast<double>(i), 2.0 * static_cast<double>(i) + 1, i, "run", i == 4});
  }
  Panel panel{.title = "A reading with a long name of its own", .unit = "%", .lines = {{{0, 1}, {5, 90}}}};
  ExpectReadable(TimelineSvg(bands, {panel, panel}, arms, {"seconds", "left out with its block", "pause"}));
}

}  // namespace
}  // namespace ridge::lab
