#include "lab/evidence/memory_modules.h"

#include <fmt/format.h>

#include <cstdint>
#include <map>

namespace ridge::lab {
namespace {

// SMBIOS Reference Specification (DSP0134), "Memory Device (Type 17)": offsets in its formatted area, and the types that are built in today.
constexpr uint8_t kMemoryDevice = 17, kEnd = 127;
constexpr size_t kSize = 0x0c, kType = 0x12, kSpeed = 0x15, kExtendedSize = 0x1c, kConfigured = 0x20;

const char* TypeName(uint8_t type) {
  switch (type) {
    case 0x18: return "DDR3";
    case 0x1a: return "DDR4";
    case 0x1d: return "LPDDR3";
    case 0x1e: return "LPDDR4";
    case 0x20: return "HBM";
    case 0x21: return "HBM2";
    case 0x22: return "DDR5";
    case 0x23: return "LPDDR5";
    default: return "memory";
  }
}

uint64_t Little(std::string_view area, size_t at, size_t bytes) {
  if (at + bytes > area.size()) return 0;
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; i++) value |= static_cast<uint64_t>(static_cast<uint8_t>(area[at + i])) << (8 * i);
  return value;
}

}  // namespace

std::string MemoryModules(std::string_view table) {
  std::map<std::string, int> modules;
  while (table.size() >= 4) {
    const auto type = static_cast<uint8_t>(table[0]), length = static_cast<uint8_t>(table[1]);
    if (type == kEnd || length < 4 || length > table.size()) break;
    const std::string_view area = table.substr(0, length);
    if (type == kMemoryDevice) {
      // MiB; the highest bit: KiB; 0x7fff: see the extended size, in MiB.
      uint64_t mib = Little(area, kSize, 2);
      if (mib == 0x7fff)
        mib = Little(area, kExtendedSize, 4) & 0x7fffffff;
      else if (mib == 0xffff)  // not known
        mib = 0;
      else if ((mib & 0x8000) != 0)
        mib = (mib & 0x7fff) / 1024;
      const uint64_t configured = Little(area, kConfigured, 2),
                     speed = configured != 0 ? configured : Little(area, kSpeed, 2);
      if (mib > 0) {
        std::string name = mib % 1024 == 0 ? fmt::format("{} GiB", mib / 1024) : fmt::format("{} MiB", mib);
        name += std::string(" ") + TypeName(static_cast<uint8_t>(Little(area, kType, 1)));
        if (speed != 0 && speed != 0xffff) name += fmt::format(" {} MT/s", speed);
        modules[name]++;
      }
    }
    // Texts follow, each ended by a zero byte, and one more ends them all.
    const size_t end = table.find(std::string_view("\0\0", 2), length);
    if (end == std::string_view::npos) break;
    table.remove_prefix(end + 2);
  }
  std::string all;
  for (const auto& [name, n] : modules) all += fmt::format("{}{} x {}", all.empty() ? "" : ", ", n, name);
  return all;
}

}  // namespace ridge::lab
