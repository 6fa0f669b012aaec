#include "lab/subjects/llama_log.h"

#include <string>

#include "lab/monitor/recorded.h"

namespace ridge::lab {
namespace {

// The word after `name = ` (spaces as they come); empty: the line does not say it.
std::string After(std::string_view line, std::string_view name, char equals) {
  for (size_t at = line.find(name); at != std::string_view::npos; at = line.find(name, at + 1)) {
    const bool starts = at == 0 || line[at - 1] == ' ' || line[at - 1] == '(';
    size_t i = at + name.size();
    while (i < line.size() && line[i] == ' ') i++;
    if (!starts || i >= line.size() || line[i] != equals) continue;
    i++;
    while (i < line.size() && line[i] == ' ') i++;
    return std::string(line.substr(i, std::min(line.find_first_of(" ,)", i), line.size()) - i));
  }
  return "";
}

}  // namespace

void ReadLlamaSettings(std::string_view log, nlohmann::ordered_json& settings) {
  // Of the lines that tell the context's and the system's settings, not those of the model's file.
  for (const std::string_view line : Lines(log)) {
    if (line.find("print_info") != std::string_view::npos ||
        line.find("llm_load_print_meta") != std::string_view::npos || line.find("slot ") != std::string_view::npos)
      continue;
    for (const char* key :
         {"n_threads", "n_threads_batch", "n_ctx", "n_batch", "n_ubatch", "flash_attn", "n_seq_max"}) {
      std::string value = After(line, key, '=');
      if (value == "enabled") value = "on";
      if (value == "disabled") value = "off";
      if (!value.empty()) settings[key] = value;
    }
    // "K (f16):  45.00 MiB, V (f16):  45.00 MiB"
    for (const auto& [mark, key] : {std::pair{"K (", "type_k"}, {"V (", "type_v"}}) {
      const size_t at = line.find(mark);
      if (at != std::string_view::npos && line.find("MiB") != std::string_view::npos)
        settings[key] = std::string(line.substr(at + 3, line.find(')', at) - at - 3));
    }
    // "offloaded 0/31 layers to GPU"
    if (const size_t at = line.find("offloaded "); at != std::string_view::npos)
      settings["n_gpu_layers"] = std::string(line.substr(at + 10, line.find('/', at) - at - 10));
  }
}

}  // namespace ridge::lab
