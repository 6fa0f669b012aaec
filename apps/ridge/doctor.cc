// ridge doctor: what this machine and this binary are, and what about them costs speed or will fail.
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/cpu.h"
#include "base/quantity.h"
#include "base/read_file.h"
#include "base/thread_probe.h"
#include "base/topology.h"
#include "build_config.h"
#include "ceilings.h"
#include "commands.h"
#include "doctor_check.h"
#include "hub/store.h"
#include "option_help.h"
#include "revision.h"

namespace ridge::app {
namespace {

namespace fs = std::filesystem;

std::string_view Name(State state) {
  switch (state) {
    case State::kOk: return "ok";
    case State::kWarn: return "warn";
    case State::kFail: return "fail";
    case State::kNotApplicable: return "not_applicable";
  }
  return "fail";
}

std::string Gib(uint64_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30)); }

// ---- the processor

Check CheckCpu() {
  const CpuFeatures& cpu = Cpu();
  const std::string features = cpu.Summary();
  const std::string evidence = fmt::format("{}; {}", cpu.model.empty() ? "unnamed processor" : cpu.model,
                                           features.empty() ? "no vector extension known to Ridge" : features);
#if defined(__x86_64__)
  if (!cpu.avx2 || !cpu.fma || !cpu.f16c) {
    return {"cpu", State::kWarn, evidence,
            "without AVX2, FMA and F16C only the scalar kernels run; use a processor of 2013 or later"};
  }
#endif
  return {"cpu", State::kOk, evidence};
}

// The target that the CPU backend takes when nothing is asked for: the last that this CPU can run, or the one RIDGE_ISA
// names.
struct ChosenIsa {
  std::string name;
  std::string list;  // "scalar avx2 avx512 (not on this CPU: avxvnni)"
  std::string forced;
  bool forced_works = true;
};

ChosenIsa ChooseIsa() {
  ChosenIsa chosen;
  std::string missing;
  const char* forced = std::getenv("RIDGE_ISA");
  chosen.forced = forced == nullptr ? "" : forced;
  chosen.forced_works = chosen.forced.empty();
  for (const backend::IsaInfo& isa : backend::CpuIsas()) {
    std::string& list = isa.supported ? chosen.list : missing;
    list += (list.empty() ? "" : " ") + isa.name;
    if (!isa.supported) continue;
    chosen.name = isa.name;
    if (isa.name == chosen.forced) chosen.forced_works = true;
  }
  if (!missing.empty()) chosen.list += fmt::format(" (in the binary, not on this CPU: {})", missing);
  if (!chosen.forced.empty() && chosen.forced_works) chosen.name = chosen.forced;
  return chosen;
}

Check CheckIsa() {
  const ChosenIsa isa = ChooseIsa();
  if (!isa.forced_works) {
    return {"isa", State::kFail,
            fmt::format("RIDGE_ISA={} is not a target that runs here; there are: {}", isa.forced, isa.list),
            "unset RIDGE_ISA, or set it to one of these"};
  }
  const std::string evidence =
      fmt::format("chosen {}{}; available {}", isa.name, isa.forced.empty() ? "" : " (by RIDGE_ISA)", isa.list);
  if (!isa.forced.empty()) return {"isa", State::kWarn, evidence, "unset RIDGE_ISA for the fastest target"};
  if (isa.name == "scalar")
    return {"isa", State::kWarn, evidence, "no vector kernels run here, so expect a tenth of the speed"};
  return {"isa", State::kOk, evidence};
}

Check CheckThreads(const CpuBudget& budget) {
  return {"threads", State::kOk, fmt::format("{}: {}", budget.threads, budget.reason)};
}

Check CheckCpuQuota() {
  const CpuLimits limits = ReadCpuLimits();
  if (!limits.quota) return {"cgroup_cpu", State::kNotApplicable, "no CPU quota on this process"};
  const std::string evidence = fmt::format("{:.2f} CPUs ({})", *limits.quota, limits.quota_source);
  const double cpus = static_cast<double>(limits.allowed.size());
  if (*limits.quota < cpus && std::floor(*limits.quota) < *limits.quota) {
    return {"cgroup_cpu", State::kWarn, evidence,
            "a fraction of a CPU is left idle, for a thread beyond the quota stalls the others; set a whole number"};
  }
  return {"cgroup_cpu", State::kOk, evidence};
}

