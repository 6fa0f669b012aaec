// What the processor can do, asked once with cpuid (x86-64) or the kernel's hwcaps (aarch64).
//
//   if (Cpu().avx512_vnni && Cpu().avx512_vl) ...
//   fmt::print("{}: {}\n", Cpu().model, Cpu().Summary());
//
// Guarantees: a feature is true only if the processor has it *and* the operating system saves its registers. Immutable,
// thread-safe.
#pragma once

#include <string>

namespace ridge {

struct CpuFeatures {
  std::string model;  // "AMD EPYC 9354"; empty if the processor does not say
  // x86-64
  bool avx2 = false;
  bool fma = false;
  bool f16c = false;
  bool avx_vnni = false;  // VEX-coded vpdpbusd on 256 bits
  bool avx512_f = false;
  bool avx512_bw = false;
  bool avx512_vl = false;
  bool avx512_dq = false;
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool avx512_vbmi = false;
  // 512-bit multiplies share their two ports with all other vector work; AMD has two more for that. Such cores also read several streams faster
  // than one.
  bool narrow_ports = false;
  bool amx_tile = false;  // the processor has tiles; a process still asks the kernel for leave to use them
  bool amx_int8 = false;
  bool amx_bf16 = false;
  // aarch64
  bool neon_dotprod = false;
  bool neon_i8mm = false;

  // The names of the features present, by spaces: "avx2 fma f16c avx512f …".
  std::string Summary() const;
};

const CpuFeatures& Cpu();

}  // namespace ridge
