#include "backend/cpu/isa.h"

#include "backend/backend.h"
#include "base/cpu.h"

namespace ridge::cpu {
namespace {

struct Target {
  const Kernels* kernels;
  bool supported;
};

// Worst first.
std::vector<Target> Targets() {
  std::vector<Target> targets = {{&kScalarKernels, true}};
#if defined(__x86_64__)
  const CpuFeatures& cpu = Cpu();
  const bool avx2 = cpu.avx2 && cpu.fma && cpu.f16c;
  targets.push_back({&kAvx2Kernels, avx2});
  targets.push_back({&kAvxVnniKernels, avx2 && cpu.avx_vnni});
  targets.push_back(
      {&kAvx512Kernels, avx2 && cpu.avx512_f && cpu.avx512_bw && cpu.avx512_vl && cpu.avx512_dq && cpu.avx512_vnni});
#elif defined(__aarch64__)
  const CpuFeatures& cpu = Cpu();
  targets.push_back({&kNeonKernels, cpu.neon_dotprod});
  targets.push_back({&kNeonI8mmKernels, cpu.neon_dotprod && cpu.neon_i8mm});
#endif
  return targets;
}

}  // namespace

std::vector<const Kernels*> AllKernels() {
  std::vector<const Kernels*> all;
  for (const Target& target : Targets()) all.push_back(target.kernels);
  return all;
}

Result<const Kernels*> SelectKernels(const std::string& isa) {
  const Kernels* best = nullptr;
  std::string names;
  for (const Target& target : Targets()) {
    names += (names.empty() ? "" : " ") + std::string(target.kernels->isa);
    if (isa == target.kernels->isa) {
      if (target.supported) return target.kernels;
      return Fail(Code::kUnsupported, "this CPU cannot run the ISA asked for")
          .Where("--isa")
          .Found(isa)
          .Remedy("see ridge doctor for what it has");
    }
    if (target.supported) best = target.kernels;
  }
  if (isa.empty()) return best;
  // A target of another kind of processor is not a misspelling.
  for (const backend::CpuTarget& target : backend::CpuTargets()) {
    if (isa != target.name) continue;
    return Fail(Code::kUnsupported, "this ISA is of another kind of processor, and this program has no kernels for it")
        .Where("--isa")
        .Found(isa)
        .Expected("one of: " + names);
  }
  return Fail(Code::kInvalidArgument, "unknown ISA").Where("--isa").Found(isa).Expected("one of: " + names);
}

}  // namespace ridge::cpu

namespace ridge::backend {

std::vector<IsaInfo> CpuIsas() {
  std::vector<IsaInfo> isas;
  for (const cpu::Target& target : cpu::Targets()) isas.push_back({target.kernels->isa, target.supported});
  return isas;
}

}  // namespace ridge::backend