Check CheckGovernor() {
  const std::string governor = FirstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (governor.empty())
    return {"governor", State::kNotApplicable,
            "the kernel offers no frequency control here (usual in a virtual machine)"};
  const std::string driver = FirstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver");
  const std::string evidence = fmt::format("{} ({})", governor, driver);
  // With intel_pstate or amd-pstate in active mode, "powersave" still goes to full speed under load.
  const bool slow =
      governor == "powersave" && !driver.starts_with("intel_pstate") && !driver.starts_with("amd-pstate-epp");
  if (slow)
    return {"governor", State::kWarn, evidence,
            "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"};
  return {"governor", State::kOk, evidence};
}

Check CheckLoad() {
  double load[1] = {};
  if (getloadavg(load, 1) != 1) return {"load", State::kNotApplicable, "the load average cannot be read"};
  const auto cpus = static_cast<double>(std::max<size_t>(1, ReadCpuLimits().allowed.size()));
  const std::string evidence = fmt::format("load average {:.2f} on {:.0f} CPUs", load[0], cpus);
  if (load[0] > 0.5 * cpus)
    return {"load", State::kWarn, evidence, "other programs are busy, so speeds measured now are too low"};
  return {"load", State::kOk, evidence};
}

// ---- memory

Check CheckMemory() {
  const MemoryBudget memory = ReadMemory();
  if (memory.allowed_bytes == 0) return {"memory", State::kNotApplicable, "/proc/meminfo cannot be read"};
  const std::string evidence = fmt::format("{} allowed ({}), {} available in the machine", Gib(memory.allowed_bytes),
                                           memory.reason, Gib(memory.available_bytes));
  if (std::min(memory.allowed_bytes, memory.available_bytes) < (uint64_t{1} << 30)) {
    return {"memory", State::kWarn, evidence,
            "less than 1 GiB: only the smallest models fit; close other programs or raise the limit"};
  }
  return {"memory", State::kOk, evidence};
}

Check CheckMemoryLimit() {
  const MemoryBudget memory = ReadMemory();
  if (!memory.limit_bytes) return {"cgroup_memory", State::kNotApplicable, "no memory limit on this process"};
  return {"cgroup_memory", State::kOk, fmt::format("{} ({})", Gib(*memory.limit_bytes), memory.limit_source)};
}

Check CheckHugePages() {
  const HugePages pages = ReadHugePages();
  constexpr const char* kRemedy = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled";
  if (pages.thp.empty())
    return {"huge_pages", State::kWarn, "this kernel has no transparent huge pages",
            "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE"};
  const std::string evidence =
      fmt::format("transparent huge pages: {}, {} KiB, defrag {}; reserved {} ({} free)", pages.thp,
                  pages.size_bytes >> 10, pages.thp_defrag, pages.reserved_total, pages.reserved_free);
  if (pages.thp == "never") return {"huge_pages", State::kWarn, evidence, kRemedy};
  return {"huge_pages", State::kOk, evidence};
}

Check CheckRoofline() {
  const Ceilings ceilings = Ceilings::Cached();
  if (!ceilings.roofline()) return {"roofline", State::kNotApplicable, ceilings.reason()};
  const lab::Roofline& r = *ceilings.roofline();
  return {
      "roofline", State::kOk,
      fmt::format("{} read {:.1f} GB/s and make {:.0f} int8 GOPS with {} (measured {})", Count(r.threads, "thread"),
                  r.ReadGbps(r.threads).value_or(0), r.Int8Gops(r.isa, r.threads).value_or(0), r.isa, r.measured_at)};
}

// ---- what Ridge stands on

Check CheckGpu() { return {"gpu", State::kNotApplicable, "this build computes on the CPU only; -ngl resolves to 0"}; }

bool OnPath(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const size_t end = rest.find(':');
    const std::string candidate = std::string(rest.substr(0, end)) + "/" + program;
    if (access(candidate.c_str(), X_OK) == 0) return true;
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return false;
}

