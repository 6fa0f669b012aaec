// The roofline as data: its document, its cache, its plots, and what it says about work. Measured once, short, for the shape alone.
#include "lab/roofline/roofline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "backend/backend.h"
#include "backend/probe.h"
#include "lab/roofline/meter.h"
#include "lab/roofline/plot.h"
#include "lab/roofline/roofline_cache.h"
#include "lab/roofline/roofline_json.h"
#include "lab/roofline/team.h"
#include "lab/roofline/work.h"

namespace ridge::lab {
namespace {

Roofline Example() {
  Roofline r;
  r.machine = {.cpu = "Test <CPU> & \"co\"",
               .features = "avx2",
               .cpus = 4,
               .cores = 4,
               .l2_bytes = 1 << 20,
               .l3_bytes = 32 << 20,
               .memory_gib = 16,
               .huge_pages = "madvise"};
  r.fingerprint = "0123456789abcdef";
  r.build = "1.0 abc";
  r.measured_at = "2026-11-29T12:00:00Z";
  r.threads = 4;
  r.isa = "avx512";
  r.read = {{1, 20, "a"}, {2, 30, "b"}, {4, 40, "c"}};
  r.peaks = {{"scalar", 30, {}, 3}, {"avx512", 1000, 500, 250}};
  r.formats = {{"F16", "panel16.f16", false, 1.0, 39, 200}, {"Q4_K", "panel16.q4_k", true, 1.03, 38, 100, 35}};
  r.attention = {{"f16", 64, 1, 80e6}, {"f16", 64, 8, 20e6}};
  r.dispatch_us = 1.5;
  r.disturbance = {0.01, std::nullopt, 0.99, 0.01};
  r.rounds = 20;
  r.seconds = 11;
  return r;
}

TEST(Roofline, FiguresForAThreadCount) {
  const Roofline r = Example();
  EXPECT_EQ(*r.ReadGbps(1), 20);
  EXPECT_EQ(*r.ReadGbps(3), 30);  // the next lower one that was measured
  EXPECT_EQ(*r.ReadGbps(64), 40);
  EXPECT_FALSE(r.ReadGbps(0));
  EXPECT_EQ(*r.Int8Gops("avx512", 2), 500);
  EXPECT_EQ(*r.Int8Gops("avx512", 8), 1000);
  EXPECT_FALSE(r.Int8Gops("neon", 2));
}

TEST(Roofline, DocumentGoesBothWays) {
  const auto document = ToJson(Example());
  const Result<Roofline> back = FromJson(document);
  ASSERT_TRUE(back) << back.error().Message();
  EXPECT_EQ(ToJson(*back), document);
  EXPECT_TRUE(document["bf16_gflops"]["scalar"].is_null());
  EXPECT_EQ(document["formats"]["Q4_K"]["gbps_memory"], 38.0);
}

TEST(Roofline, DocumentsThatLackOrTwistAFieldAreErrors) {
  const auto good = ToJson(Example());
  for (const auto& [key, value] : good.items()) {
    auto less = good;
    less.erase(key);
    // Documents of versions that did not measure attention, as evidence holds them, are read; nothing is then known of it.
    const bool later = key == "attention" || key == "dispatch_us";
    EXPECT_EQ(FromJson(less).has_value(), later) << key;
    auto other = good;
    other[key] = value.is_string() ? nlohmann::ordered_json(7) : nlohmann::ordered_json("seven");
    EXPECT_FALSE(FromJson(other)) << key;
  }
  for (double rate : {0.0, -1.0}) {
    auto wrong = good;
    wrong["read_gbps"]["1"] = rate;
    EXPECT_FALSE(FromJson(wrong));
    wrong = good;
    wrong["formats"]["Q4_K"]["gbps_l2"] = rate;
    EXPECT_FALSE(FromJson(wrong));
    wrong = good;
    wrong["attention"][0]["tokens_per_s"] = rate;
    EXPECT_FALSE(FromJson(wrong));
  }
  EXPECT_FALSE(FromJson(nlohmann::ordered_json::array()));
}

class CacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "ridge-cache-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  RooflineCache cache() const { return RooflineCache(folder_ + "/a/b"); }
  std::string folder_;
};

TEST_F(CacheTest, KeepsWhatWasStored) {
  EXPECT_FALSE(cache().Load(Example().fingerprint)->has_value());
  ASSERT_TRUE(cache().Store(Example()));
  const auto known = cache().Load(Example().fingerprint);
  ASSERT_TRUE(known && *known);
  EXPECT_EQ(ToJson(**known), ToJson(Example()));
  EXPECT_FALSE(cache().Load("fedcba9876543210")->has_value());
}

TEST_F(CacheTest, RefusesWhatWasDisturbedOrShort) {
  Roofline noisy = Example(), hasty = Example();
  noisy.verdict = {false, {"busy"}};
  hasty.is_short = true;
  EXPECT_FALSE(cache().Store(noisy));
  EXPECT_FALSE(cache().Store(hasty));
  EXPECT_FALSE(cache().Load(Example().fingerprint)->has_value());
}

TEST_F(CacheTest, DamageIsAnErrorThatNamesTheFile) {
  ASSERT_TRUE(cache().Store(Example()));
  const std::string path = cache().PathOf(Example().fingerprint);
  const std::string text = ToJson(Example()).dump();
  auto other = ToJson(Example());
  other["fingerprint"] = "fedcba9876543210";
  auto noisy = ToJson(Example());
  noisy["quiet"] = false;
  for (const std::string& bad : {std::string(), text.substr(0, text.size() / 2), std::string("[]"),
                                 std::string("\xff\0x", 3), other.dump(), noisy.dump()}) {
    std::ofstream(path, std::ios::binary) << bad;
    const auto known = cache().Load(Example().fingerprint);
    ASSERT_FALSE(known) << bad.substr(0, 40);
    EXPECT_EQ(known.error().code, Code::kInvalidData);
    EXPECT_EQ(known.error().where, path);
  }
}

TEST(Plot, SvgIsWellFormed) {
  const std::string svg = SvgPlot(Example(), FormatPoints(Example()));
  // Tags nest, and text that came from outside is escaped.
  std::vector<std::string> open;
  for (size_t at = svg.find('<'); at != svg.npos; at = svg.find('<', at + 1)) {
    const size_t end = svg.find('>', at);
    ASSERT_NE(end, svg.npos);
    const std::string tag = svg.substr(at + 1, end - at - 1), name = tag.substr(0, tag.find_first_of(" />"));
    if (tag.starts_with("?") || tag.ends_with("/")) continue;
    if (tag.starts_with("/")) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else {
      open.push_back(name);
    }
  }
  EXPECT_TRUE(open.empty());
  EXPECT_NE(svg.find("Test &lt;CPU&gt; &amp; &quot;co&quot;"), svg.npos);
  EXPECT_NE(svg.find("Q4_K"), svg.npos);
  EXPECT_EQ(svg.find("nan"), svg.npos);
  EXPECT_EQ(svg.find("inf"), svg.npos);
}

TEST(Plot, TerminalPlotFitsAndHoldsAllPoints) {
  const std::string text = TerminalPlot(Example(), FormatPoints(Example()));
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
    EXPECT_LE(end - begin, 90u) << text.substr(begin, end - begin);
  EXPECT_NE(text.find("b Q4_K"), text.npos);
  EXPECT_NE(text.find('/'), text.npos);
}

// ---------------------------------------------------------------- work and bounds

Work Weights(const std::string& type, double bytes, double flops) {
  Work work;
  work.matmul[type] = {bytes, flops};
  return work;
}

TEST(Work, FloorsFollowFromTheRoofline) {
  Work work = Weights("Q4_K", 1e9, 4e9);
  work.other_bytes = 1e8;
  work.other_flops = 1e9;
  const Floors f = FloorsOf(work, Example(), {.threads = 4, .isa = "avx512", .decode = true});
  EXPECT_DOUBLE_EQ(f.bytes, 1.03e9 + 1e8);
  EXPECT_DOUBLE_EQ(*f.memory_s, 1.13 / 40);
  EXPECT_DOUBLE_EQ(*f.unpack_s, 1.03 / 100);
  EXPECT_DOUBLE_EQ(*f.arithmetic_s, 4.0 / 1000 + 1.0 / 250);
  EXPECT_DOUBLE_EQ(*f.kernels_s, 1.03 / 38 + 0.1 / 40);
  const Floors two = FloorsOf(work, Example(), {.threads = 2, .isa = "avx512", .decode = true});
  EXPECT_DOUBLE_EQ(*two.unpack_s, 1.03 / 50);
  EXPECT_FALSE(two.kernels_s);
}

TEST(Work, BoundIsTheLargestFloorOrOverhead) {
  const Circumstances decode{.threads = 4, .isa = "avx512", .decode = true},
      prefill{.threads = 4, .isa = "avx512", .decode = false};
  const Floors memory = FloorsOf(Weights("Q4_K", 1e9, 4e9), Example(), decode);
  const auto bound = BoundOf(memory, 0.027);
  EXPECT_EQ(bound->limit, Limit::kMemory);
  EXPECT_NEAR(bound->share, 1.03 / 40 / 0.027, 1e-9);
  EXPECT_EQ(BoundOf(memory, 1.9 * 1.03 / 40)->limit, Limit::kMemory);
  EXPECT_EQ(BoundOf(memory, 2.1 * 1.03 / 40)->limit, Limit::kOverhead);
  EXPECT_EQ(BoundOf(FloorsOf(Weights("Q4_K", 1e9, 5e11), Example(), prefill), 0.6)->limit, Limit::kArithmetic);
  Roofline slow = Example();
  slow.formats[1].gbps_l2 = 20;
  EXPECT_EQ(BoundOf(FloorsOf(Weights("Q4_K", 1e9, 4e9), slow, decode), 0.06)->limit, Limit::kUnpack);
}

TEST(Work, NothingIsMadeUp) {
  const Work work = Weights("Q4_K", 1e9, 4e9);
  const Floors other_isa = FloorsOf(work, Example(), {.threads = 4, .isa = "scalar", .decode = true});
  EXPECT_FALSE(other_isa.unpack_s);
  EXPECT_FALSE(BoundOf(other_isa, 0.1));
  EXPECT_FALSE(BoundOf(FloorsOf(work, Example(), {.threads = 4, .isa = "neon", .decode = false}), 0.1));
  const Floors no_kernel =
      FloorsOf(Weights("IQ1_S", 1e9, 4e9), Example(), {.threads = 4, .isa = "avx512", .decode = true});
  EXPECT_FALSE(BoundOf(no_kernel, 0.1));
  EXPECT_FALSE(BoundOf(FloorsOf(work, Example(), {.threads = 4, .isa = "avx512", .decode = true}), 0));
}

// ---------------------------------------------------------------- the measuring itself

TEST(Machine, FingerprintFollowsWhatMatters) {
  const Machine a = ReadMachine();
  EXPECT_EQ(Fingerprint(a, "1"), Fingerprint(ReadMachine(), "1"));
  EXPECT_EQ(Fingerprint(a, "1").size(), 16u);
  Machine b = a;
  b.cpus++;
  EXPECT_NE(Fingerprint(a, "1"), Fingerprint(b, "1"));
  EXPECT_NE(Fingerprint(a, "1"), Fingerprint(a, "2"));
}

TEST(Team, AllRunAtTheSameTime) {
  std::atomic<int> inside{0};
  const auto run = RunTogether(3, [&](int) {
    inside.fetch_add(1);
    while (inside.load() < 3) std::this_thread::yield();  // ends only if three are in here at once
  });
  ASSERT_TRUE(run);
  EXPECT_GT(run->seconds, 0);
  EXPECT_LE(run->cpu_share, 1);
}

// Every kernel runs on the bytes that the measurement uses, and gives numbers: slow paths of subnormals and NaN would be measured else.
TEST(Meter, EveryProbeOfEveryTargetWorks) {
  Machine machine = ReadMachine();
  machine.l2_bytes = 256 << 10;
  machine.cpus = 2;
  Result<Meter> meter = Meter::Create(machine, 8 << 20, 0.0005);
  ASSERT_TRUE(meter);
  std::set<std::string> types;
  for (const backend::PeakProbe& probe : backend::CpuPeaks()) {
    for (int streams : {1, 2, 4, 8}) {
      for (int64_t ahead : {0, 1024}) EXPECT_GT(*meter->Read(2, probe, {streams, ahead}), 0) << probe.isa;
    }
    for (const auto* loop : {&probe.int8, &probe.bf16, &probe.fp32}) {
      int64_t rounds = 0;
      if (!*loop) continue;
      EXPECT_GT(*meter->Peak(2, *loop, rounds), 0) << probe.isa;
    }
    const auto formats = backend::CpuFormats(probe.isa, 512);
    ASSERT_TRUE(formats);
    std::vector<std::byte> bytes(1 << 17);
    for (size_t i = 0; i < bytes.size(); i++) bytes[i] = static_cast<std::byte>(0x20 + i * 7 % 28);
    for (const backend::FormatProbe& format : *formats) {
      types.insert(format.type);
      ASSERT_LE(2 * format.panel_bytes, bytes.size());
      std::vector<float> out(2 * backend::FormatProbe::kPanelRows, NAN);
      format.Run(bytes.data(), 2, out.data());
      for (float x : out) EXPECT_TRUE(std::isfinite(x)) << probe.isa << " " << format.type;
      EXPECT_GT(*meter->FormatInMemory(2, format, 1 << 20), 0);
      EXPECT_GT(*meter->FormatInL2(2, format), 0);
    }
  }
  for (const char* type : {"F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"}) EXPECT_TRUE(types.contains(type)) << type;
}

// The sanitizer finds a byte beyond; prefetches may go there.
TEST(Probe, ReadStaysInside) {
  for (size_t size : {2048u, 8192u}) {
    std::vector<std::byte> data(size, std::byte{1});
    for (const backend::PeakProbe& probe : backend::CpuPeaks()) {
      for (int streams : {1, 2, 4, 8}) probe.read(data.data(), size, {streams, 4096});
    }
  }
}

}  // namespace
}  // namespace ridge::lab
