#include "model_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/quantity.h"
#include "option_help.h"
#include "profile.h"
#include "pull_progress.h"
#include "text_table.h"

namespace ridge::app {
namespace {

constexpr const char* kNoGpu = "this build computes on the CPU only";

}  // namespace

Result<backend::KvType> KvTypeOf(const char* flag, const std::string& name) {
  auto type = backend::ParseKvType(name);
  if (!type) type.error().where = flag;
  return type;
}

Result<uint64_t> ParseBytes(const char* flag, const std::string& text) {
  auto size = ParseByteSize(text);
  if (!size) size.error().where = flag;
  return size;
}

void ModelOptions::Add(CLI::App* app, Profiles profiles) {
  app->add_option(
         "-m,--model", model_,
         "a GGUF file, a name in the store (smollm2:135m), or hf:OWNER/REPO[:QUANT], ollama:NAME, pypi:PACKAGE")
      ->required();
  app->add_option("-t,--threads", threads_, help::kThreads);
  AddPlacement(app, placement_);
  app->add_option("--isa", isa_, help::kIsa)->envname("RIDGE_ISA");
  app->add_option("-c,--ctx-size", context_, help::kContext);
  app->add_option("-b,--batch-size", batch_, help::kBatch)->default_str(help::kBatchDefault);
  app->add_option("--ub,--ubatch-size", chunk_, help::kChunk)->default_str(help::kChunkDefault);
  app->add_option("--kv-page", page_, help::kKvPage)->capture_default_str();
  k_option_ = app->add_option("--ctk,--cache-type-k", k_type_, help::kKType)->capture_default_str();
  v_option_ = app->add_option("--ctv,--cache-type-v", v_type_, help::kVType)->capture_default_str();
  flash_option_ = app->add_option("--fa,--flash-attn", flash_attention_, help::kFlashAttention)->capture_default_str();
  app->add_option("--fusion", fusion_, FusionHelp())->capture_default_str();
  app->add_option("--ngl,--gpu-layers,--n-gpu-layers", gpu_layers_, help::kGpuLayers);
  app->add_option("--panel-cache", panel_cache_, help::kPanelCache);
  stored_profiles_ = profiles == Profiles::kStored;
  AddProfile(app, profile_, stored_profiles_ ? &no_profile_ : nullptr);
  app->add_option("--matmul", matmul_, help::kMatMul)->capture_default_str();
  app->add_flag("--strict", strict_, help::kStrict);
}

std::string FusionHelp() {
  std::string names;
  for (const std::string& name : graph::PassSet::All().names()) names += (names.empty() ? "" : ", ") + name;
  return "fusion passes: on, off, or names with commas between (" + names +
         "), those alone; no-NAME: all but that one. The bits stay the same";
}

Result<graph::PassSet> FusionOf(const std::string& value) {
  auto passes = graph::ParsePasses(value);
  if (!passes) passes.error().where = "--fusion";
  return passes;
}

Result<bool> MatMulIsBlas(const std::string& value) {
  if (value == "native" || value == "blas") return value == "blas";
  return Fail(Code::kUsage, "wrong value").Where("--matmul").Found(value).Expected("native or blas");
}

void AddPlacement(CLI::App* app, PlacementOptions& placement) {
  app->add_option("-C,--cpu-mask", placement.cpu_mask,
                  "threads run on these CPUs only: hexadecimal, bit i is CPU i (0x3)");
  app->add_option("--cpu-range", placement.cpu_range, "the same as a range: LO-HI");
  app->add_option("--numa", placement.numa,
                  "off, distribute (memory spread over all nodes) or isolate (threads on one node); changes nothing on "
                  "a machine with one node")
      ->capture_default_str();
}

Result<bool> ParseFlashAttention(const std::string& value) {
  if (value == "off" || value == "0") return false;
  if (value == "auto" || value == "on" || value == "1") return true;
  return Fail(Code::kUsage, "wrong value").Where("-fa").Found(value).Expected("auto, on or off");
}

Status CheckGpuLayers(std::optional<int> layers, bool strict) {
  if (layers.value_or(0) == 0) return {};
  if (strict) {
    return Fail(Code::kUnsupported, "--strict: no layer can be put on a GPU")
        .Where("-ngl")
        .Found(std::to_string(*layers))
        .Expected(std::string("0: ") + kNoGpu);
  }
  Note("-ngl " + std::to_string(*layers) + ": 0 layers on a GPU, since " + kNoGpu);
  return {};
}

Status ModelOptions::Place() const {
  RIDGE_ASSIGN_OR_RETURN(const Placement placement, ResolvePlacement(placement_));
  const Status applied = ApplyPlacement(placement);
  return strict_ ? applied : Status();  // what the system refuses is told by Load, which is refused it again
}

Result<service::RuntimeOptions> ModelOptions::Check(const LoadNeeds& needs) const {
  RIDGE_ASSIGN_OR_RETURN(const bool flash_attention, ParseFlashAttention(flash_attention_));
  RIDGE_RETURN_IF_ERROR(CheckGpuLayers(gpu_layers_, strict_));
  service::RuntimeOptions options{.path = model_,
                                  .threads = threads_,
                                  .isa = isa_,
                                  .context_tokens = context_ ? context_ : needs.context_tokens,
                                  .most_tokens = context_ ? std::nullopt : needs.most_tokens,
                                  .batch_tokens = batch_,
                                  .chunk_tokens = chunk_,
                                  .embeddings = needs.embeddings,
                                  .logit_rows = needs.logit_rows,
                                  .drafts = needs.drafts,
                                  .sequences = needs.sequences,
                                  .kv_bytes = needs.kv_bytes,
                                  .page_tokens = page_,
                                  .flash_attention = flash_attention,
                                  .strict = strict_,
                                  .placement = placement_,
                                  .draft = needs.draft,
                                  .panel_cache_dir = panel_cache_};
  RIDGE_ASSIGN_OR_RETURN(options.passes, FusionOf(fusion_));
  RIDGE_ASSIGN_OR_RETURN(options.blas, MatMulIsBlas(matmul_));
  RIDGE_ASSIGN_OR_RETURN(options.k_type, KvTypeOf("-ctk", k_type_));
  RIDGE_ASSIGN_OR_RETURN(options.v_type, KvTypeOf("-ctv", v_type_));
  return options;
}

void AddProfile(CLI::App* app, std::string& profile, bool* no_profile) {
  CLI::Option* named = app->add_option(
      "--profile", profile,
      fmt::format("settings that ridge tune -o wrote for this model and machine, where they are not given{}",
                  no_profile == nullptr ? "" : " (default: what ridge tune stored, if it did)"));
  if (no_profile != nullptr)
    app->add_flag("--no-profile", *no_profile, "leave out the profile that ridge tune stored")->excludes(named);
}

Result<std::shared_ptr<const Profile>> FindProfile(const std::string& named, bool stored,
                                                   const std::string& model_path) {
  std::shared_ptr<const Profile> found;
  if (!named.empty()) {
    RIDGE_ASSIGN_OR_RETURN(Profile profile, Profile::Read(named));
    RIDGE_RETURN_IF_ERROR(profile.Check(model_path));
    found = std::make_shared<const Profile>(std::move(profile));
  } else if (const char* off = std::getenv("RIDGE_NO_PROFILE"); stored && (off == nullptr || *off == '\0')) {
    if (std::optional<Profile> profile = Profile::Stored(model_path))
      found = std::make_shared<const Profile>(std::move(*profile));
  }
  if (found) Note(found->Line());
  return found;
}

Result<std::shared_ptr<const Profile>> ModelOptions::TakeProfile(const std::string& resolved_path) const {
  return FindProfile(profile_, stored_profiles_ && !no_profile_, resolved_path);
}

void ModelOptions::Apply(const Profile* profile, service::RuntimeOptions& options) const {
  if (profile == nullptr) return;
  if (!options.threads) options.threads = profile->threads;
  if (!options.chunk_tokens && !options.batch_tokens) options.chunk_tokens = profile->chunk_tokens;
  const auto type = [](const CLI::Option* given, const std::optional<std::string>& name, backend::KvType& to) {
    if (name && given->count() == 0) to = backend::ParseKvType(*name).value_or(to);
  };
  type(k_option_, profile->k_type, options.k_type);
  type(v_option_, profile->v_type, options.v_type);
  if (profile->flash_attention && flash_option_->count() == 0)
    options.flash_attention = *profile->flash_attention == "on";
}

Result<std::unique_ptr<service::Runtime>> ModelOptions::LoadResolved(const service::RuntimeOptions& options) {
  RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<service::Runtime> runtime, service::Runtime::Load(options));
  for (const std::string& note : runtime->notes()) Note(note);
  if (const std::vector<std::string>& unused = runtime->model().unused(); !unused.empty()) {
    Note(Count(unused.size(), "tensor") +
         (unused.size() == 1 ? " of the file is not used, " : " of the file are not used, ") + unused.front() +
         (unused.size() > 1 ? " to " + unused.back() : ""));
  }
  return runtime;
}

