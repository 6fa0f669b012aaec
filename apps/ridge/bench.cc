// ridge bench: speed of prompt processing and of generation, as llama-bench measures them (no tokenizing, no sampling).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "backend/backend.h"
#include "base/cpu.h"
#include "base/topology.h"
#include "bench_case.h"
#include "bench_output.h"
#include "bench_sweep.h"
#include "ceilings.h"
#include "commands.h"
#include "gguf/gguf.h"
#include "interrupt.h"
#include "model_options.h"
#include "option_help.h"
#include "profile.h"
#include "pull_progress.h"
#include "service/runtime.h"

namespace ridge::app {
namespace {

struct Options {
  std::string models, prompts = "512", gens = "128", depths = "0", threads, isas, batches = "2048", chunks = "512",
                      k_types = "f16", v_types = "f16", format = "md";
  std::vector<std::string> pairs, fusions = {"on"};
  int64_t repetitions = 5, page = 32, op_trace = 0;
  std::string gpu_layers;
  std::string flash_attention = "auto", panel_cache, profile;
  bool no_profile = false;
  CLI::App* app = nullptr;  // tells which lists were given
  PlacementOptions placement;
  std::string matmul = "native";
  bool no_warmup = false, strict = false, with_sampling = false, sequential = false, roofline = false;
};

// Settings that need a program of their own.
struct Setup {
  std::string model, isa, k_type, v_type;
  std::optional<int> threads;
  int64_t batch = 0, chunk = 0;
  std::string fusion = "on";
  bool flash_attention = true;
  std::string profile = "";
};

Result<std::vector<BenchTest>> Tests(const Options& o) {
  std::vector<BenchTest> tests;
  RIDGE_ASSIGN_OR_RETURN(const std::vector<int64_t> prompts, ParseNumbers("-p", o.prompts));
  RIDGE_ASSIGN_OR_RETURN(const std::vector<int64_t> gens, ParseNumbers("-n", o.gens));
  RIDGE_ASSIGN_OR_RETURN(const std::vector<int64_t> depths, ParseNumbers("-d", o.depths));
  for (int64_t depth : depths) {
    for (int64_t p : prompts) {
      if (p > 0) tests.push_back({p, 0, depth});
    }
    for (int64_t n : gens) {
      if (n > 0) tests.push_back({0, n, depth});
    }
    for (const std::string& pair : o.pairs) {
      RIDGE_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, ParseNumbers("-pg", pair));
      if (numbers.size() != 2)
        return Fail(Code::kUsage, "not a pair").Where("-pg").Found("\"" + pair + "\"").Expected("PROMPT,GENERATED");
      if (numbers[0] + numbers[1] == 0) return Fail(Code::kUsage, "nothing to measure").Where("-pg").Found(pair);
      tests.push_back({numbers[0], numbers[1], depth});
    }
  }
  if (tests.empty()) return Fail(Code::kUsage, "nothing to measure").Expected("-p, -n or -pg above 0");
  return tests;
}

// Everything that a list can hold is checked before the first measurement: a sweep must not end after hours at a typo.
Status CheckLists(const Options& o) {
  for (const std::string& isa : SplitList(o.isas)) {
    const std::vector<backend::IsaInfo> known = backend::CpuIsas();
    std::string names;
    bool good = isa.empty();
    for (const backend::IsaInfo& info : known) {
      if (info.supported) names += (names.empty() ? "" : " ") + info.name;
      good = good || (info.supported && info.name == isa);
    }
    if (!good)
      return Fail(Code::kUsage, "not an instruction set of this build and CPU")
          .Where("--isa")
          .Found(isa)
          .Expected("one of: " + names);
  }
  for (const auto& [flag, list] : {std::pair{"-ctk", &o.k_types}, std::pair{"-ctv", &o.v_types}}) {
    for (const std::string& type : SplitList(*list)) {
      auto parsed = backend::ParseKvType(type);
      if (parsed) continue;
      parsed.error().where = flag;
      return std::unexpected(std::move(parsed).error());
    }
  }
  for (const std::string& fusion : o.fusions) RIDGE_RETURN_IF_ERROR(FusionOf(fusion));
  RIDGE_RETURN_IF_ERROR(MatMulIsBlas(o.matmul));
  constexpr int64_t kMostThreads = 1024, kMostTokens = 1 << 20;
  for (const auto& [flag, list, most] :
       {std::tuple{"-t", &o.threads, kMostThreads}, std::tuple{"-b", &o.batches, kMostTokens},
        std::tuple{"-ub", &o.chunks, kMostTokens}}) {
    if (list->empty()) continue;
    RIDGE_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, ParseNumbers(flag, *list));
    for (int64_t n : numbers) {
      if (n < 1 || n > most)
        return Fail(Code::kUsage, "wrong value")
            .Where(flag)
            .Found(std::to_string(n))
            .Expected(fmt::format("1 to {}", most));
    }
  }
  return {};
}

