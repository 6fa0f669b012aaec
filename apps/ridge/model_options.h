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
#include <vector>

#include "command.h"
#include "service/runtime.h"

namespace ridge::app {

inline constexpr int64_t kServeParallel = 8;  // -np where it is not given

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

struct Profile;

class ModelOptions {
 public:
  // Whether the profile that ridge tune stored is used unasked (with --no-profile beside --profile), or only one that is named.
  enum class Profiles { kNamed, kStored };
  void Add(CLI::App* app, Profiles profiles = Profiles::kNamed);
  // The flags as options of the runtime, checked; the model's path is still to be resolved. Errors name the flag.
  Result<service::RuntimeOptions> Check(const LoadNeeds& needs = {}) const;
  // Finds or fetches the model and loads it.
  Result<std::unique_ptr<service::Runtime>> Load(const LoadNeeds& needs = {}) const;

  // The same in parts. The profile is for settings that the command line leaves open; null where none is used, a line on stderr where one is.
  Result<std::shared_ptr<const Profile>> TakeProfile(const std::string& resolved_path) const;
  void Apply(const Profile* profile, service::RuntimeOptions& options) const;
  static Result<std::unique_ptr<service::Runtime>> LoadResolved(const service::RuntimeOptions& options);

  // Puts this thread, and those that it starts from here on, where --cpu-mask and the like want them. Load does so too: this is for threads before it.
  Status Place() const;

  const std::string& model() const { return model_; }  // as typed
  bool strict() const { return strict_; }

 private:
  std::string model_, isa_, panel_cache_, profile_, k_type_ = "f16", v_type_ = "f16", flash_attention_ = "auto",
                                                    fusion_ = "on";
  CLI::Option *k_option_ = nullptr, *v_option_ = nullptr, *flash_option_ = nullptr;
  bool stored_profiles_ = false, no_profile_ = false;
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

// --profile and --no-profile, which exclude one another; no_profile may be null: only a named profile is used.
void AddProfile(CLI::App* app, std::string& profile, bool* no_profile);
// The named one, checked, or where none is named and `stored` the one that ridge tune left; null: none. RIDGE_NO_PROFILE turns the latter off.
Result<std::shared_ptr<const Profile>> FindProfile(const std::string& named, bool stored,
                                                   const std::string& model_path);

// --cpu-mask --cpu-range --numa.
void AddPlacement(CLI::App* app, PlacementOptions& placement);

// Every setting as resolved, with the reason where it was chosen.
Json ConfigJson(const service::Runtime& runtime);
// One entry per kind of op: op device kernel isa reason fallback count.
Json PlanJson(const backend::Program& program);
// What the program's trace measured: op phase steps calls ms; and as a table, longest first.
Json OpTimesJson(const backend::Program& program);
std::string OpTimesTable(const backend::Program& program);
// Traced steps of the program (--op-trace) that lie in these spans of CLOCK_MONOTONIC_RAW, as lab::StepsOf reads them; null: none was asked for.
struct TimeSpan {
  double begin_s = 0, end_s = 0;
};
Json OpTraceJson(const backend::OpTrace& trace, const std::vector<TimeSpan>& spans);

// One line for people, on stderr: "ridge: TEXT".
void Note(std::string_view text);

}  // namespace ridge::app
