// Counters of the processor, as perf_event_open gives them: instructions, cycles, misses of the last cache, and bytes that the memory controllers moved.
//
//   PerfCounters counters(ProcessorEvents(), pid);        // of a process and its threads; pid 0: of the whole machine
//   for (const PerfCount& c : counters.Read()) ...      // "instructions": 1.2e9, or why there is none
//
// Guarantees: a counter that shared its register with others is scaled by the time it ran; one that never ran has no value. What the kernel or the processor
// refuses is named with the reason and has no count. Threads that a process starts later count too. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ridge::lab {

struct PerfEvent {
  std::string name;
  uint32_t type = 0;
  uint64_t config = 0;
  double scale = 1;       // of one count, in the unit of the name
  std::vector<int> cpus;  // where it counts for all (memory controllers); empty: for a process, or on every CPU
};

struct PerfCount {
  std::string name;
  std::optional<double> value;  // since the counters were opened
  std::string reason;
};

// instructions, cycles, cache_misses.
std::vector<PerfEvent> ProcessorEvents();
// memory_read_bytes and memory_write_bytes of Intel's memory controllers, from /sys/bus/event_source/devices; empty: none is there. `root` is for tests.
std::vector<PerfEvent> MemoryEvents(const std::string& root = "");

class PerfCounters {
 public:
  PerfCounters(std::vector<PerfEvent> events, int64_t pid);
  PerfCounters(PerfCounters&& other) noexcept;
  PerfCounters& operator=(PerfCounters&&) = delete;
  ~PerfCounters();
  std::vector<PerfCount> Read() const;
  // Those that could not be opened: name and reason.
  const std::vector<std::pair<std::string, std::string>>& refused() const { return refused_; }
  bool empty() const { return open_.empty(); }

 private:
  struct Open {
    std::string name;
    double scale;
    std::vector<int> files;
  };
  std::vector<Open> open_;
  std::vector<std::pair<std::string, std::string>> refused_;
};

}  // namespace ridge::lab