constexpr size_t kMostSetups = 10000;

Result<std::vector<Setup>> Setups(const Options& o) {
  std::vector<std::optional<int>> threads = {std::nullopt};
  if (!o.threads.empty()) {
    threads.clear();
    RIDGE_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, ParseNumbers("-t", o.threads));
    for (int64_t n : numbers) threads.push_back(static_cast<int>(n));
  }
  RIDGE_ASSIGN_OR_RETURN(const std::vector<int64_t> batches, ParseNumbers("-b", o.batches));
  RIDGE_ASSIGN_OR_RETURN(const std::vector<int64_t> chunks, ParseNumbers("-ub", o.chunks));
  std::vector<Setup> setups;
  for (const std::string& model : SplitList(o.models)) {
    for (const std::string& isa : SplitList(o.isas)) {
      for (const auto& t : threads) {
        for (const std::string& k : SplitList(o.k_types)) {
          for (const std::string& v : SplitList(o.v_types)) {
            for (int64_t b : batches) {
              for (int64_t ub : chunks) {
                for (const std::string& fusion : o.fusions) {
                  for (const std::string& fa : SplitList(o.flash_attention)) {
                    RIDGE_ASSIGN_OR_RETURN(const bool flash, ParseFlashAttention(fa));
                    setups.push_back({model, isa, k, v, t, b, std::min(b, ub), fusion, flash});
                  }
                }
                if (setups.size() <= kMostSetups) continue;
                return Fail(Code::kUsage, "too many combinations")
                    .Expected(fmt::format("at most {}", kMostSetups))
                    .Remedy("shorten the lists");
              }
            }
          }
        }
      }
    }
  }
  return setups;
}

void Describe(const service::Runtime& runtime, const Setup& setup, const BenchTest& test, BenchRow& row) {
  const model::Model& model = runtime.model();
  row.model_filename = model.file().path();
  row.model_type = model.config().name.empty() ? model.config().architecture : model.config().name;
  row.model_size_bytes = model.file().size_bytes();
  row.model_parameters = model.parameters();
  row.n_threads = runtime.program().n_threads();
  row.isa = runtime.program().isa();
  row.n_batch = setup.batch;
  row.n_ubatch = runtime.chunk_tokens();
  row.profile = setup.profile;
  row.type_k = setup.k_type;
  row.type_v = setup.v_type;
  row.fusion = setup.fusion;
  row.flash_attention = runtime.state_options().flash_attention;
  row.matmul = runtime.blas() ? "blas" : "native";
  row.n_prompt = test.prompt;
  row.n_gen = test.gen;
  row.n_depth = test.depth;
  row.cpu = Cpu().model;
}

struct ModelFile {
  std::string path;
  uint64_t size_bytes = 0;
};
using Models = std::map<std::string, ModelFile>;  // by model as typed

Result<Models> FindModels(const std::vector<Setup>& setups) {
  Models models;
  for (const Setup& setup : setups) {
    if (models.contains(setup.model)) continue;
    ModelFile& model = models[setup.model];
    RIDGE_ASSIGN_OR_RETURN(model.path, ResolveOrPull(setup.model));
    RIDGE_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::Open(model.path));
    model.size_bytes = file.size_bytes();
  }
  return models;
}

