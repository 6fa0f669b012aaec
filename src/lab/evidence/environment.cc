#include "lab/evidence/environment.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "base/json_text.h"
#include "base/read_file.h"
#include "lab/evidence/memory_modules.h"
#include "lab/machine.h"
#include "lab/monitor/nvml.h"
#include "lab/monitor/recorded.h"

namespace ridge::lab {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text = ReadRest(file);
  if (text.size() > (1 << 20)) text.resize(1 << 20);
  return text;
}

std::vector<std::string> Entries(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  std::ranges::sort(names);
  return names;
}

// What was found, or why nothing was.
struct Answer {
  Json value;
  std::string note;  // where from; without a value: why there is none
};
Answer Unknown(std::string why) { return {nullptr, std::move(why)}; }
Answer Known(Json value, std::string from) { return {std::move(value), std::move(from)}; }
Answer Told(std::string value, std::string from, std::string why) {
  return value.empty() ? Unknown(std::move(why)) : Known(std::move(value), std::move(from));
}

struct Reader {
  EnvironmentFacts facts;
  std::string root;
  Machine machine;
  std::optional<Nvml> nvml;  // this machine's; none with another root

  std::string At(const std::string& path) const { return root + path; }
  std::vector<std::string> Gpus() const { return Entries(At("/proc/driver/nvidia/gpus")); }
  std::string Cpuinfo(std::string_view key) const {
    const std::string text = ReadAll(At("/proc/cpuinfo"));
    for (const std::string_view line : Lines(text)) {
      const size_t colon = line.find(':');
      if (colon == std::string_view::npos || !line.starts_with(key)) continue;
      const size_t at = line.find_first_not_of(" \t", colon + 1);
      return at == std::string_view::npos ? "" : std::string(line.substr(at));
    }
    return "";
  }
  bool Virtual() const { return (" " + Cpuinfo("flags") + " ").find(" hypervisor ") != std::string::npos; }
};

constexpr const char* kNoSubmission = "not a submission to MLPerf";
constexpr const char* kNoAccelerator = "no accelerator: no NVIDIA driver here, and none is used";
constexpr const char* kNotTold = "neither NVML nor the NVIDIA driver's /proc tells it";

bool HasGpu(const Reader& r) { return r.nvml ? r.nvml->gpus() > 0 : !r.Gpus().empty(); }

Answer OfAccelerator(const Reader& r) { return Unknown(HasGpu(r) ? kNotTold : kNoAccelerator); }

Answer AcceleratorMemory(const Reader& r) {
  const auto mb = r.nvml && r.nvml->gpus() > 0 ? r.nvml->MemoryMb(0) : std::nullopt;
  return mb ? Known(fmt::format("{:.1f} GiB", *mb / 1024), "NVML, GPU 0") : OfAccelerator(r);
}

Answer FromNvml(const Reader& r, std::string (*read)(const Nvml&)) {
  const std::string text = r.nvml && r.nvml->gpus() > 0 ? read(*r.nvml) : "";
  return text.empty() ? OfAccelerator(r) : Known(text, "NVML, GPU 0");
}

Answer AcceleratorFrequency(const Reader& r) {
  return FromNvml(r, [](const Nvml& nvml) {
    const auto mhz = nvml.MaxClockMhz(0, false);
    return mhz ? fmt::format("{:.0f} MHz at most", *mhz) : std::string();
  });
}

Answer AcceleratorLink(const Reader& r) {
  return FromNvml(r, [](const Nvml& nvml) { return nvml.Link(0); });
}

Answer AcceleratorMemoryKind(const Reader& r) {
  return FromNvml(r, [](const Nvml& nvml) {
    const auto mhz = nvml.MaxClockMhz(0, true), bits = nvml.MemoryBusBits(0);
    std::string text = bits ? fmt::format("{:.0f} bits wide", *bits) : "";
    if (mhz) text += fmt::format("{}{:.0f} MHz at most", text.empty() ? "" : ", ", *mhz);
    return text;
  });
}

Answer MemoryModulesOf(const Reader& r) {
  return Told(MemoryModules(ReadAll(r.At("/sys/firmware/dmi/tables/DMI"))), "/sys/firmware/dmi/tables/DMI",
              "the firmware's table of modules (/sys/firmware/dmi/tables/DMI) is not there, or only root may read it");
}

Answer Accelerators(const Reader& r) {
  return r.nvml ? Known(r.nvml->gpus(), "NVML") : Known(r.Gpus().size(), "/proc/driver/nvidia/gpus");
}

