#include "lab/experiments/catalogue.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "lab/experiments/experiment.h"
#include "lab/monitor/power.h"
#include "lab/subjects/subject.h"

namespace ridge::lab {
namespace {

Device Rich() {
  return {.cpus = 8,
          .isas = {{"avx2", ""}, {"scalar", ""}, {"neon", "another processor"}},
          .power_modes = {"performance", "powersave"}};
}
Device Poor() {
  return {.cpus = 1,
          .isas = {{"scalar", ""}},
          .no_power_modes = "no power modes",
          .no_gpu = "no NVIDIA driver",
          .no_blas = "no BLAS"};
}

TEST(Catalogue, EachExperimentIsOneThatCanBePlanned) {
  for (const Ready& r : ReadyMade()) {
    for (const std::string peer : {"", "/opt/llama"}) {
      const auto toml = WriteReady(r.name, {.models = {"a.gguf", "b.gguf"}, .peer = peer}, Rich());
      if (r.name == "runtimes" && peer.empty()) {
        EXPECT_FALSE(WriteReady(r.name, {.models = {"a"}}, Rich()));
        continue;
      }
      const bool own = r.own_only || (!r.like.empty() && FindReady(r.like)->own_only);
      if (own && !peer.empty()) {
        EXPECT_FALSE(toml) << r.name;
        continue;
      }
      ASSERT_TRUE(toml) << r.name << ": " << toml.error().Message();
      const auto e = ParseExperiment(*toml);
      ASSERT_TRUE(e) << r.name << ": " << e.error().Message() << "\n" << *toml;
      EXPECT_FALSE(MovedBy(e->flag).empty()) << r.name;
      EXPECT_EQ(e->name, r.name);
      for (const PlannedRun& run : PlanRuns(*e)) EXPECT_TRUE(SubjectOf(*e, run).Command(*e, run.arm)) << r.name;
      EXPECT_EQ(*toml, WriteReady(r.name, {.models = {"a.gguf", "b.gguf"}, .peer = peer}, Rich()).value());
    }
  }
  EXPECT_FALSE(WriteReady("nonsense", {.models = {"a"}}, Rich()));
  EXPECT_FALSE(WriteReady("threads", {}, Rich()));
  EXPECT_FALSE(WriteReady("format", {.models = {"a"}}, Rich()));
}

TEST(Catalogue, WhatADeviceLacksIsNamedAndNothingIsRun) {
  for (const auto& [name, value, why] : {std::tuple{"offload", "99", "no NVIDIA driver"},
                                         {"homework-1", "99", "no NVIDIA driver"},
                                         {"power-mode", "(every mode)", "no power modes"},
                                         {"blas", "blas", "no BLAS"},
                                         {"threads", "2", "this process may use one CPU only"}}) {
    const Experiment e = ParseExperiment(WriteReady(name, {.models = {"a"}}, Poor()).value()).value();
    EXPECT_EQ(e.not_run.at(value), why) << name;
    EXPECT_TRUE(PlanRuns(e).empty()) << name;
  }
  // One of three kernels is missing: the other two are compared.
  const Experiment isa = ParseExperiment(WriteReady("isa", {.models = {"a"}}, Rich()).value()).value();
  EXPECT_EQ(isa.values, (std::vector<std::string>{"avx2", "scalar"}));
  EXPECT_EQ(isa.not_run.at("neon"), "another processor");
}

TEST(Catalogue, QualityIsAskedOncePerValueAtTheEnd) {
  const Experiment e = ParseExperiment(WriteReady("threads", {.models = {"a"}}, Rich()).value()).value();
  const auto runs = PlanRuns(e);
  size_t asked = 0;
  for (const PlannedRun& run : runs) {
    asked += run.asks;
    if (run.asks) {
      EXPECT_EQ(SubjectOf(e, run).name(), "serve");
      EXPECT_EQ(run.block, e.blocks);
      EXPECT_NE(run.arm, 1u);
    }
  }
  EXPECT_EQ(asked, e.values.size());
  EXPECT_EQ(runs.size(), static_cast<size_t>(e.blocks) * 2 * Arms(e) + asked);
  const auto command = SubjectOf(e, runs.back()).Command(e, runs.back().arm).value();
  EXPECT_NE(std::find(command.begin(), command.end(), "serve"), command.end());
  EXPECT_NE(std::find(command.begin(), command.end(), "-t"), command.end());
  EXPECT_EQ(std::find(command.begin(), command.end(), "-p"), command.end());
}

TEST(Power, GovernorsAreReadSetAndReadBack) {
  const std::string root = testing::TempDir() + "ridge-power-" + std::to_string(getpid());
  std::filesystem::remove_all(root);
  EXPECT_NE(ReadPowerModes(root).reason.find("cpufreq"), std::string::npos);
  for (const char* cpu : {"cpu0", "cpu1"}) {
    const std::string folder = root + "/sys/devices/system/cpu/" + cpu + "/cpufreq";
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/scaling_governor") << "powersave\n";
    std::ofstream(folder + "/scaling_available_governors") << "performance powersave \n";
  }
  EXPECT_EQ(ReadPowerModes(root).names, (std::vector<std::string>{"performance", "powersave"}));
  EXPECT_TRUE(SetPowerMode("performance", root));
  EXPECT_EQ(ReadPowerModes(root).current, "performance");
  EXPECT_FALSE(SetPowerMode("turbo", root));
  std::filesystem::create_directories(root + "/etc");
  std::ofstream(root + "/etc/nvpmodel.conf")
      << "# x\n< POWER_MODEL ID=0 NAME=MAXN >\nCPU 1\n< POWER_MODEL ID=1 NAME=15W >\n";
  EXPECT_EQ(ReadPowerModes(root).names, (std::vector<std::string>{"0", "1"}));
  EXPECT_TRUE(ReadPowerModes(root).nvpmodel);
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace ridge::lab
