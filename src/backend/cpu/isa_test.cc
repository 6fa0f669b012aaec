#include "backend/cpu/isa.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/cpu.h"

namespace ridge::cpu {
namespace {

TEST(Isa, TheBestThatRunsIsTaken) {
  std::string best;
  for (const backend::IsaInfo& isa : backend::CpuIsas()) {
    if (isa.supported) best = isa.name;
  }
  EXPECT_EQ((*SelectKernels(""))->isa, best);
}

TEST(Isa, EveryTargetOfThisProcessorIsThereByItsName) {
  std::vector<std::string> names;
  for (const backend::IsaInfo& isa : backend::CpuIsas()) names.push_back(isa.name);
#if defined(__x86_64__)
  EXPECT_EQ(names, (std::vector<std::string>{"scalar", "avx2", "avxvnni", "avx512"}));
#elif defined(__aarch64__)
  EXPECT_EQ(names, (std::vector<std::string>{"scalar", "neon", "neon-i8mm"}));
#else
  EXPECT_EQ(names, (std::vector<std::string>{"scalar"}));
#endif
}

// What `ridge doctor --kernels` and the docs say of a target is what its table was compiled with.
TEST(Isa, TilesAreThoseOfTheTables) {
  int compared = 0;
  for (const backend::CpuTarget& target : backend::CpuTargets()) {
    for (const Kernels* kernels : AllKernels()) {
      if (kernels->isa != target.name) continue;
      EXPECT_EQ(kernels->lanes, target.lanes) << target.name;
      EXPECT_EQ(kernels->columns, target.columns) << target.name;
      EXPECT_EQ(kernels->max_tokens, target.tokens) << target.name;
      compared++;
    }
  }
  EXPECT_EQ(compared, static_cast<int>(AllKernels().size()));
}

// Never another one in silence: what this CPU lacks, what another kind of processor has, and what nobody has are told apart.
TEST(Isa, WhatCannotRunIsRefusedByName) {
  for (const backend::IsaInfo& isa : backend::CpuIsas()) {
    const auto kernels = SelectKernels(isa.name);
    ASSERT_EQ(kernels.has_value(), isa.supported) << isa.name;
    if (kernels) {
      EXPECT_EQ((*kernels)->isa, isa.name);
    } else {
      EXPECT_EQ(kernels.error().code, Code::kUnsupported);
      EXPECT_EQ(kernels.error().found, isa.name);
    }
  }
#if defined(__x86_64__)
  const std::string foreign = "neon-i8mm";
#else
  const std::string foreign = "avx512";
#endif
  EXPECT_EQ(SelectKernels(foreign).error().code, Code::kUnsupported);
  EXPECT_EQ(SelectKernels(foreign).error().found, foreign);
  EXPECT_EQ(SelectKernels("mmx").error().code, Code::kInvalidArgument);
  EXPECT_EQ(SelectKernels("AVX2").error().code, Code::kInvalidArgument);
}

// A target that is offered needs no feature that the CPU lacks.
TEST(Isa, OfferedTargetsFollowTheFeatures) {
  const CpuFeatures& cpu = Cpu();
  for (const backend::IsaInfo& isa : backend::CpuIsas()) {
    if (isa.name == "avx2") {
      EXPECT_EQ(isa.supported, cpu.avx2 && cpu.fma && cpu.f16c);
    }
    if (isa.name == "avxvnni") {
      EXPECT_EQ(isa.supported, cpu.avx_vnni && cpu.avx2 && cpu.fma && cpu.f16c);
    }
    if (isa.name == "neon") {
      EXPECT_EQ(isa.supported, cpu.neon_dotprod);
    }
    if (isa.name == "neon-i8mm") {
      EXPECT_EQ(isa.supported, cpu.neon_dotprod && cpu.neon_i8mm);
    }
  }
}

}  // namespace
}  // namespace ridge::cpu
