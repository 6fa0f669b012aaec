// Flags of every command that computes with a model (run, logits, bench), and what they resolve to.
//
//   ModelOptions options;            options.Add(app);                                        // declares -m -t --isa -c -b -ub ...
//   RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<service::Runtime> runtime, options.Load({.logit_rows = 64}));   // in the command
//   runtime->program().Run(...);   document["config"] = ConfigJson(*runtime);
//
// Guarantees: a flag does what it says or is refused by name. Load writes what people should know (threads, -ngl, a model that is fetched) to
// stderr, one line each, never to stdout.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "command.h"
#include "service/runtime.h"

namespace ridge::app {

struct LoadNeeds {
  bool embeddings = false;
  int64_t logit_rows = 1;  // rows of a step that may give logits
  std::optional<int64_t> context_tokens =
      {};  // where -c is not given (bench sizes its own); not given: the default of the runtime
  std::optional<int64_t> most_tokens = {};  // of a request: a context that is not given with -c is no longer
  int64_t sequences = 1;                    // that the KV pool has room for
  std::optional<uint64_t> kv_bytes = {};
  int64_t drafts = 0;                       // of the logit rows, drafted tokens that a step verifies
  const service::Runtime* draft = nullptr;  // a model that will draft for it: see RuntimeOptions
};

class ModelOptions {
 public:
  void Add(CLI::App* app);
  // The flags as options of the runtime, checked; the model's path is still to be resolved. Errors name the flag.
  Result<service::RuntimeOptions> Check(const LoadNeeds& needs = {}) const;
  // Finds or fetches the model and loads it.
  Result<std::unique_ptr<service::Runtime>> Load(const LoadNeeds& needs = {}) const;

  // --profile, where it was given: settings that the command line leaves open. The path is resolved.
  Status ApplyProfile(service::RuntimeOptions& options) const;

  const std::string& model() const { return model_; }  // as typed
  bool strict() const { return strict_; }

 private:
  std::string model_, isa_, panel_cache_, profile_, k_type_ = "f16", v_type_ = "f16", flash_attention_ = "auto",
                                                    fusion_ = "on";
  std::optional<int> threads_, gpu_layers_;
  std::optional<int64_t> context_, batch_, chunk_;
  PlacementOptions placement_;
  std::string matmul_ = "native";
  int64_t page_ = 32;
  bool strict_ = false;
};

// --fusion on|off|PASS,...; the error names the flag and lists the passes.
std::string FusionHelp();
Result<graph::PassSet> FusionOf(const std::string& value);

// -ctk, -ctv; "48MiB", "2GB" or "1000000". The errors name the flag.
Result<backend::KvType> KvTypeOf(const char* flag, const std::string& name);
Result<uint64_t> ParseBytes(const char* flag, const std::string& text);

// -fa: whether scores are softmaxed split by split. The errors of both name the flag.
Result<bool> ParseFlashAttention(const std::string& value);
Status CheckGpuLayers(std::optional<int> layers, bool strict);  // a number that is resolved to 0 is noted on stderr

// "native" or "blas", an error for all else.
Result<bool> MatMulIsBlas(const std::string& value);
inline constexpr const char* kMatMulHelp =
    "native, or blas: OpenBLAS where 32 tokens or more are computed at once, an experiment variable that is not "
    "bit-stable";

// --cpu-mask --cpu-range --numa.
void AddPlacement(CLI::App* app, PlacementOptions& placement);

// Every setting as resolved, with the reason where it was chosen.
Json ConfigJson(const service::Runtime& runtime);
// One entry per kind of op: op device kernel isa reason fallback count.
Json PlanJson(const backend::Program& program);
// What the program's trace measured: op phase steps calls ms; and as a table, longest first.
Json OpTimesJson(const backend::Program& program);
std::string OpTimesTable(const backend::Program& program);

// One line for people, on stderr: "ridge: TEXT".
void Note(std::string_view text);

}  // namespace ridge::app
