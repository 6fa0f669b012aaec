// Which kernel serves which tensor type on which target: what `ridge doctor --kernels` prints and docs/kernels.md holds.
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/pack.h"
#include "quant/quant.h"

namespace ridge::backend {

using cpu::ActKind;

// The numbers of all targets stand here, because a binary has the tables of one kind of processor only.
std::vector<CpuTarget> CpuTargets() {
  return {{"scalar", "any", "C++", "fmaf", 4, 4, 4},
          {"avx2", "x86-64", "vpmaddubsw", "vfmadd", 8, 2, 4},
          {"avxvnni", "x86-64", "vpdpbusd", "vfmadd", 8, 2, 4},
          {"avx512", "x86-64", "vpdpbusd", "vfmadd", 16, 2, 8},
          {"neon", "aarch64", "sdot", "fmla", 4, 4, 4},
          {"neon-i8mm", "aarch64", "usdot", "fmla", 4, 4, 4}};
}

std::vector<CpuTypeKernel> CpuTypeKernels() {
  std::vector<CpuTypeKernel> kernels;
  for (const quant::Type& type : quant::Types()) {
    if (type.decode == nullptr) continue;  // holds no weights
    CpuTypeKernel k{.type = std::string(type.name),
                    .kernel = "decode+panel16.f32",
                    .activations = "float32",
                    .floats = true,
                    .fallback = true};
    if (const auto kind = cpu::PanelFor(type.id)) {
      k.kernel = cpu::Name(*kind);
      k.floats = cpu::ActOf(*kind) == ActKind::kF32;
      if (cpu::ActOf(*kind) == ActKind::kQ8x32) k.activations = "int8, a scale per 32";
      if (cpu::ActOf(*kind) == ActKind::kQ8x256) k.activations = "int8, a scale per 256";
      k.fallback = false;
      k.most_tokens = cpu::TileTokens(*kind, k.most_tokens);
    }
    kernels.push_back(std::move(k));
  }
  return kernels;
}

}  // namespace ridge::backend