// What a profile of ridge tune says takes the place of lists that were not given.
Status UseProfiles(const Options& o, const Models& models, std::vector<Setup>& setups) {
  std::map<std::string, std::shared_ptr<const Profile>> profiles;
  for (const auto& [name, file] : models) {
    RIDGE_ASSIGN_OR_RETURN(profiles[name], FindProfile(o.profile, !o.no_profile, file.path));
  }
  const auto open = [&](const char* flag) { return o.app->get_option(flag)->count() == 0; };
  for (Setup& setup : setups) {
    const Profile* p = profiles.at(setup.model).get();
    if (p == nullptr) continue;
    setup.profile = p->path;
    if (p->threads && open("--threads")) setup.threads = p->threads;
    if (p->chunk_tokens && open("--ubatch-size") && open("--batch-size")) setup.chunk = *p->chunk_tokens;
    if (p->k_type && open("--cache-type-k")) setup.k_type = *p->k_type;
    if (p->v_type && open("--cache-type-v")) setup.v_type = *p->v_type;
    if (p->flash_attention && open("--flash-attn")) setup.flash_attention = *p->flash_attention == "on";
  }
  return {};
}

// How many of the next setups can be in memory at once, so that their repetitions take turns: at least one.
constexpr size_t kMostTogether = 16;
size_t Together(std::span<const Setup> setups, const Models& models) {
  const MemoryBudget memory = ReadMemory();
  // Half of what is free: while a model is loaded, its file and its panels are both there, and the KV comes on top.
  const uint64_t room = std::min(memory.available_bytes, memory.allowed_bytes) / 2;
  uint64_t used = 0;
  size_t n = 0;
  while (n < std::min(setups.size(), kMostTogether)) {
    used += models.at(setups[n].model).size_bytes;
    if (n > 0 && used > room) break;
    n++;
  }
  return n;
}

Result<std::unique_ptr<service::Runtime>> LoadSetup(const Options& o, const Setup& setup, const Models& models,
                                                    int64_t longest) {
  service::RuntimeOptions options{.path = models.at(setup.model).path,
                                  .threads = setup.threads,
                                  .isa = setup.isa,
                                  .context_tokens = longest,
                                  .batch_tokens = setup.batch,
                                  .chunk_tokens = setup.chunk,
                                  .page_tokens = o.page,
                                  .flash_attention = setup.flash_attention,
                                  .strict = o.strict,
                                  .placement = o.placement,
                                  .panel_cache_dir = o.panel_cache};
  RIDGE_ASSIGN_OR_RETURN(options.passes, FusionOf(setup.fusion));
  RIDGE_ASSIGN_OR_RETURN(options.blas, MatMulIsBlas(o.matmul));
  RIDGE_ASSIGN_OR_RETURN(options.k_type, backend::ParseKvType(setup.k_type));
  RIDGE_ASSIGN_OR_RETURN(options.v_type, backend::ParseKvType(setup.v_type));
  return service::Runtime::Load(options);
}

// Every case once, then every case again in the reverse order, and so on (A B B A): what drifts meanwhile drifts for all.
Status Interleave(std::vector<std::unique_ptr<BenchCase>>& cases, int64_t repetitions) {
  for (int64_t r = 0; r < repetitions; r++) {
    for (size_t i = 0; i < cases.size(); i++)
      RIDGE_RETURN_IF_ERROR(cases[r % 2 == 0 ? i : cases.size() - 1 - i]->Repeat());
  }
  return {};
}

