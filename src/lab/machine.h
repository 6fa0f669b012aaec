// What makes measurements of two moments comparable: the processor, the CPUs that this process may use, caches, memory and the build.
//
//   const Machine machine = ReadMachine();
//   Fingerprint(machine, revision)   // "9f3c…", 16 hex digits
//
// Guarantees: equal fingerprints mean that a figure measured with one may be used with the other; it does not change while nothing of the above does.
// What cannot be read has a stated default. `sys_root` is prefixed to /proc and /sys so that tests feed fake trees.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ridge::lab {

struct Machine {
  std::string cpu, features;
  int cpus = 1;             // that this process may use
  int cores = 1;            // that hold at least one of them
  uint64_t l2_bytes = 0;    // of one core; 512 KiB where the system does not say
  uint64_t l3_bytes = 0;    // all last-level caches of these CPUs together; 32 MiB where the system does not say
  uint64_t memory_gib = 0;  // rounded: a kernel update moves the exact figure
  std::string huge_pages;   // "always", "madvise", "never"; empty: not known
};

Machine ReadMachine(const std::string& sys_root = "/");

std::string Fingerprint(const Machine& machine, std::string_view build);

}  // namespace ridge::lab
