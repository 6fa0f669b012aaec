#include "lab/monitor/jetson.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/read_file.h"

namespace ridge::lab {
namespace {

namespace fs = std::filesystem;

std::optional<double> ReadNumber(const std::string& path) { return ToNumber(FirstLine(path)); }

std::vector<std::string> Entries(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    out.push_back(it->path().string());
  std::ranges::sort(out);
  return out;
}

// What the GPU is called in the device tree of Nano, TX2, Xavier, Orin and Thor.
bool IsGpu(const std::string& name) {
  return name == "gpu" || name == "gm20b" || name == "gp10b" || name == "gv11b" || name == "ga10b" || name == "gb10b" ||
         name.ends_with(".gpu") || name.ends_with(".gm20b") || name.ends_with(".gp10b") || name.ends_with(".gv11b") ||
         name.ends_with(".ga10b") || name.ends_with(".gb10b");
}

}  // namespace

Jetson::Jetson(std::string root) : root_(std::move(root)) {
  for (const std::string& chip : Entries(root_ + "/sys/class/hwmon")) {
    // JetPack 5 and later.
    if (FirstLine(chip + "/name") == "ina3221") {
      for (int channel = 1; channel <= 3; channel++) {
        const std::string at = chip + "/in" + std::to_string(channel);
        const std::string label = FirstLine(at + "_label");
        if (!label.empty() && label != "NC")
          rails_.push_back({label, "", at + "_input", chip + "/curr" + std::to_string(channel) + "_input"});
      }
    }
    for (int n = 1; n <= 3; n++) {
      const std::string name = "oc" + std::to_string(n);
      std::string file = chip;
      file += "/" + name + "_event_cnt";
      if (ReadNumber(file)) events_.emplace_back(name + "_events", file);
    }
  }
  // JetPack 4.
  for (const std::string& device : Entries(root_ + "/sys/bus/iio/devices")) {
    if (!FirstLine(device + "/name").starts_with("ina3221")) continue;
    for (int channel = 0; channel < 3; channel++) {
      const std::string label = FirstLine(device + "/rail_name_" + std::to_string(channel));
      if (!label.empty() && label != "NC")
        rails_.push_back({label, device + "/in_power" + std::to_string(channel) + "_input", "", ""});
    }
  }
  for (const std::string& device : Entries(root_ + "/sys/class/devfreq")) {
    const std::string name = fs::path(device).filename().string(), node = FirstLine(device + "/device/of_node/name");
    if (!IsGpu(name) && !IsGpu(node)) continue;
    gpus_.push_back({"gpu" + std::to_string(gpus_.size()), device + "/device/load", device + "/cur_freq"});
  }
  if (ReadNumber(root_ + "/var/lib/nvpmodel/status") || !FirstLine(root_ + "/var/lib/nvpmodel/status").empty())
    mode_ = root_ + "/var/lib/nvpmodel/status";
}

void Jetson::Fill(Row& row) const {
  const char* kUnread = "could not be read";
  std::optional<double> total, sum;
  std::set<std::string> unread;
  for (const Rail& rail : rails_) {
    std::optional<double> watts;
    if (!rail.milliwatts.empty()) {
      if (const auto mw = ReadNumber(rail.milliwatts)) watts = *mw * 1e-3;
    } else if (const auto mv = ReadNumber(rail.millivolts), ma = ReadNumber(rail.milliamperes); mv && ma) {
      watts = *mv * *ma * 1e-6;
    }
    row.Add("power_" + FieldName(rail.name) + "_w", watts, watts ? "" : kUnread);
    if (!watts) {
      unread.insert(rail.name);
      continue;
    }
    if (rail.name == "VDD_IN" || rail.name == "POM_5V_IN" || rail.name == "VIN") total = watts;
    sum = sum.value_or(0) + *watts;
  }
  if (!rails_.empty()) {
    // A sum that lacks a rail is no total.
    const bool whole = total || unread.empty();
    row.Add("power_total_w", total ? total : whole ? sum : std::nullopt, whole ? "" : "a rail could not be read");
  }
  for (const Gpu& gpu : gpus_) {
    const auto load = ReadNumber(gpu.load), hertz = ReadNumber(gpu.hertz);
    row.Add(gpu.name + "_sm_percent", load ? std::optional(*load / 10) : std::nullopt, load ? "" : kUnread);
    row.Add(gpu.name + "_pclk_mhz", hertz ? std::optional(*hertz * 1e-6) : std::nullopt, hertz ? "" : kUnread);
  }
  if (mode_.empty()) return;
  // "pmode:0002" or "2".
  const std::string said = FirstLine(mode_);
  const size_t colon = said.rfind(':');
  const auto mode = ToNumber(colon == std::string::npos ? said : said.substr(colon + 1));
  row.Add("nvpmodel_mode", mode, mode ? "" : kUnread);
}

std::vector<std::pair<std::string, std::optional<double>>> Jetson::Events() const {
  std::vector<std::pair<std::string, std::optional<double>>> out;
  for (const auto& [name, file] : events_) out.emplace_back(name, ReadNumber(file));
  return out;
}

}  // namespace ridge::lab
