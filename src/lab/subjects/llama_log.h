// The settings that programs of llama.cpp and ik_llama.cpp tell in their logs.
//
//   ReadLlamaSettings(log, run.settings);   // {"n_threads": "2", "n_ctx": "4096", "type_k": "f16", ...}
//
// Guarantees: only what the log says; the last word counts where it says it more than once.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace ridge::lab {

void ReadLlamaSettings(std::string_view log, nlohmann::ordered_json& settings);

}  // namespace ridge::lab
