#include "base/placement.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/thread_probe.h"
#include "base/topology.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

// A machine of eight CPUs, all allowed, on `nodes` memory nodes.
class FakeMachine {
 public:
  explicit FakeMachine(int nodes, const std::string& allowed = "0-7") {
    std::string pattern = (fs::temp_directory_path() / "ridge-placement-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
    Write("/proc/self/status", "Cpus_allowed_list:\t" + allowed);
    Write("/sys/devices/system/cpu/online", "0-7");
    Write("/sys/devices/system/node/online", nodes == 1 ? "0" : "0-" + std::to_string(nodes - 1));
    for (int node = 0; node < nodes; node++) {
      const int per = 8 / nodes;
      Write("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist",
            std::to_string(node * per) + "-" + std::to_string(node * per + per - 1));
    }
  }
  ~FakeMachine() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;
  Result<Placement> Resolve(const PlacementOptions& options) const { return ResolvePlacement(options, path_); }

 private:
  void Write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(path_ + path).parent_path());
    std::ofstream(path_ + path) << text << '\n';
  }
  std::string path_;
};

using Cpus = std::vector<int>;

TEST(Placement, MaskAndRangeNameCpus) {
  const FakeMachine machine(1);
  EXPECT_EQ(machine.Resolve({.cpu_mask = "0x3"})->cpus, (Cpus{0, 1}));
  EXPECT_EQ(machine.Resolve({.cpu_mask = "A1"})->cpus, (Cpus{0, 5, 7}));
  EXPECT_EQ(machine.Resolve({.cpu_mask = "000000000000000000000004"})->cpus, (Cpus{2}));
  EXPECT_EQ(machine.Resolve({.cpu_range = "2-4"})->cpus, (Cpus{2, 3, 4}));
  EXPECT_EQ(machine.Resolve({.cpu_range = "5-5"})->cpus, (Cpus{5}));
  EXPECT_TRUE(machine.Resolve({})->cpus.empty());
  EXPECT_EQ(machine.Resolve({})->cpus_reason, "not pinned");
}

TEST(Placement, WhatIsNoMaskOrRangeIsWrongUsage) {
  const FakeMachine machine(1);
  for (const char* mask : {"0", "0x", "0x0", "g", "-1", "1 ", "0x3,1", "1.5"}) {
    const auto refused = machine.Resolve({.cpu_mask = mask});
    ASSERT_FALSE(refused.has_value()) << mask;
    EXPECT_EQ(refused.error().code, Code::kUsage) << mask;
    EXPECT_EQ(refused.error().where, "--cpu-mask");
  }
  for (const char* range : {"3", "-3", "3-", "4-3", "a-b", "0-99999999999", "1-2-3", "0x0-1", " 0-1"}) {
    const auto refused = machine.Resolve({.cpu_range = range});
    ASSERT_FALSE(refused.has_value()) << range;
    EXPECT_EQ(refused.error().code, Code::kUsage) << range;
  }
  EXPECT_EQ(machine.Resolve({.cpu_mask = "1", .cpu_range = "0-1"}).error().code, Code::kUsage);
  EXPECT_EQ(machine.Resolve({.numa = "spread"}).error().code, Code::kUsage);
}

TEST(Placement, ACpuOutsideTheAffinityMaskIsNamed) {
  const FakeMachine machine(1, "0-2,6");
  const auto refused = machine.Resolve({.cpu_range = "1-4"});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_EQ(refused.error().found, "CPU 3");
  EXPECT_EQ(refused.error().expected, "some of 0-2,6");
  EXPECT_FALSE(machine.Resolve({.cpu_mask = "ffffffffffffffffffff"}).has_value());
}

TEST(Placement, OneNodeIsSaidToChangeNothing) {
  const FakeMachine machine(1);
  for (const char* mode : {"distribute", "isolate"}) {
    const auto placement = machine.Resolve({.numa = mode});
    ASSERT_TRUE(placement.has_value());
    EXPECT_EQ(placement->numa, mode);
    EXPECT_NE(placement->numa_reason.find("changes nothing"), std::string::npos);
    EXPECT_TRUE(placement->cpus.empty() && placement->nodes.empty());
  }
  // Two nodes, but the pinned CPUs belong to one.
  EXPECT_TRUE(FakeMachine(2).Resolve({.cpu_range = "4-7", .numa = "distribute"})->nodes.empty());
}

