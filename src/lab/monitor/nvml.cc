// Types and numbers of NVML's interface as its reference manual gives them (NVML API Reference, "Device Queries").
#include "lab/monitor/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

namespace ridge::lab {
namespace {

using Device = void*;
constexpr int kSuccess = 0;
constexpr int kTemperatureGpu = 0, kClockSm = 1, kClockMemory = 2;
constexpr double kMiB = 1048576;

struct Utilization {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};
struct Process {  // of nvmlDeviceGetComputeRunningProcesses_v3
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(Process) == 24);

struct Reason {
  unsigned long long bit;
  const char* name;
};
constexpr Reason kSlowed[] = {
    {0x4, "power_cap"}, {0x8, "hw_slowdown"}, {0x20, "sw_thermal"}, {0x40, "hw_thermal"}, {0x80, "power_brake"}};

}  // namespace

struct Nvml::Library {
  void* handle = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  const char* (*error)(int) = nullptr;
  // Those that an older library may lack.
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*capability)(Device, int*, int*) = nullptr;
  int (*utilization)(Device, Utilization*) = nullptr;
  int (*encoder)(Device, unsigned*, unsigned*) = nullptr;
  int (*decoder)(Device, unsigned*, unsigned*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*temperature)(Device, int, unsigned*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;
  int (*energy)(Device, unsigned long long*) = nullptr;
  int (*clock)(Device, int, unsigned*) = nullptr;
  int (*slowed)(Device, unsigned long long*) = nullptr;
  int (*most_clock)(Device, int, unsigned*) = nullptr;
  int (*bus_bits)(Device, unsigned*) = nullptr;
  int (*link_generation)(Device, unsigned*) = nullptr;
  int (*link_lanes)(Device, unsigned*) = nullptr;
  int (*processes)(Device, unsigned*, Process*) = nullptr;
  bool initialized = false;
  std::string driver;
  std::vector<Device> devices;

  template <typename F>
  bool Find(F& function, std::initializer_list<const char*> names) {
    for (const char* n : names) {
      if (function == nullptr) function = reinterpret_cast<F>(dlsym(handle, n));
    }
    return function != nullptr;
  }

  std::string Words(int status) const {
    const char* said = error(status);
    return said != nullptr ? said : fmt::format("NVML error {}", status);
  }

  ~Library() {
    if (initialized) shutdown();
    if (handle != nullptr) dlclose(handle);
  }
};

Nvml::Nvml(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Nvml::Nvml(Nvml&&) noexcept = default;
Nvml& Nvml::operator=(Nvml&&) noexcept = default;
Nvml::~Nvml() = default;

Result<Nvml> Nvml::Load(const std::string& file) {
  auto l = std::make_unique<Library>();
  l->handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (l->handle == nullptr) return Fail(Code::kNotFound, "no NVIDIA driver").Found(file + " cannot be loaded");
  int (*init)() = nullptr;
  if (!l->Find(init, {"nvmlInit_v2"}) || !l->Find(l->shutdown, {"nvmlShutdown"}) ||
      !l->Find(l->count, {"nvmlDeviceGetCount_v2"}) || !l->Find(l->by_index, {"nvmlDeviceGetHandleByIndex_v2"}) ||
      !l->Find(l->error, {"nvmlErrorString"}))
    return Fail(Code::kNotFound, "this NVML lacks a function that every one since 2012 has").Where(file);
  l->Find(l->driver_version, {"nvmlSystemGetDriverVersion"});
  l->Find(l->name, {"nvmlDeviceGetName"});
  l->Find(l->capability, {"nvmlDeviceGetCudaComputeCapability"});
  l->Find(l->utilization, {"nvmlDeviceGetUtilizationRates"});
  l->Find(l->encoder, {"nvmlDeviceGetEncoderUtilization"});
  l->Find(l->decoder, {"nvmlDeviceGetDecoderUtilization"});
  l->Find(l->memory, {"nvmlDeviceGetMemoryInfo"});
  l->Find(l->temperature, {"nvmlDeviceGetTemperature"});
  l->Find(l->power, {"nvmlDeviceGetPowerUsage"});
  l->Find(l->energy, {"nvmlDeviceGetTotalEnergyConsumption"});
  l->Find(l->clock, {"nvmlDeviceGetClockInfo"});
  l->Find(l->slowed, {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"});
  l->Find(l->most_clock, {"nvmlDeviceGetMaxClockInfo"});
  l->Find(l->bus_bits, {"nvmlDeviceGetMemoryBusWidth"});
  l->Find(l->link_generation, {"nvmlDeviceGetMaxPcieLinkGeneration"});
  l->Find(l->link_lanes, {"nvmlDeviceGetMaxPcieLinkWidth"});
  l->Find(l->processes, {"nvmlDeviceGetComputeRunningProcesses_v3"});
  if (const int status = init(); status != kSuccess)
    return Fail(Code::kUnavailable, "the NVIDIA driver does not answer").Where(file).Found(l->Words(status));
  l->initialized = true;
  unsigned n = 0;
  if (const int status = l->count(&n); status != kSuccess)
    return Fail(Code::kUnavailable, "the NVIDIA driver does not count its GPUs").Where(file).Found(l->Words(status));
  for (unsigned i = 0; i < n; i++) {
    Device device = nullptr;
    if (const int status = l->by_index(i, &device); status != kSuccess)
      return Fail(Code::kUnavailable, "a GPU cannot be opened").Where(fmt::format("GPU {}", i)).Found(l->Words(status));
    l->devices.push_back(device);
  }
  char text[96] = {};
  if (l->driver_version != nullptr && l->driver_version(text, sizeof(text) - 1) == kSuccess) l->driver = text;
  return Nvml(std::move(l));
}

int Nvml::gpus() const { return static_cast<int>(library_->devices.size()); }
const std::string& Nvml::driver() const { return library_->driver; }

std::string Nvml::Name(int gpu) const {
  char text[112] = {};
  const Device device = library_->devices[static_cast<size_t>(gpu)];
  return library_->name != nullptr && library_->name(device, text, sizeof(text) - 1) == kSuccess ? text : "";
}

std::optional<std::string> Nvml::ComputeCapability(int gpu) const {
  int major = 0, minor = 0;
  const Device device = library_->devices[static_cast<size_t>(gpu)];
  if (library_->capability == nullptr || library_->capability(device, &major, &minor) != kSuccess) return {};
  return fmt::format("{}.{}", major, minor);
}

std::optional<double> Nvml::MemoryMb(int gpu) const {
  Memory m{};
  const Device device = library_->devices[static_cast<size_t>(gpu)];
  if (library_->memory == nullptr || library_->memory(device, &m) != kSuccess) return {};
  return static_cast<double>(m.total) / kMiB;
}

std::optional<double> Nvml::MaxClockMhz(int gpu, bool of_memory) const {
  unsigned mhz = 0;
  const Device device = library_->devices[static_cast<size_t>(gpu)];
  if (library_->most_clock == nullptr ||
      library_->most_clock(device, of_memory ? kClockMemory : kClockSm, &mhz) != kSuccess)
    return {};
  return mhz;
}

std::optional<double> Nvml::MemoryBusBits(int gpu) const {
  unsigned bits = 0;
  const Device device = library_->devices[static_cast<size_t>(gpu)];
  if (library_->bus_bits == nullptr || library_->bus_bits(device, &bits) != kSuccess) return {};
  return bits;
}

std::string Nvml::Link(int gpu) const {
  unsigned generation = 0, lanes = 0;
  const Device device = library_->devices[static_cast<size_t>(gpu)];
  if (library_->link_generation == nullptr || library_->link_lanes == nullptr ||
      library_->link_generation(device, &generation) != kSuccess || library_->link_lanes(device, &lanes) != kSuccess)
    return "";
  return fmt::format("PCIe generation {}, {} lanes at most", generation, lanes);
}

GpuReading Nvml::Read(int gpu, int64_t pid) const {
  const Library& l = *library_;
  const Device d = l.devices[static_cast<size_t>(gpu)];
  GpuReading r;
  const auto add = [&](const char* name, std::optional<double> value, const std::string& reason) {
    r.fields.push_back({fmt::format("gpu{}_{}", gpu, name), value, {}, value ? "" : reason});
  };
  const char* kOld = "this version of NVML has no function for it";
  // Calls a function that may not be there; gives why it told nothing.
  const auto call = [&](auto function, auto... arguments) -> std::string {
    if (function == nullptr) return kOld;
    const int status = function(d, arguments...);
    return status == kSuccess ? "" : l.Words(status);
  };
  const auto number = [&](const char* name, const std::string& why, double value) {
    add(name, why.empty() ? std::optional(value) : std::nullopt, why);
  };

  unsigned value = 0, period = 0;
  std::string why = call(l.power, &value);
  number("pwr_w", why, value * 1e-3);
  why = call(l.temperature, kTemperatureGpu, &value);
  number("gtemp_c", why, value);
  Utilization use{};
  why = call(l.utilization, &use);
  number("sm_percent", why, use.gpu);
  number("mem_percent", why, use.memory);
  why = call(l.encoder, &value, &period);
  number("enc_percent", why, value);
  why = call(l.decoder, &value, &period);
  number("dec_percent", why, value);
  why = call(l.clock, kClockMemory, &value);
  number("mclk_mhz", why, value);
  why = call(l.clock, kClockSm, &value);
  number("pclk_mhz", why, value);
  Memory memory{};
  why = call(l.memory, &memory);
  number("fb_mb", why, static_cast<double>(memory.used) / kMiB);
  number("fb_total_mb", why, static_cast<double>(memory.total) / kMiB);
  unsigned long long slowed = 0;
  why = call(l.slowed, &slowed);
  for (const Reason& reason : kSlowed) number(reason.name, why, (slowed & reason.bit) != 0 ? 1 : 0);

  unsigned long long energy = 0;
  if (call(l.energy, &energy).empty()) r.energy_mj = static_cast<double>(energy);

  std::vector<Process> processes(64);
  unsigned n = static_cast<unsigned>(processes.size());
  why = call(l.processes, &n, processes.data());
  if (!why.empty() && n > processes.size() && n < 65536) {  // too few places: n is now how many there are
    processes.resize(n + 16);
    n = static_cast<unsigned>(processes.size());
    why = call(l.processes, &n, processes.data());
  }
  processes.resize(why.empty() ? n : 0);
  number("processes", why, n);
  if (pid == 0) return r;
  double held = 0;
  for (const Process& p : processes) {
    if (p.pid != static_cast<unsigned>(pid)) continue;
    if (p.used_bytes == ~0ULL)
      why = "the driver does not tell the memory of processes";
    else
      held += static_cast<double>(p.used_bytes) / kMiB;
  }
  number("process_mb", why, held);
  return r;
}

}  // namespace ridge::lab