Answer SystemName(const Reader& r) {
  const std::string board = FirstLine(r.At("/proc/device-tree/model"));
  const std::string product = FirstLine(r.At("/sys/class/dmi/id/product_name"));
  return Told(board.empty() ? product : board, board.empty() ? "/sys/class/dmi/id/product_name" : "device tree",
              "neither a device tree nor DMI tells a product name");
}

Answer Packages(const Reader& r) {
  std::set<std::string> ids;
  for (const std::string& cpu : Entries(r.At("/sys/devices/system/cpu"))) {
    const std::string id = FirstLine(r.At("/sys/devices/system/cpu/" + cpu + "/topology/physical_package_id"));
    if (!id.empty()) ids.insert(id);
  }
  return ids.empty() ? Unknown("no physical_package_id in /sys") : Known(ids.size(), "physical_package_id");
}

Answer Frequency(const Reader& r) {
  const auto most = ToNumber(FirstLine(r.At("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")));
  if (most) return Known(fmt::format("{:.0f} MHz at most", *most / 1000), "cpufreq");
  const auto mhz = ToNumber(r.Cpuinfo("cpu MHz"));
  return mhz ? Known(fmt::format("{:.0f} MHz", *mhz), "/proc/cpuinfo, which may never change; no cpufreq driver")
             : Unknown("no cpufreq driver, and /proc/cpuinfo does not tell");
}

Answer Caches(const Reader& r) {
  std::string all;
  const std::string folder = "/sys/devices/system/cpu/cpu0/cache";
  for (const std::string& index : Entries(r.At(folder))) {
    const auto of = [&](const char* name) { return FirstLine(r.At(folder + "/" + index + "/" + name)); };
    if (of("size").empty()) continue;
    const std::string type = of("type");
    all += fmt::format("{}L{}{} {}", all.empty() ? "" : ", ", of("level"),
                       type == "Data"          ? "d"
                       : type == "Instruction" ? "i"
                                               : "",
                       of("size"));
  }
  return Told(all, "cpu0 in /sys", "no cache folders in /sys/devices/system/cpu/cpu0");
}

Answer StorageCapacity(const Reader& r) {
  struct statvfs info{};
  if (r.root != "" || statvfs("/", &info) != 0) return Unknown("the root file system does not tell");
  return Known(fmt::format("{:.0f} GiB", static_cast<double>(info.f_blocks) * static_cast<double>(info.f_frsize) /
                                             (1024.0 * 1024 * 1024)),
               "root file system");
}

Answer StorageType(const Reader& r) {
  std::string all;
  for (const std::string& disk : Entries(r.At("/sys/block"))) {
    if (disk.starts_with("loop") || disk.starts_with("ram") || disk.starts_with("zram")) continue;
    const std::string turns = FirstLine(r.At("/sys/block/" + disk + "/queue/rotational"));
    if (!turns.empty())
      all += fmt::format("{}{} {}", all.empty() ? "" : ", ", disk, turns == "1" ? "rotational" : "not rotational");
  }
  return Told(all, "/sys/block", "no disk in /sys/block");
}

std::vector<std::string> Cards(const Reader& r) {
  std::vector<std::string> cards;
  for (const std::string& name : Entries(r.At("/sys/class/net"))) {
    std::error_code error;
    if (fs::exists(r.At("/sys/class/net/" + name + "/device"), error)) cards.push_back(name);
  }
  return cards;
}

Answer Networking(const Reader& r) {
  std::string all;
  for (const std::string& name : Cards(r)) {
    const auto speed = ToNumber(FirstLine(r.At("/sys/class/net/" + name + "/speed")));
    all += (all.empty() ? "" : ", ") + name + (speed && *speed > 0 ? fmt::format(" {:.0f} Mbit/s", *speed) : "");
  }
  return Told(all, "/sys/class/net", "no network card in /sys/class/net");
}

Answer OperatingSystem(const Reader& r) {
  std::string name;
  const std::string release = ReadAll(r.At("/etc/os-release"));
  for (const std::string_view line : Lines(release)) {
    if (line.starts_with("PRETTY_NAME=")) name = std::string(line.substr(12));
  }
  std::erase(name, '"');
  utsname system{};
  uname(&system);
  return Known(
      fmt::format("{}{}{} {} {}", name, name.empty() ? "" : ", ", system.sysname, system.release, system.machine),
      "/etc/os-release and uname");
}