Result<std::unique_ptr<service::Runtime>> ModelOptions::Load(const LoadNeeds& needs) const {
  RIDGE_ASSIGN_OR_RETURN(service::RuntimeOptions options, Check(needs));
  RIDGE_ASSIGN_OR_RETURN(options.path, ResolveOrPull(model_));
  RIDGE_ASSIGN_OR_RETURN(const std::shared_ptr<const Profile> profile, TakeProfile(options.path));
  Apply(profile.get(), options);
  return LoadResolved(options);
}

Json ConfigJson(const service::Runtime& runtime) {
  const backend::StateOptions& state = runtime.state_options();
  return {{"model", runtime.model().file().path()},
          {"architecture", runtime.model().config().architecture},
          {"n_threads", runtime.program().n_threads()},
          {"n_threads_reason", runtime.threads().reason},
          {"cpus", runtime.placement().cpus.empty() ? Json(nullptr) : Json(CpuListText(runtime.placement().cpus))},
          {"cpus_reason", runtime.placement().cpus_reason},
          {"numa", runtime.placement().numa},
          {"numa_reason", runtime.placement().numa_reason},
          {"isa", runtime.program().isa()},
          {"n_ctx", runtime.context_tokens()},
          {"n_ctx_reason", runtime.context_reason()},
          {"n_batch", runtime.batch_tokens()},
          {"n_ubatch", runtime.chunk_tokens()},
          {"kv_page", state.page_tokens},
          {"kv_pages", state.n_pages},
          {"type_k", std::string(backend::Name(state.k_type))},
          {"type_v", std::string(backend::Name(state.v_type))},
          {"kv_bytes_per_token",
           runtime.model().KvBytesPerToken(backend::ValueBytes(state.k_type), backend::ValueBytes(state.v_type))},
          {"state_bytes_per_sequence", runtime.model().StateBytes()},
          {"flash_attn", state.flash_attention ? "on" : "off"},
          {"flash_attn_reason",
           state.flash_attention ? "scores are softmaxed split by split, which are combined in order"
                                 : "-fa off: scores in full before the softmax; other bits than with flash attention"},
          {"fusion", runtime.passes().names()},
          {"n_gpu_layers", 0},
          {"n_gpu_layers_reason", kNoGpu},
          {"matmul", runtime.blas() ? "blas" : "native"},
          {"bit_stable", runtime.bit_stable()},
          {"panel_cache", runtime.program().load_report().panel_cache},
          {"strict", runtime.strict()}};
}

