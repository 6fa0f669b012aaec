#include "lab/monitor/power.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/read_file.h"
#include "lab/experiments/process.h"
#include "lab/monitor/recorded.h"

namespace ridge::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCpus = "/sys/devices/system/cpu";

std::vector<std::string> GovernorFiles(const std::string& root) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator it(root + kCpus, error), end; !error && it != end; it.increment(error)) {
    const std::string file = it->path().string() + "/cpufreq/scaling_governor";
    if (it->path().filename().string().starts_with("cpu") && fs::exists(file, error)) files.push_back(file);
  }
  std::ranges::sort(files);
  return files;
}

std::string OutputOf(const std::vector<std::string>& command) {
  const std::string file = (fs::temp_directory_path() / ("ridge-lab-" + std::to_string(getpid()))).string();
  const auto usage = RunProcess(command, file, file);
  std::ifstream in(file);
  const std::string text = ReadRest(in);
  std::error_code ignored;
  fs::remove(file, ignored);
  return usage && usage->status == 0 ? text : "";
}

}  // namespace

PowerModes ReadPowerModes(const std::string& root) {
  PowerModes modes;
  std::error_code error;
  if (fs::exists(root + "/etc/nvpmodel.conf", error)) {
    modes.nvpmodel = true;
    // "< POWER_MODEL ID=0 NAME=MAXN >"
    std::ifstream file(root + "/etc/nvpmodel.conf");
    for (std::string line; std::getline(file, line);) {
      const size_t at = line.find("POWER_MODEL ID=");
      if (at != std::string::npos) modes.names.push_back(line.substr(at + 15, line.find(' ', at + 15) - at - 15));
    }
    if (root.empty()) {
      const std::string said = OutputOf({"nvpmodel", "-q"});  // "NV Power Mode: MAXN\n0"
      for (const std::string_view line : Lines(said)) {
        if (ToNumber(line)) modes.current = std::string(line);
      }
    }
    if (modes.names.empty()) modes.reason = "/etc/nvpmodel.conf names no power model";
    return modes;
  }
  const std::vector<std::string> files = GovernorFiles(root);
  if (files.empty()) {
    modes.reason = "no power modes: neither /etc/nvpmodel.conf nor /sys/devices/system/cpu/cpu0/cpufreq is there";
    return modes;
  }
  modes.current = FirstLine(files[0]);
  const std::string available = FirstLine(fs::path(files[0]).parent_path().string() + "/scaling_available_governors");
  for (const std::string_view name : Words(available)) modes.names.emplace_back(name);
  if (modes.names.size() < 2) modes.reason = "cpufreq offers one governor alone: " + available;
  if (root.empty() && access(files[0].c_str(), W_OK) != 0)
    modes.reason = "the governor may not be changed here: " + files[0] + " cannot be written";
  if (!modes.reason.empty()) modes.names.clear();
  return modes;
}

Status SetPowerMode(const std::string& name, const std::string& root) {
  const PowerModes modes = ReadPowerModes(root);
  if (std::ranges::find(modes.names, name) == modes.names.end())
    return Fail(Code::kInvalidArgument, "there is no such power mode")
        .Where("power-mode")
        .Found(name)
        .Expected(modes.reason.empty() ? "one that the machine lists" : modes.reason);
  if (modes.nvpmodel) {
    if (OutputOf({"nvpmodel", "-m", name}).empty() && ReadPowerModes(root).current != name)
      return Fail(Code::kPermissionDenied, "nvpmodel did not change the mode").Found(name).Remedy("run as root");
    return {};
  }
  for (const std::string& path : GovernorFiles(root)) {
    std::ofstream file(path);
    file << name << std::flush;
    if (!file || FirstLine(path) != name)
      return Fail(Code::kPermissionDenied, "the governor did not change")
          .Where(path)
          .Found(FirstLine(path))
          .Remedy("run as root");
  }
  return {};
}

}  // namespace ridge::lab