Answer Software(const Reader& r) {
  std::string all = fmt::format("glibc {}, built with {}", gnu_get_libc_version(), "compiler " __VERSION__);
  const std::string driver = FirstLine(r.At("/proc/driver/nvidia/version"));
  const std::string jetson = FirstLine(r.At("/etc/nv_tegra_release"));
  if (!driver.empty()) all += ", " + driver;
  if (!jetson.empty()) all += ", " + jetson;
  return Known(all, "glibc, compiler, /proc/driver/nvidia/version, /etc/nv_tegra_release");
}

Answer AcceleratorModel(const Reader& r) {
  if (r.nvml && r.nvml->gpus() > 0 && !r.nvml->Name(0).empty()) {
    const auto capability = r.nvml->ComputeCapability(0);
    return Known(r.nvml->Name(0) + (capability ? ", compute capability " + *capability : ""), "NVML, GPU 0");
  }
  const std::vector<std::string> gpus = r.Gpus();
  if (gpus.empty()) return Unknown(kNoAccelerator);
  const std::string text = ReadAll(r.At("/proc/driver/nvidia/gpus/" + gpus[0] + "/information"));
  for (const std::string_view line : Lines(text)) {
    if (!line.starts_with("Model:")) continue;
    const size_t at = line.find_first_not_of(" \t", 6);
    if (at != std::string_view::npos) return Known(std::string(line.substr(at)), "/proc/driver/nvidia/gpus");
  }
  return Unknown(kNotTold);
}

Answer Cooling(const Reader& r) {
  std::string all;
  for (const std::string& name : Entries(r.At("/sys/class/thermal"))) {
    if (!name.starts_with("cooling_device")) continue;
    const std::string type = FirstLine(r.At("/sys/class/thermal/" + name + "/type"));
    // "Processor" and its like are ways to slow down, no coolers.
    if (type.find("fan") != std::string::npos || type.find("Fan") != std::string::npos)
      all += (all.empty() ? "" : ", ") + type;
  }
  for (const std::string& name : Entries(r.At("/sys/class/hwmon"))) {
    const std::string rpm = FirstLine(r.At("/sys/class/hwmon/" + name + "/fan1_input"));
    if (!rpm.empty()) all += fmt::format("{}fan at {} rpm", all.empty() ? "" : ", ", rpm);
  }
  return Told(all, "/sys/class/thermal and hwmon",
              "no fan in /sys/class/thermal or hwmon; add it by hand where it matters");
}