Json PlanJson(const backend::Program& program) {
  Json plan = Json::array();
  for (const backend::PlanEntry& entry : program.plan()) {
    plan.push_back({{"op", entry.op},
                    {"device", entry.device},
                    {"kernel", entry.kernel},
                    {"isa", entry.isa},
                    {"reason", entry.reason},
                    {"fallback", entry.fallback},
                    {"count", entry.count}});
  }
  return plan;
}

Json OpTimesJson(const backend::Program& program) {
  Json times = Json::array();
  for (const backend::OpTime& time : program.op_times()) {
    times.push_back({{"op", time.op},
                     {"phase", time.decode ? "decode" : "prefill"},
                     {"steps", time.steps},
                     {"calls", time.calls},
                     {"ms", time.ms}});
  }
  return times;
}

Json OpTraceJson(const backend::OpTrace& trace, const std::vector<TimeSpan>& spans) {
  if (trace.every == 0) return nullptr;
  Json steps = Json::array();
  for (const backend::TracedStep& step : trace.steps) {
    double end_s = step.begin_s;
    Json us = Json::array();
    for (const float op : step.us) {
      end_s += static_cast<double>(op) * 1e-6;
      us.push_back(std::round(static_cast<double>(op) * 100) / 100);
    }
    const auto holds = [&](const TimeSpan& s) { return step.begin_s >= s.begin_s && end_s <= s.end_s; };
    if (!std::ranges::any_of(spans, holds)) continue;
    steps.push_back({{"at_s", step.begin_s},
                     {"tokens", step.tokens},
                     {"phase", step.decode ? "decode" : "prefill"},
                     {"us", std::move(us)}});
  }
  return {{"every", trace.every}, {"ops", trace.ops}, {"steps", std::move(steps)}};
}

std::string OpTimesTable(const backend::Program& program) {
  std::vector<backend::OpTime> times = program.op_times();
  std::ranges::stable_sort(
      times, [](const auto& a, const auto& b) { return a.decode != b.decode ? a.decode < b.decode : a.ms > b.ms; });
  double total[2] = {};
  for (const backend::OpTime& time : times) total[time.decode ? 1 : 0] += time.ms;
  TextTable table({{"phase"}, {"op"}, {"calls", true}, {"ms/step", true}, {"us/call", true}, {"share", true}});
  for (const backend::OpTime& time : times) {
    table.Row({time.decode ? "decode" : "prefill", time.op, std::to_string(time.calls),
               fmt::format("{:.3f}", time.ms / static_cast<double>(time.steps)),
               fmt::format("{:.1f}", 1e3 * time.ms / static_cast<double>(time.calls)),
               fmt::format("{:.1f} %", 100 * time.ms / total[time.decode ? 1 : 0])});
  }
  return table.Text();
}

void Note(std::string_view text) { std::fprintf(stderr, "ridge: %.*s\n", static_cast<int>(text.size()), text.data()); }

}  // namespace ridge::app