Status MeasureGroup(const Options& o, std::span<const Setup> setups, const Models& models,
                    const std::vector<BenchTest>& tests, int64_t longest, const Ceilings& ceilings,
                    BenchPrinter& printer) {
  std::vector<std::unique_ptr<service::Runtime>> runtimes;
  for (const Setup& setup : setups) {
    RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<service::Runtime> runtime, LoadSetup(o, setup, models, longest));
    for (const std::string& note : runtime->notes()) Note(note);
    runtime->program().TraceSteps(o.op_trace);
    runtimes.push_back(std::move(runtime));
  }
  std::vector<std::unique_ptr<BenchCase>> cases;  // setup by setup
  const auto print = [&](const BenchCase& one, const Setup& setup) -> Status {
    BenchRow row;
    row.with_sampling = o.with_sampling;
    row.trace_every = o.op_trace;
    one.Finish(ceilings, row);
    std::vector<TimeSpan> spans;
    for (size_t i = 0; i < row.samples_at_s.size(); i++)
      spans.push_back({row.samples_at_s[i], row.samples_at_s[i] + row.samples_ns[i] * 1e-9});
    row.op_trace = OpTraceJson(one.runtime().program().op_trace(), spans);
    Describe(one.runtime(), setup, one.test(), row);
    return printer.Row(row);
  };
  for (size_t s = 0; s < setups.size(); s++) {
    for (const BenchTest& test : tests) {
      RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<BenchCase> one, BenchCase::Create(*runtimes[s], test, o.with_sampling));
      RIDGE_RETURN_IF_ERROR(one->WarmUp(o.no_warmup));
      cases.push_back(std::move(one));
      if (!o.sequential) continue;
      RIDGE_RETURN_IF_ERROR(Interleave(cases, o.repetitions));
      RIDGE_RETURN_IF_ERROR(print(*cases.back(), setups[s]));
      cases.clear();
    }
  }
  RIDGE_RETURN_IF_ERROR(Interleave(cases, o.repetitions));
  for (size_t i = 0; i < cases.size(); i++) RIDGE_RETURN_IF_ERROR(print(*cases[i], setups[i / tests.size()]));
  return {};
}

// The cached roofline; with --roofline, where there is none, a short measurement for this run alone.
Result<Ceilings> FindCeilings(const Options& o) {
  Ceilings cached = Ceilings::Cached();
  if (cached.roofline() || !o.roofline) return cached;
  RIDGE_ASSIGN_OR_RETURN(lab::Roofline roofline, lab::MeasureRoofline({.build = BuildName(), .is_short = true}));
  for (const std::string& reason : roofline.verdict.reasons)
    Note("the machine was not quiet while its ceilings were measured: " + reason);
  return Ceilings(std::move(roofline));
}

Status Bench(const Options& o, Output& out) {
  RIDGE_ASSIGN_OR_RETURN(const BenchFormat format, ParseBenchFormat(out.json ? "json" : o.format));
  if (o.repetitions < 1)
    return Fail(Code::kUsage, "repetitions must be at least 1").Where("-r").Found(std::to_string(o.repetitions));
  if (!o.gpu_layers.empty()) {
    // A list as llama-bench takes it; all of it resolves to no layer, so it makes no more rows.
    std::string_view numbers = o.gpu_layers;
    if (numbers == "-1") numbers = "99";  // all layers
    RIDGE_ASSIGN_OR_RETURN(const std::vector<int64_t> layers, ParseNumbers("-ngl", numbers));
    RIDGE_RETURN_IF_ERROR(
        CheckGpuLayers(static_cast<int>(std::min<int64_t>(std::ranges::max(layers), 1 << 20)), o.strict));
    if (layers.size() > 1)
      Note("-ngl " + o.gpu_layers + ": the rows of all its values would be the same; there is one");
  }
  RIDGE_RETURN_IF_ERROR(CheckLists(o));
  if (o.op_trace > 0 && format != BenchFormat::kJson && format != BenchFormat::kJsonLines)
    return Fail(Code::kUsage, "this format has no place for times of ops")
        .Where("--op-trace")
        .Found("-o " + o.format)
        .Expected("json or jsonl");
  RIDGE_ASSIGN_OR_RETURN(const std::vector<BenchTest> tests, Tests(o));
  RIDGE_ASSIGN_OR_RETURN(std::vector<Setup> setups, Setups(o));
  int64_t longest = 0;
  for (const BenchTest& test : tests) longest = std::max(longest, test.tokens());
  RIDGE_ASSIGN_OR_RETURN(const Models models, FindModels(setups));
  RIDGE_RETURN_IF_ERROR(UseProfiles(o, models, setups));
  Interrupt interrupt(out.json);
  RIDGE_ASSIGN_OR_RETURN(const Ceilings ceilings, FindCeilings(o));
  BenchPrinter printer(format, out);
  RIDGE_RETURN_IF_ERROR(printer.Begin());
  for (size_t first = 0; first < setups.size();) {
    const size_t n = o.sequential ? 1 : Together(std::span(setups).subspan(first), models);
    RIDGE_RETURN_IF_ERROR(
        MeasureGroup(o, std::span(setups).subspan(first, n), models, tests, longest, ceilings, printer));
    first += n;
  }
  return printer.End();
}

}  // namespace

