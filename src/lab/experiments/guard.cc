// The one-variable guard: what was computed with is compared, not what was typed.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>

#include "lab/experiments/experiment.h"

namespace ridge::lab {

std::vector<std::string> MovedBy(std::string_view flag) {
  // Flags of one meaning stand together; what they move has other names in the settings of other subjects.
  static const std::map<std::string_view, std::vector<std::string>> kMoved = [] {
    std::map<std::string_view, std::vector<std::string>> all;
    const auto add = [&](std::initializer_list<std::string_view> flags, std::vector<std::string> settings) {
      for (const std::string_view flag : flags) all[flag] = settings;
    };
    add({"t", "threads"}, {"n_threads", "n_threads_batch", "cpus"});
    add({"ub", "ubatch-size"}, {"n_ubatch"});
    add({"b", "batch-size"}, {"n_batch"});
    add({"ctk", "cache-type-k"}, {"type_k", "kv_bytes_per_token"});
    add({"ctv", "cache-type-v"}, {"type_v", "kv_bytes_per_token"});
    add({"fa", "flash-attn"}, {"flash_attn", "bit_stable"});
    add({"isa"}, {"isa"});
    add({"fusion"}, {"fusion"});
    add({"matmul"}, {"matmul", "bit_stable"});
    add({"ngl", "gpu-layers", "n-gpu-layers"}, {"n_gpu_layers"});
    add({"m", "model"}, {"model_filename", "model_type", "model_size", "model_n_params", "model", "model_path",
                         "architecture", "kv_bytes_per_token", "state_bytes_per_sequence"});
    add({"d", "n-depth"}, {"n_depth"});
    add({"p", "n-prompt"}, {"n_prompt"});
    add({"n", "n-gen"}, {"n_gen"});
    add({"c", "ctx-size"}, {"n_ctx", "n_kv_max"});
    add({"kv-page"}, {"kv_page"});
    add({"np", "parallel"}, {"max_running", "total_slots", "n_seq_max"});
    add({"npl"}, {"pl", "n_seq_max"});
    add({"npp"}, {"pp"});
    add({"ntg"}, {"tg"});
    add({"no-prefix-cache"}, {"prefix_cache"});
    add({"spec", "speculation"}, {"speculation"});
    add({"md", "draft-model"}, {"draft_model", "draft_kv_bytes", "speculation"});
    add({"concurrency"}, {"concurrency"});
    add({"max_tokens"}, {"max_tokens", "n_predict"});
    add({"power-mode"}, {"power_mode"});
    add({"observer", "op-trace"}, {"trace_every"});
    add({"url"}, {"server", "server_version", "model"});
    add({"program"}, {"version", "build_commit", "build_number", "backends", "build_target", "build"});
    // Of two subjects those settings are compared that both tell: a CLI has no -np.
    add({"subject"}, {"subject", "version", "mode"});
    return all;
  }();
  const auto it = kMoved.find(flag);
  return it == kMoved.end() ? std::vector<std::string>{} : it->second;
}

Status GuardResolved(const Experiment& e, const std::vector<Resolved>& arms) {
  const std::vector<std::string> allowed = MovedBy(e.flag);
  if (allowed.empty())
    return Fail(Code::kUnsupported, "the lab does not know which settings this flag moves")
        .Where(e.flag)
        .Expected(
            "t, ub, b, c, ctk, ctv, fa, isa, fusion, matmul, ngl, m, d, p, n, kv-page, np, npl, npp, ntg, "
            "no-prefix-cache, spec, md, "
            "subject, program, url, concurrency, max_tokens, op-trace, observer or power-mode");
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
        if (e.flag == "subject" && (x == arms[a].end() || y == arms[b].end())) continue;
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
