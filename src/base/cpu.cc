#include "base/cpu.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include <cstdio>
#include <fstream>
#endif

namespace ridge {
namespace {

#if defined(__x86_64__)

// XCR0: which register files the operating system saves. Read with xgetbv, which exists only if cpuid says OSXSAVE.
uint64_t SavedRegisters() {
  uint32_t low = 0;
  uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

bool Bit(uint32_t word, int bit) { return ((word >> bit) & 1u) != 0; }

std::string Vendor() {
  uint32_t a = 0, words[3] = {};
  if (!__get_cpuid(0, &a, &words[0], &words[2], &words[1])) return "";
  char text[sizeof(words)];
  std::memcpy(text, words, sizeof(words));
  return std::string(text, sizeof(text));
}

std::string Brand() {
  uint32_t words[12] = {};
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(0x80000000u, &a, &b, &c, &d) || a < 0x80000004u) return "";
  for (uint32_t leaf = 0; leaf < 3; ++leaf) {
    uint32_t* w = words + 4 * leaf;
    __get_cpuid(0x80000002u + leaf, &w[0], &w[1], &w[2], &w[3]);
  }
  char text[sizeof(words) + 1] = {};
  std::memcpy(text, words, sizeof(words));
  std::string brand(text);
  const size_t begin = brand.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return brand.substr(begin, brand.find_last_not_of(' ') - begin + 1);
}

// Bit numbers: Intel SDM volume 2A, CPUID, leaves 1 and 7; AMX and AVX-512 state bits: volume 1, section 13.1.
CpuFeatures Detect() {
  CpuFeatures f;
  f.model = Brand();
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !Bit(c, 27)) return f;
  const uint64_t saved = SavedRegisters();
  const bool ymm = (saved & 0x6) == 0x6;
  const bool zmm = ymm && (saved & 0xE0) == 0xE0;
  const bool tiles = (saved & 0x60000) == 0x60000;
  f.fma = ymm && Bit(c, 12);
  f.f16c = ymm && Bit(c, 29);
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return f;
  const uint32_t last_subleaf = a;
  f.avx2 = ymm && Bit(b, 5);
  f.avx512_f = zmm && Bit(b, 16);
  f.avx512_dq = zmm && Bit(b, 17);
  f.avx512_bw = zmm && Bit(b, 30);
  f.avx512_vl = zmm && Bit(b, 31);
  f.avx512_vbmi = zmm && Bit(c, 1);
  f.avx512_vnni = zmm && Bit(c, 11);
  f.narrow_ports = f.avx512_f && Vendor() == "GenuineIntel";
  f.amx_bf16 = tiles && Bit(d, 22);
  f.amx_tile = tiles && Bit(d, 24);
  f.amx_int8 = tiles && Bit(d, 25);
  if (last_subleaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
    f.avx_vnni = ymm && Bit(a, 4);
    f.avx512_bf16 = zmm && Bit(a, 5);
  }
  return f;
}

#elif defined(__aarch64__)

// The main ID register of the first CPU as the kernel shows it; "" where it does not. Arm ARM, MIDR_EL1: implementer in bits 31-24,
// part number in bits 15-4. The names would be a table that is always out of date, so the numbers are what one gets.
std::string Model() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1");
  uint64_t id = 0;
  if (!(file >> std::hex >> id)) return "";
  char text[64];
  std::snprintf(text, sizeof(text), "Arm implementer 0x%02x part 0x%03x", static_cast<unsigned>(id >> 24 & 0xff),
                static_cast<unsigned>(id >> 4 & 0xfff));
  return text;
}

CpuFeatures Detect() {
  CpuFeatures f;
  f.model = Model();
  f.neon_dotprod = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#ifdef HWCAP2_I8MM
  f.neon_i8mm = (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
#endif
  return f;
}

#else

CpuFeatures Detect() { return {}; }

#endif

}  // namespace

std::string CpuFeatures::Summary() const {
  const struct {
    bool present;
    const char* name;
  } all[] = {
      {avx2, "avx2"},
      {fma, "fma"},
      {f16c, "f16c"},
      {avx_vnni, "avx_vnni"},
      {avx512_f, "avx512f"},
      {avx512_bw, "avx512bw"},
      {avx512_vl, "avx512vl"},
      {avx512_dq, "avx512dq"},
      {avx512_vnni, "avx512_vnni"},
      {avx512_bf16, "avx512_bf16"},
      {avx512_vbmi, "avx512vbmi"},
      {amx_tile, "amx_tile"},
      {amx_int8, "amx_int8"},
      {amx_bf16, "amx_bf16"},
      {neon_dotprod, "dotprod"},
      {neon_i8mm, "i8mm"},
  };
  std::string text;
  for (const auto& feature : all) {
    if (!feature.present) continue;
    if (!text.empty()) text += ' ';
    text += feature.name;
  }
  return text;
}

const CpuFeatures& Cpu() {
  static const CpuFeatures features = Detect();
  return features;
}

}  // namespace ridge
