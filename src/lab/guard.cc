// The one-variable guard: what was computed with is compared, not what was typed.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lab/experiment.h"

namespace ridge::lab {

std::vector<std::string> MovedBy(std::string_view flag) {
  static const std::map<std::string_view, std::vector<std::string>> kMoved = {
      {"t", {"n_threads"}},
      {"threads", {"n_threads"}},
      {"ub", {"n_ubatch"}},
      {"ubatch-size", {"n_ubatch"}},
      {"b", {"n_batch"}},
      {"batch-size", {"n_batch"}},
      {"ctk", {"type_k"}},
      {"cache-type-k", {"type_k"}},
      {"ctv", {"type_v"}},
      {"cache-type-v", {"type_v"}},
      {"fa", {"flash_attn"}},
      {"flash-attn", {"flash_attn"}},
      {"isa", {"isa"}},
      {"fusion", {"fusion"}},
      {"matmul", {"matmul"}},
      {"ngl", {"n_gpu_layers"}},
      {"gpu-layers", {"n_gpu_layers"}},
      {"m", {"model_filename", "model_type", "model_size", "model_n_params"}},
      {"model", {"model_filename", "model_type", "model_size", "model_n_params"}},
      {"d", {"n_depth"}},
      {"n-depth", {"n_depth"}},
      {"p", {"n_prompt"}},
      {"n", {"n_gen"}},
  };
  const auto it = kMoved.find(flag);
  return it == kMoved.end() ? std::vector<std::string>{} : it->second;
}

Status GuardResolved(const Experiment& e, const std::vector<Resolved>& arms) {
  const std::vector<std::string> allowed = MovedBy(e.flag);
  if (allowed.empty())
    return Fail(Code::kUnsupported, "the lab does not know which settings this flag moves")
        .Where(e.flag)
        .Expected("t, ub, b, ctk, ctv, fa, isa, fusion, matmul, ngl, m, d, p or n");
  for (size_t a = 0; a < arms.size(); a++) {
    for (size_t b = a + 1; b < arms.size(); b++) {
      std::set<std::string> keys;
      for (const auto& [key, value] : arms[a]) keys.insert(key);
      for (const auto& [key, value] : arms[b]) keys.insert(key);
      bool moved = false;
      for (const std::string& key : keys) {
        const auto x = arms[a].find(key), y = arms[b].find(key);
        const std::string left = x == arms[a].end() ? "(none)" : x->second,
                          right = y == arms[b].end() ? "(none)" : y->second;
        if (left == right) continue;
        if (ValueOf(e, a) != ValueOf(e, b) && std::ranges::find(allowed, key) != allowed.end()) {
          moved = true;
          continue;
        }
        return Fail(Code::kInvalidArgument, "more than the one variable moved")
            .Where(key)
            .Found(
                fmt::format("{} with {} {}, {} with {} {}", left, e.flag, ValueOf(e, a), right, e.flag, ValueOf(e, b)))
            .Remedy("give this setting in [base]");
      }
      if (ValueOf(e, a) != ValueOf(e, b) && !moved) {
        const auto it = arms[a].find(allowed[0]);
        return Fail(Code::kInvalidArgument, "the variable did not move")
            .Where(e.flag)
            .Found(fmt::format("{} and {} both resolve to {} {}", ValueOf(e, a), ValueOf(e, b), allowed[0],
                               it == arms[a].end() ? "(not told)" : it->second))
            .Remedy("this device or build cannot do it: record that as the result");
      }
    }
  }
  return {};
}

}  // namespace ridge::lab