Check CheckPip() {
  if (OnPath("pip3") || OnPath("pip")) return {"pip", State::kOk, "pip is on the PATH, so pypi: models can be pulled"};
  return {"pip", State::kWarn, "neither pip3 nor pip is on the PATH, so pypi: models cannot be pulled",
          "apt install python3-pip, or pull from hf: or ollama:"};
}

// The folder that models go to: the nearest folder that exists must be writable and have room.
Check CheckStore() {
  const Result<std::string> root = hub::DefaultStoreRoot();
  if (!root) return {"store", State::kFail, root.error().what, root.error().remedy};
  std::error_code ignored;
  fs::path folder = *root;
  while (!fs::exists(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
  if (!fs::is_directory(folder, ignored) || access(folder.c_str(), W_OK) != 0) {
    return {"store", State::kFail, fmt::format("{}: {} is not a folder one can write to", *root, folder.string()),
            "set RIDGE_HOME to a folder of yours"};
  }
  const fs::space_info space = fs::space(folder, ignored);
  if (ignored) return {"store", State::kOk, *root};
  const std::string evidence = fmt::format("{}, {} free", *root, Gib(space.available));
  if (space.available < (uint64_t{1} << 30)) {
    return {"store", State::kWarn, evidence,
            "less than 1 GiB for models: remove some with ridge rm, or set RIDGE_HOME"};
  }
  return {"store", State::kOk, evidence};
}

Check CheckSystem() {
  utsname name{};
  if (uname(&name) != 0) return {"system", State::kNotApplicable, "uname failed"};
  return {"system", State::kOk, fmt::format("{} {} {}", name.sysname, name.release, name.machine)};
}

Check CheckBuild() {
  const std::string evidence =
      fmt::format("ridge {} revision {}; {} {}; {}", RIDGE_VERSION,
                  *RIDGE_REVISION == '\0' ? "unknown" : RIDGE_REVISION, RIDGE_COMPILER, RIDGE_BUILD_TYPE, RIDGE_FLAGS);
  if (*RIDGE_SANITIZERS != '\0') {
    return {"build", State::kWarn, evidence,
            fmt::format("built with -fsanitize={}: for finding faults, not for speed; use ./dev build release",
                        RIDGE_SANITIZERS)};
  }
  if (std::string_view(RIDGE_BUILD_TYPE) != "Release")
    return {"build", State::kWarn, evidence, "not a Release build; use ./dev build release"};
  return {"build", State::kOk, evidence};
}

struct DoctorOptions {
  bool kernels = false;
  ModelQuestion model;
};

Status Doctor(const DoctorOptions& o, Output& out) {
  const CpuBudget threads = ProbeThreads(ResolveThreads(std::nullopt));
  std::vector<Check> checks = {CheckSystem(),   CheckCpu(),    CheckIsa(),         CheckThreads(threads),
                               CheckCpuQuota(), CheckMemory(), CheckMemoryLimit(), CheckHugePages(),
                               CheckGovernor(), CheckLoad(),   CheckRoofline(),    CheckGpu(),
                               CheckStore(),    CheckPip(),    CheckBuild()};
  for (Check& check : MachineChecks(threads.threads)) checks.push_back(std::move(check));
  if (!o.model.model.empty()) {
    RIDGE_ASSIGN_OR_RETURN(std::vector<Check> more, ModelChecks(o.model));
    for (Check& check : more) checks.push_back(std::move(check));
  }
  if (out.json) {
    Json document;
    Json& list = document["checks"] = Json::array();
    for (const Check& check : checks) {
      list.push_back({{"id", check.id},
                      {"status", std::string(Name(check.state))},
                      {"evidence", check.evidence},
                      {"remedy", check.remedy.empty() ? Json(nullptr) : Json(check.remedy)}});
    }
    Json& isas = document["isa_targets"] = Json::array();
    for (const backend::IsaInfo& isa : backend::CpuIsas())
      isas.push_back({{"name", isa.name}, {"supported", isa.supported}});
    document["isa"] = ChooseIsa().name;
    document["threads"] = threads.threads;
    document["build"] = {{"version", RIDGE_VERSION},
                         {"revision", *RIDGE_REVISION == '\0' ? Json(nullptr) : Json(RIDGE_REVISION)},
                         {"compiler", RIDGE_COMPILER},
                         {"build_type", RIDGE_BUILD_TYPE},
                         {"flags", RIDGE_FLAGS},
                         {"sanitizers", *RIDGE_SANITIZERS == '\0' ? Json(nullptr) : Json(RIDGE_SANITIZERS)}};
    return out.Document(document);
  }
  std::string text;
  for (const Check& check : checks) {
    const std::string_view state = check.state == State::kNotApplicable ? "-" : Name(check.state);
    text += fmt::format("{:<5} {:<18} {}\n", state, check.id, check.evidence);
    if (!check.remedy.empty()) text += fmt::format("{:<5} {:<18} remedy: {}\n", "", "", check.remedy);
  }
  return out.Write(text);
}

// ---- --kernels: which kernel serves which type

constexpr int kPanelRows = 16;

std::string Tile(const backend::CpuTarget& target, const backend::CpuTypeKernel& kernel, int tokens) {
  int vectors = tokens == 1 ? kPanelRows / target.lanes : target.columns;  // one token: a single stream from memory
  if (kernel.floats) vectors = tokens == 1 ? 4 : tokens == 4 ? 2 : 1;
  return fmt::format("{}x{}", vectors * target.lanes, tokens);
}

Status Kernels(Output& out) {
  const std::vector<backend::CpuTarget> targets = backend::CpuTargets();
  Json document;
  document["targets"] = Json::array();
  for (const backend::CpuTarget& t : targets) {
    document["targets"].push_back({{"name", t.name},
                                   {"processor", t.processor},
                                   {"dot", t.dot},
                                   {"multiply_add", t.multiply_add},
                                   {"lanes", t.lanes},
                                   {"columns", t.columns},
                                   {"tokens", t.tokens}});
  }
  document["types"] = Json::array();
  std::string text = "| type | kernel | activations |", line = "|---|---|---|";
  for (const backend::CpuTarget& t : targets) {
    text += fmt::format(" {} |", t.name);
    line += "---|";
  }
  text += "\n" + line + "\n";
  for (const backend::CpuTypeKernel& kernel : backend::CpuTypeKernels()) {
    Json entry = {{"type", kernel.type},
                  {"kernel", kernel.kernel},
                  {"activations", kernel.activations},
                  {"fallback", kernel.fallback},
                  {"targets", Json::object()}};
    text += fmt::format("| {} | `{}` | {} |", kernel.type, kernel.kernel, kernel.activations);
    for (const backend::CpuTarget& t : targets) {
      const std::string& instruction = kernel.floats ? t.multiply_add : t.dot;
      const std::string decode = Tile(t, kernel, 1), prefill = Tile(t, kernel, std::min(t.tokens, kernel.most_tokens));
      text += fmt::format(" {} {} / {} |", instruction, decode, prefill);
      entry["targets"][t.name] = {{"instruction", instruction}, {"decode", decode}, {"prefill", prefill}};
    }
    text += "\n";
    document["types"].push_back(std::move(entry));
  }
  return out.json ? out.Document(document) : out.Write(text);
}

}  // namespace

void AddDoctor(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<DoctorOptions>();
  CLI::App* app = AddSubcommand(root, "doctor", "what this machine and this binary are, and what is misconfigured",
                                "ridge doctor\n  ridge doctor -m smollm2:135m -c 8192");
  app->add_flag(
      "--kernels", o->kernels,
      "instead: the matrix kernel of every tensor type on every ISA target, with its tile for one token / for many "
      "(rows x tokens)");
  app->add_option("-m,--model", o->model.model,
                  "check this model too: are its types accelerated, does its KV fit, is the context sensible, was its "
                  "quality tested");
  app->add_option("-c,--ctx-size", o->model.context, help::kContext);
  app->add_option("--evidence", o->model.evidence, "with -m: folder of a ridge lab experiment that tested its quality");
  invocation.Bind(app, [o](Output& out) -> Status {
    if (o->model.model.empty() && (o->model.context || !o->model.evidence.empty()))
      return Fail(Code::kUsage, "-c and --evidence go with -m");
    return o->kernels ? Kernels(out) : Doctor(*o, out);
  });
}

}  // namespace ridge::app