std::string Governor(const Reader& r) {
  return FirstLine(r.At("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
}

Answer HardwareNotes(const Reader& r) {
  std::string all = r.Virtual() ? "virtual machine (the CPU's hypervisor flag)" : "no hypervisor flag";
  const std::string governor = Governor(r), microcode = r.Cpuinfo("microcode");
  all += ", governor " + (governor.empty() ? "unknown: no cpufreq driver" : governor);
  if (!microcode.empty()) all += ", microcode " + microcode;
  const std::string mode = FirstLine(r.At("/var/lib/nvpmodel/status"));
  if (!mode.empty()) all += ", power mode " + mode;
  return Known(all, "/proc/cpuinfo, cpufreq, nvpmodel");
}

Answer SoftwareNotes(const Reader& r) {
  std::string all = r.facts.threads;
  if (!r.facts.memory.empty()) all += (all.empty() ? "" : "; ") + r.facts.memory;
  const std::string pages = r.machine.huge_pages;
  all += (all.empty() ? "" : "; ") + std::string("transparent huge pages ") + (pages.empty() ? "unknown" : pages);
  return Known(all, "limits of this process");
}

struct FieldOf {
  const char* name;
  Answer (*read)(const Reader&);
};

// Names and order are those of MLPerf's submission checker.
constexpr FieldOf kFields[] = {
    {"division", [](const Reader&) { return Unknown(kNoSubmission); }},
    {"submitter", [](const Reader&) { return Unknown(kNoSubmission); }},
    {"status", [](const Reader&) { return Unknown(kNoSubmission); }},
    {"system_name", SystemName},
    {"number_of_nodes", [](const Reader&) { return Known(1, "one process on one machine"); }},
    {"host_processor_model_name",
     [](const Reader& r) { return Told(r.machine.cpu, "/proc/cpuinfo", "/proc/cpuinfo does not tell"); }},
    {"host_processors_per_node", Packages},
    {"host_processor_core_count",
     [](const Reader& r) { return Known(r.machine.cores, "cores that hold a CPU of this process"); }},
    {"host_memory_capacity",
     [](const Reader& r) { return Known(fmt::format("{} GiB", r.machine.memory_gib), "/proc/meminfo, rounded"); }},
    {"host_storage_capacity", StorageCapacity},
    {"host_storage_type", StorageType},
    {"accelerators_per_node", Accelerators},
    {"accelerator_model_name", AcceleratorModel},
    {"accelerator_memory_capacity", AcceleratorMemory},
    {"framework", [](const Reader& r) { return Told(r.facts.framework, "this program", "not told"); }},
    {"operating_system", OperatingSystem},
    {"system_type", [](const Reader&) { return Unknown("datacenter or edge: the owner's word, not the machine's"); }},
    {"other_software_stack", Software},
    {"host_processor_frequency", Frequency},
    {"host_processor_caches", Caches},
    {"host_memory_configuration", MemoryModulesOf},
    {"host_processor_interconnect",
     [](const Reader& r) {
       const Answer packages = Packages(r);
       return packages.value == 1 ? Known("none: one processor", "physical_package_id")
                                  : Unknown("the system does not tell it");
     }},
    {"host_networking", Networking},
    {"host_networking_topology",
     [](const Reader&) { return Unknown("no run of this lab leaves the machine's loopback unless its URL says so"); }},
    {"accelerator_frequency", AcceleratorFrequency},
    {"accelerator_host_interconnect", AcceleratorLink},
    {"accelerator_interconnect", OfAccelerator},
    {"accelerator_interconnect_topology", OfAccelerator},
    {"accelerator_memory_configuration", AcceleratorMemoryKind},
    {"accelerator_on-chip_memories", OfAccelerator},
    {"cooling", Cooling},
    {"hw_notes", HardwareNotes},
    {"sw_notes", SoftwareNotes},
    {"host_network_card_count", [](const Reader& r) { return Known(Cards(r).size(), "/sys/class/net"); }},
    {"system_type_detail",
     [](const Reader& r) {
       return r.Virtual() ? Known("virtual machine", "the CPU's hypervisor flag")
                          : Unknown("no hypervisor flag; more is not told");
     }},
};
static_assert(std::size(kFields) == 35);

}  // namespace

std::vector<std::string_view> EnvironmentFields() {
  std::vector<std::string_view> names;
  for (const FieldOf& f : kFields) names.emplace_back(f.name);
  return names;
}

Json Environment(const EnvironmentFacts& facts) {
  Reader r{facts, facts.sys_root, ReadMachine(facts.sys_root), {}};
  while (r.root.ends_with('/')) r.root.pop_back();
  if (r.root.empty()) {
    if (auto nvml = Nvml::Load()) r.nvml = std::move(*nvml);
  }
  Json fields = Json::object();
  for (const FieldOf& f : kFields) {
    const Answer a = f.read(r);
    fields[f.name] = {{"value", a.value}, {a.value.is_null() ? "reason" : "from", a.note}};
  }
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  return {{"format", "ridge lab evidence, version 2"},
          {"hardware", fmt::format("{}, {} CPUs, {} GiB", r.machine.cpu, r.machine.cpus, r.machine.memory_gib)},
          {"machine_fingerprint", Fingerprint(r.machine, "")},
          {"ridge", facts.framework},
          {"mlperf", std::move(fields)},
          {"machine",
           {{"cpu", r.machine.cpu},
            {"features", r.machine.features},
            {"cpus", r.machine.cpus},
            {"cores", r.machine.cores},
            {"l2_bytes", r.machine.l2_bytes},
            {"l3_bytes", r.machine.l3_bytes},
            {"memory_gib", r.machine.memory_gib},
            {"huge_pages", or_null(r.machine.huge_pages)},
            {"governor", or_null(Governor(r))},
            {"power_mode", or_null(FirstLine(r.At("/var/lib/nvpmodel/status")))},
            {"gpu_driver", or_null(FirstLine(r.At("/proc/driver/nvidia/version")))},
            {"threads", facts.threads},
            {"memory", facts.memory}}}};
}

Result<std::string> HardwareOf(std::string_view environment_json) {
  const Json j = ParseJsonText<Json>(environment_json);
  if (!j.is_object() || !j.contains("hardware") || !j["hardware"].is_string())
    return Fail(Code::kInvalidData, "no environment of the lab").Where("environment.json").Expected("a field hardware");
  return j["hardware"].get<std::string>();
}

}  // namespace ridge::lab
