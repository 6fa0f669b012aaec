// What NVIDIA's management library tells about each GPU. The library is loaded at run time; nothing of it is needed to build.
//
//   RIDGE_ASSIGN_OR_RETURN(Nvml nvml, Nvml::Load());
//   const GpuReading r = nvml.Read(0, 0);       // r.fields: "gpu0_sm_percent", "gpu0_fb_mb", …; r.energy_mj
//
// Guarantees: names and units are those of `nvidia-smi dmon`, with the GPU's number before them. What a GPU does not offer is a field without a value and
// with the library's own words. `gpuN_mem_percent` is the share of time in which its memory was touched, no bandwidth. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/monitor/recorded.h"

namespace ridge::lab {

struct GpuReading {
  std::vector<Field> fields;
  std::optional<double> energy_mj;  // since the driver was loaded; Volta and later
};

class Nvml {
 public:
  // Errors: kNotFound (no such library, or one that lacks a function), kUnavailable (it finds no driver).
  static Result<Nvml> Load(const std::string& library = "libnvidia-ml.so.1");
  Nvml(Nvml&&) noexcept;
  Nvml& operator=(Nvml&&) noexcept;
  ~Nvml();

  int gpus() const;
  const std::string& driver() const;
  std::string Name(int gpu) const;                              // empty: it does not tell
  std::optional<std::string> ComputeCapability(int gpu) const;  // "9.0"
  std::optional<double> MemoryMb(int gpu) const;
  std::optional<double> MaxClockMhz(int gpu, bool of_memory) const;
  std::optional<double> MemoryBusBits(int gpu) const;
  std::string Link(int gpu) const;  // "PCIe generation 5, 16 lanes at most"; empty: it does not tell
  // pid: also the memory that this process holds on the GPU; 0: none.
  GpuReading Read(int gpu, int64_t pid) const;

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

}  // namespace ridge::lab
