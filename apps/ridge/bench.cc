// ridge bench: speed of prompt processing and of generation, as llama-bench measures them (no tokenizing, no sampling).
#include <fmt/format.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "backend/backend.h"
#include "base/cpu.h"
#include "bench_output.h"
#include "bench_subject.h"
#include "bench_sweep.h"
#include "commands.h"
#include "interrupt.h"
#include "model_options.h"
#include "pull_progress.h"
#include "service/runtime.h"

namespace ridge::app {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string models, prompts = "512", gens = "128", depths = "0", threads, isas, batches = "2048", chunks = "512",
                      k_types = "f16", v_types = "f16", format = "md";
  std::vector<std::string> pairs, fusions = {"on"};
  int64_t repetitions = 5, page = 32;
  std::optional<int> gpu_layers;
  std::string flash_attention = "auto", panel_cache;
  PlacementOptions placement;
  bool no_warmup = false, strict = false;
};

struct Test {
  int64_t prompt = 0, gen = 0, depth = 0;
};

// Settings that need a program of their own.
struct Setup {
  std::string model, isa, k_type, v_type;
  std::optional<int> threads;
  int64_t batch = 0, chunk = 0;
  std::string fusion = "on";
};

Result<std::vector<Test>> Tests(const Options& o) {
  std::vector<Test> tests;
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
                for (const std::string& fusion : o.fusions)
                  setups.push_back({model, isa, k, v, t, b, std::min(b, ub), fusion});
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

Result<BenchRow> Measure(const Options& o, const service::Runtime& runtime, const Test& test) {
  const int64_t tokens = test.depth + test.prompt + test.gen;
  if (tokens > runtime.context_tokens()) {
    return Fail(Code::kOutOfRange, "the test is longer than the context")
        .Found(fmt::format("{} tokens", tokens))
        .Expected(fmt::format("at most {}", runtime.context_tokens()));
  }
  RIDGE_ASSIGN_OR_RETURN(BenchSubject subject, BenchSubject::Create(runtime, 1, tokens));
  BenchRow row;
  if (!o.no_warmup) {
    if (test.prompt > 0) RIDGE_RETURN_IF_ERROR(subject.Prompt(std::min(test.prompt, runtime.chunk_tokens())));
    subject.Rewind(0);
    RIDGE_RETURN_IF_ERROR(subject.Generate(1));
    subject.Rewind(0);
  }
  RIDGE_RETURN_IF_ERROR(subject.Prompt(test.depth));
  for (int64_t i = 0; i < o.repetitions; i++) {
    subject.Rewind(test.depth);
    const auto begin = Clock::now();
    RIDGE_RETURN_IF_ERROR(subject.Prompt(test.prompt));
    RIDGE_RETURN_IF_ERROR(subject.Generate(test.gen));
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    row.samples_ns.push_back(seconds * 1e9);
    row.samples_ts.push_back(static_cast<double>(test.prompt + test.gen) / seconds);
  }
  row.speed = Summarize(row.samples_ts);
  row.time = Summarize(row.samples_ns);
  if (test.prompt == 0) {
    row.read_gbps = StepReadBytes(runtime, 1, static_cast<double>(test.depth) + static_cast<double>(test.gen) / 2) *
                    row.speed.median / 1e9;
  }
  return row;
}

void Describe(const service::Runtime& runtime, const Setup& setup, const Test& test, BenchRow& row) {
  const model::Model& model = runtime.model();
  row.model_filename = model.file().path();
  row.model_type = model.config().name.empty() ? model.config().architecture : model.config().name;
  row.model_size_bytes = model.file().size_bytes();
  row.model_parameters = model.parameters();
  row.n_threads = runtime.program().n_threads();
  row.isa = runtime.program().isa();
  row.n_batch = setup.batch;
  row.n_ubatch = runtime.chunk_tokens();
  row.type_k = setup.k_type;
  row.type_v = setup.v_type;
  row.fusion = setup.fusion;
  row.flash_attention = runtime.state_options().flash_attention;
  row.n_prompt = test.prompt;
  row.n_gen = test.gen;
  row.n_depth = test.depth;
  row.cpu = Cpu().model;
}

Status Bench(const Options& o, Output& out) {
  RIDGE_ASSIGN_OR_RETURN(const BenchFormat format, ParseBenchFormat(out.json ? "json" : o.format));
  if (o.repetitions < 1)
    return Fail(Code::kUsage, "repetitions must be at least 1").Where("-r").Found(std::to_string(o.repetitions));
  RIDGE_ASSIGN_OR_RETURN(const bool flash_attention, ParseFlashAttention(o.flash_attention));
  RIDGE_RETURN_IF_ERROR(CheckGpuLayers(o.gpu_layers, o.strict));
  RIDGE_RETURN_IF_ERROR(CheckLists(o));
  RIDGE_ASSIGN_OR_RETURN(const std::vector<Test> tests, Tests(o));
  RIDGE_ASSIGN_OR_RETURN(const std::vector<Setup> setups, Setups(o));
  int64_t longest = 0;
  for (const Test& test : tests) longest = std::max(longest, test.depth + test.prompt + test.gen);
  std::map<std::string, std::string> paths;  // by model as typed
  for (const Setup& setup : setups) {
    if (paths.contains(setup.model)) continue;
    RIDGE_ASSIGN_OR_RETURN(paths[setup.model], ResolveOrPull(setup.model));
  }
  Interrupt interrupt(out.json);
  BenchPrinter printer(format, out);
  RIDGE_RETURN_IF_ERROR(printer.Begin());
  std::unique_ptr<service::Runtime> runtime;
  for (const Setup& setup : setups) {
    runtime.reset();  // never two models in memory
    service::RuntimeOptions options{.path = paths[setup.model],
                                    .threads = setup.threads,
                                    .isa = setup.isa,
                                    .context_tokens = longest,
                                    .batch_tokens = setup.batch,
                                    .chunk_tokens = setup.chunk,
                                    .page_tokens = o.page,
                                    .flash_attention = flash_attention,
                                    .strict = o.strict,
                                    .placement = o.placement,
                                    .panel_cache_dir = o.panel_cache};
    RIDGE_ASSIGN_OR_RETURN(options.passes, FusionOf(setup.fusion));
    RIDGE_ASSIGN_OR_RETURN(options.k_type, backend::ParseKvType(setup.k_type));
    RIDGE_ASSIGN_OR_RETURN(options.v_type, backend::ParseKvType(setup.v_type));
    RIDGE_ASSIGN_OR_RETURN(runtime, service::Runtime::Load(options));
    for (const std::string& note : runtime->notes()) Note(note);
    for (const Test& test : tests) {
      RIDGE_ASSIGN_OR_RETURN(BenchRow row, Measure(o, *runtime, test));
      Describe(*runtime, setup, test, row);
      RIDGE_RETURN_IF_ERROR(printer.Row(row));
    }
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
  app->add_option("-t,--threads", o->threads, "threads; chosen when not given");
  AddPlacement(app, o->placement);
  app->add_option("--isa", o->isas, "instruction sets; the best one when not given")->envname("RIDGE_ISA");
  app->add_option("-b,--batch-size", o->batches, "most prompt tokens asked for at once")->capture_default_str();
  app->add_option("--ub,--ubatch-size", o->chunks, "prompt tokens of one step")->capture_default_str();
  app->add_option("--ctk,--cache-type-k", o->k_types, "types of cached keys: f16 bf16 f32 q8_0 q4_0")
      ->capture_default_str();
  app->add_option("--ctv,--cache-type-v", o->v_types, "types of cached values")->capture_default_str();
  app->add_option("--kv-page", o->page, "tokens per KV page")->capture_default_str();
  app->add_option("--fa,--flash-attn", o->flash_attention, "auto, on, or off: all scores before one softmax")
      ->capture_default_str();
  app->add_option("--fusion", o->fusions, FusionHelp() + " (may be given more than once)")
      ->allow_extra_args(false)
      ->capture_default_str();
  app->add_option("--ngl,--n-gpu-layers", o->gpu_layers, "layers on a GPU: none in this build");
  app->add_flag("--no-warmup", o->no_warmup, "no run before the first that counts");
  app->add_option("--panel-cache", o->panel_cache, "keep repacked weights in this folder and load them from there");
  app->add_flag("--strict", o->strict, "a fallback to a slow kernel is an error");
  app->add_option("-o,--output", o->format, "md, csv, json, jsonl or sql")->capture_default_str();
  invocation.Bind(app, [o](Output& out) { return Bench(*o, out); });
}

}  // namespace ridge::app