TEST(Placement, TwoNodes) {
  const FakeMachine machine(2);
  EXPECT_EQ(machine.Resolve({.numa = "distribute"})->nodes, (std::vector<int>{0, 1}));
  EXPECT_TRUE(machine.Resolve({.numa = "distribute"})->cpus.empty());
  const auto isolated = machine.Resolve({.cpu_range = "3-7", .numa = "isolate"});
  ASSERT_TRUE(isolated.has_value());
  // The node that this thread runs on, if it holds any of the CPUs; else the one with most of them.
  EXPECT_TRUE(isolated->cpus == (Cpus{3}) || isolated->cpus == (Cpus{4, 5, 6, 7})) << CpuListText(isolated->cpus);
  EXPECT_TRUE(isolated->nodes.empty());
}

// The node that the thread runs on is taken although the other one holds more of the CPUs.
TEST(Placement, IsolateStaysOnTheNodeOfTheThread) {
  const int cpu = ReadCpuLimits().allowed.front();
  if (cpu > 7) GTEST_SKIP() << "needs one of CPUs 0 to 7";
  std::thread([cpu] {
    ASSERT_TRUE(ApplyPlacement({.cpus = {cpu}}).has_value());
    const std::string mask = fmt::format("{:x}", (cpu < 4 ? 0xf0 : 0x0f) | 1 << cpu);
    const auto isolated = FakeMachine(2).Resolve({.cpu_mask = mask, .numa = "isolate"});
    ASSERT_TRUE(isolated.has_value());
    EXPECT_EQ(isolated->cpus, (Cpus{cpu})) << mask;
  }).join();
}

TEST(Placement, ListsAreShort) {
  EXPECT_EQ(CpuListText({}), "");
  EXPECT_EQ(CpuListText({0, 1, 2, 8, 10, 11}), "0-2,8,10-11");
}

TEST(Placement, PinnedThreadsStayAndTheirChildrenToo) {
  const Cpus allowed = ReadCpuLimits().allowed;
  std::thread([&] {
    const Status applied = ApplyPlacement({.cpus = {allowed.back()}});
    ASSERT_TRUE(applied.has_value()) << applied.error().Message();
    EXPECT_EQ(ReadCpuLimits().allowed, (Cpus{allowed.back()}));
    EXPECT_EQ(ResolveThreads(std::nullopt).threads, 1);
    std::thread([&] { EXPECT_EQ(sched_getcpu(), allowed.back()); }).join();
  }).join();
  EXPECT_EQ(ReadCpuLimits().allowed, allowed);  // of this thread, which was not pinned
}

TEST(ThreadProbe, FewerThreadsOnlyWhereThatIsClearlyFaster) {
  const auto choose = [](std::vector<ProbeSample> samples) { return ChooseThreads(samples); };
  EXPECT_EQ(choose({{1, 15}, {2, 28}}), 2);
  EXPECT_EQ(choose({{1, 30}, {2, 28}}), 2);
  EXPECT_EQ(choose({{1, 31}, {2, 28}}), 1);
  EXPECT_EQ(choose({{1, 15}, {8, 100}, {16, 80}}), 8);
  EXPECT_EQ(choose({{1, 15}, {8, 85}, {16, 80}}), 16);
  EXPECT_EQ(choose({{1, 120}, {8, 100}, {16, 80}}), 1);
  EXPECT_EQ(choose({{4, 0}}), 4);
  EXPECT_EQ(choose({}), 1);
}

TEST(ThreadProbe, KeepsWhatItMayNotChange) {
  EXPECT_EQ(ProbeThreads({.threads = 3, .reason = "asked for", .asked = true}).reason, "asked for");
  EXPECT_EQ(ProbeThreads({.threads = 1, .reason = "one"}).reason, "one");
  const CpuBudget rationed = ProbeThreads({.threads = 2, .reason = "r", .quota = true});
  EXPECT_EQ(rationed.threads, 2);
  EXPECT_NE(rationed.reason.find("not probed"), std::string::npos);
}

TEST(ThreadProbe, SaysWhatItMeasured) {
  const CpuBudget budget = ProbeThreads({.threads = 2, .reason = "r"});
  EXPECT_TRUE(budget.threads == 1 || budget.threads == 2);
  EXPECT_NE(budget.reason.find("probe"), std::string::npos) << budget.reason;
}

}  // namespace
}  // namespace ridge