void AddBench(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<Options>();
  CLI::App* app = AddSubcommand(root, "bench", "speed of prompt processing and generation, as llama-bench",
                                "ridge bench -m model.gguf -p 512 -n 128 -t 1,2 -r 5 -o md");
  app->add_option("-m,--model", o->models, "GGUF files or names in the store, with commas between")->required();
  app->add_option("-p,--n-prompt", o->prompts,
                  "prompt tokens (lists a,b and ranges a-b+step, a-b*factor here and below)")
      ->capture_default_str();
  app->add_option("-n,--n-gen", o->gens, "generated tokens")->capture_default_str();
  app->add_option("--pg", o->pairs,
                  "a prompt and what is generated after it, timed together: P,N (may be given more than once)");
  app->add_option("-d,--n-depth", o->depths, "tokens already in the KV")->capture_default_str();
  app->add_option("-r,--repetitions", o->repetitions, "repetitions of each test")->capture_default_str();
  app->add_option("-t,--threads", o->threads, help::kThreads);
  AddPlacement(app, o->placement);
  app->add_option("--isa", o->isas, help::kIsa)->envname("RIDGE_ISA");
  app->add_option("-b,--batch-size", o->batches, help::kBatch)->capture_default_str();
  app->add_option("--ub,--ubatch-size", o->chunks, help::kChunk)->capture_default_str();
  app->add_option("--ctk,--cache-type-k", o->k_types, help::kKType)->capture_default_str();
  app->add_option("--ctv,--cache-type-v", o->v_types, help::kVType)->capture_default_str();
  app->add_option("--kv-page", o->page, help::kKvPage)->capture_default_str();
  app->add_option("--fa,--flash-attn", o->flash_attention, help::kFlashAttention)->capture_default_str();
  app->add_option("--fusion", o->fusions, FusionHelp() + " (may be given more than once)")
      ->allow_extra_args(false)
      ->capture_default_str();
  app->add_option("--ngl,--gpu-layers,--n-gpu-layers", o->gpu_layers, help::kGpuLayers);
  app->add_option("--matmul", o->matmul, help::kMatMul)->capture_default_str();
  AddProfile(app, o->profile, &o->no_profile);
  o->app = app;
  app->add_option("--panel-cache", o->panel_cache, help::kPanelCache);
  app->add_flag("--with-sampling", o->with_sampling, "generated tokens are picked by the sampler, and its time counts");
  app->add_flag("--sequential", o->sequential,
                "all repetitions of a line before the next one; else lines take turns, as far as their models fit into "
                "memory together, and are printed when all are done");
  app->add_flag("--roofline", o->roofline,
                "where ridge roofline has left nothing to compare with, measure the ceilings first, for a few seconds");
  app->add_flag(
      "--no-warmup", o->no_warmup,
      "nothing runs before the first repetition that counts; else pieces of the test run until they are steady");
  app->add_option("--op-trace", o->op_trace, help::kOpTrace)->capture_default_str()->check(CLI::Range(0, 1000000));
  app->add_flag("--strict", o->strict, help::kStrict);
  app->add_option("-o,--output", o->format, "md, csv, json, jsonl or sql")->capture_default_str();
  invocation.Bind(app, [o](Output& out) { return Bench(*o, out); });
}

}  // namespace ridge::app
