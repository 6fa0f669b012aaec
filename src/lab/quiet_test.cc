#include "lab/quiet.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace ridge::lab {
namespace {

// A tree with a /proc/stat of our own.
class FakeProc {
 public:
  FakeProc() {
    std::string name = (std::filesystem::temp_directory_path() / "ridge-quiet-XXXXXX").string();
    root_ = mkdtemp(name.data());
    std::filesystem::create_directories(root_ + "/proc");
  }
  ~FakeProc() { std::filesystem::remove_all(root_); }
  void Stat(const std::string& text) { std::ofstream(root_ + "/proc/stat") << text; }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

TEST(Quiet, SharesComeFromTheDifferenceOfTwoReadings) {
  const double hz = static_cast<double>(sysconf(_SC_CLK_TCK));
  FakeProc proc;
  proc.Stat("cpu  1000 0 500 9000 10 0 0 20 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n");
  CpuTimes begin = ReadCpuTimes(proc.root());
  ASSERT_TRUE(begin.all_s);
  proc.Stat("cpu  1700 10 590 9100 10 0 0 120 0 0\n");  // 800 busy, 100 idle, 100 stolen
  CpuTimes end = ReadCpuTimes(proc.root());
  begin.own_s = 5;
  end.own_s = 5 + 300 / hz;
  const Disturbance d = Between(begin, end);
  EXPECT_NEAR(*d.others_share, 0.5, 1e-9);
  EXPECT_NEAR(*d.steal_share, 0.1, 1e-9);
}

TEST(Quiet, WhatCannotBeReadIsAbsentAndNotHeldAgainstTheMachine) {
  FakeProc proc;
  for (const char* text : {"", "cpu", "cpu  1 2 3", "disk 1 2 3 4 5 6 7 8\n"}) {
    proc.Stat(text);
    const CpuTimes times = ReadCpuTimes(proc.root());
    EXPECT_FALSE(times.all_s) << text;
    const Disturbance d = Between(times, times);
    EXPECT_FALSE(d.others_share);
    EXPECT_TRUE(Judge(d).quiet);
  }
}

TEST(Quiet, EachDisturbanceIsAReason) {
  const Disturbance calm{.others_share = 0.02, .steal_share = 0.003, .cpu_share = 0.99, .spread = 0.02};
  EXPECT_TRUE(Judge(calm).quiet);
  EXPECT_TRUE(Judge(calm).reasons.empty());
  const auto disturbed = [&](auto change, const char* word) {
    Disturbance d = calm;
    change(d);
    const Verdict verdict = Judge(d);
    EXPECT_FALSE(verdict.quiet) << word;
    ASSERT_EQ(verdict.reasons.size(), 1u) << word;
    EXPECT_NE(verdict.reasons[0].find(word), std::string::npos) << verdict.reasons[0];
  };
  disturbed([](Disturbance& d) { d.others_share = 0.33; }, "other processes used 33 %");
  disturbed([](Disturbance& d) { d.steal_share = 0.05; }, "host");
  disturbed([](Disturbance& d) { d.cpu_share = 0.5; }, "50 % of the time");
  disturbed([](Disturbance& d) { d.spread = 0.2; }, "20 %");
}

// Two busy loops a CPU, as a measurement sees them: a third of the time for us.
TEST(Quiet, BusyLoopsGiveThreeReasons) {
  EXPECT_GE(Judge({.others_share = 0.6, .steal_share = 0.0, .cpu_share = 0.35, .spread = 0.1}).reasons.size(), 3u);
}

}  // namespace
}  // namespace ridge::lab
