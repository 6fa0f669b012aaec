// ridge plan: which model in which format fits, and how fast it can be, before anything is downloaded; with -m exactly, for a file.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/json_text.h"
#include "base/quantity.h"
#include "base/read_file.h"
#include "base/topology.h"
#include "ceilings.h"
#include "commands.h"
#include "lab/planning/plan.h"
#include "lab/roofline/roofline_json.h"
#include "model_options.h"
#include "option_help.h"
#include "pull_progress.h"
#include "text_table.h"

namespace ridge::app {
namespace {

struct Options {
  std::string memory, device = "this", task = "chat", k_type, model, scenario;
  int64_t context = 4096, concurrency = 1, chunk = 512, most = 12;
  std::optional<int> threads;
  bool all = false;
};

struct Device {
  std::optional<lab::Roofline> roofline;
  std::string roofline_reason, cpu;
  int threads = 1;
  lab::Budget budget;
  std::string memory_reason;
};

Result<Device> FindDevice(const Options& o) {
  Device d;
  bool is_limit = false;
  double bytes = 0;
  if (o.device == "this") {
    const Ceilings ceilings = Ceilings::Cached();
    d.roofline = ceilings.roofline();
    d.roofline_reason = ceilings.reason();
    d.cpu = lab::ReadMachine().cpu;
    d.threads = ResolveThreads(o.threads).threads;
    const MemoryBudget memory = ReadMemory();
    bytes = static_cast<double>(memory.allowed_bytes);
    is_limit = memory.limit_bytes && *memory.limit_bytes <= memory.machine_bytes;
    d.memory_reason = memory.reason;
  } else {
    RIDGE_ASSIGN_OR_RETURN(const std::string text,
                           ReadFile(o.device, {.what = "the device's roofline",
                                               .most_bytes = 16 << 20,
                                               .pipes = true,
                                               .remedy = "record it there with ridge roofline --json > FILE"}));
    const Json document = ParseJsonText<Json>(text);
    if (document.is_discarded())
      return Fail(Code::kInvalidData, "not JSON").Where(o.device).Expected("what ridge roofline --json prints");
    auto roofline = lab::FromJson(document);
    if (!roofline) {
      roofline.error().where = o.device + (roofline.error().where.empty() ? "" : ": " + roofline.error().where);
      return std::unexpected(std::move(roofline).error());
    }
    d.roofline = std::move(*roofline);
    d.cpu = d.roofline->machine.cpu;
    d.threads = o.threads.value_or(d.roofline->threads);
    bytes = static_cast<double>(d.roofline->machine.memory_gib) * (1 << 30);
    d.memory_reason = "of the device's roofline";
  }
  if (!o.memory.empty()) {
    RIDGE_ASSIGN_OR_RETURN(const uint64_t given, ParseBytes("--memory", o.memory));
    bytes = static_cast<double>(given);
    is_limit = false;
    d.memory_reason = "--memory";
  }
  if (bytes <= 0)
    return Fail(Code::kInvalidArgument, "the device's memory is not known").Remedy("give it with --memory 16GB");
  d.budget = lab::BudgetOf(bytes, is_limit);
  return d;
}

Json EstimateJson(const std::optional<lab::Estimate>& e) {
  return e ? Json({{"expected", e->expected}, {"low", e->low}, {"high", e->high}}) : Json(nullptr);
}

Json CandidateJson(const lab::Candidate& c) {
  const auto bytes = [](double b) { return static_cast<uint64_t>(b); };
  return {{"model", c.shape->name},
          {"source", c.shape->source},
          {"parameters", lab::Parameters(*c.shape)},
          {"format", c.mix->name},
          {"bits_per_weight", lab::BitsPerWeight(*c.shape, *c.mix)},
          {"kld", c.mix->kld},
          {"weights_bytes", bytes(c.footprint.weights_bytes)},
          {"kv_bytes_per_token", c.footprint.kv_bytes_per_token},
          {"kv_bytes", bytes(c.footprint.kv_bytes)},
          {"workspace_bytes", bytes(c.footprint.workspace_bytes)},
          {"total_bytes", bytes(c.footprint.total())},
          {"fits", c.fits},
          {"why_not", c.why_not.empty() ? Json(nullptr) : Json(c.why_not)},
          {"decode_ts", EstimateJson(c.speed.decode)},
          {"prefill_ts", EstimateJson(c.speed.prefill)}};
}

std::string Rate(const std::optional<lab::Estimate>& e) {
  return e ? fmt::format("{:.3g} ({:.3g}-{:.3g})", e->expected, e->low, e->high) : "-";
}

// The file itself: sizes as loading reserves them, work from its graph.
struct Exact {
  service::MemoryPlan memory;
  lab::Speed speed;
  bool fits = false;
};
Result<Exact> PlanFile(const Options& o, const Device& d, backend::KvType kv) {
  RIDGE_ASSIGN_OR_RETURN(const std::string path, ResolveOrPull(o.model));
  RIDGE_ASSIGN_OR_RETURN(const auto runtime, service::Runtime::Load({.path = path,
                                                                     .threads = d.threads,
                                                                     .context_tokens = o.context,
                                                                     .chunk_tokens = o.chunk,
                                                                     .sequences = o.concurrency,
                                                                     .k_type = kv,
                                                                     .v_type = kv,
                                                                     .dry_run = true}));
  Exact exact{.memory = runtime->memory()};
  exact.fits = static_cast<double>(exact.memory.peak_bytes) <= d.budget.usable();
  exact.speed.reason = d.roofline_reason;
  if (!d.roofline) return exact;
  const graph::Graph& graph = runtime->model().graph();
  const double value = backend::ValueBytes(kv), context = static_cast<double>(o.context),
               chunk = static_cast<double>(o.chunk);
  const lab::Work decode =
      lab::WorkOf(graph, {.tokens = 1, .logits = 1, .context = context, .kv_bytes_per_value = value});
  lab::Work prompt;
  for (double begin = 0; begin < context; begin += chunk) {
    const double n = std::min(chunk, context - begin);
    prompt.Add(lab::WorkOf(graph, {.tokens = n,
                                   .logits = begin + n >= context ? 1.0 : 0.0,
                                   .context = begin + n / 2,
                                   .kv_bytes_per_value = value}),
               1 / context);
  }
  exact.speed = lab::SpeedOf(decode, lab::DecodeAttention(graph, context, std::string(backend::Name(kv))), prompt,
                             static_cast<double>(runtime->model().config().layers), *d.roofline,
                             {.threads = d.threads, .isa = d.roofline->isa});
  return exact;
}

Status Plan(const Options& o, Output& out) {
  const auto at_least_one = [](const char* flag, int64_t value) -> Status {
    if (value >= 1 && value <= (int64_t{1} << 30)) return {};
    return Fail(Code::kUsage, "wrong value").Where(flag).Found(std::to_string(value)).Expected("1 to 2^30");
  };
  RIDGE_RETURN_IF_ERROR(at_least_one("--context", o.context));
  RIDGE_RETURN_IF_ERROR(at_least_one("--concurrency", o.concurrency));
  RIDGE_RETURN_IF_ERROR(at_least_one("-ub", o.chunk));
  RIDGE_RETURN_IF_ERROR(at_least_one("--most", o.most));
  const lab::TaskRule* task = lab::FindTask(o.task);
  if (task == nullptr) {
    std::string names;
    for (const lab::TaskRule& rule : lab::TaskRules()) names += (names.empty() ? "" : " ") + std::string(rule.task);
    return Fail(Code::kUsage, "unknown task").Where("--task").Found(o.task).Expected("one of: " + names);
  }
  const std::string kv_name = o.k_type.empty() ? std::string(task->kv_type) : o.k_type;
  RIDGE_ASSIGN_OR_RETURN(const backend::KvType kv, KvTypeOf("-ctk", kv_name));
  RIDGE_ASSIGN_OR_RETURN(const Device d, FindDevice(o));
  const lab::Use use{.context = o.context,
                     .concurrency = o.concurrency,
                     .chunk = o.chunk,
                     .kv_value_bytes = backend::ValueBytes(kv),
                     .kv_type = std::string(backend::Name(kv))};
  std::string_view scenario = lab::ScenarioOf(task->task, o.concurrency, d.budget.usable());
  if (!o.scenario.empty()) {
    const auto rule = std::ranges::find(lab::RuntimeRules(), o.scenario, &lab::RuntimeRule::scenario);
    if (rule == lab::RuntimeRules().end())
      return Fail(Code::kUsage, "unknown scenario")
          .Where("--scenario")
          .Found(o.scenario)
          .Expected("single, edge, concurrent, batch or agents");
    scenario = rule->scenario;
  }
  std::optional<Exact> exact;
  std::vector<lab::Candidate> candidates;
  if (!o.model.empty()) {
    RIDGE_ASSIGN_OR_RETURN(exact, PlanFile(o, d, kv));
  } else {
    candidates = lab::Candidates(*task, use, d.budget, d.roofline ? &*d.roofline : nullptr, d.threads);
  }
  const bool suits = !candidates.empty() && candidates[0].why_not.empty();
  if (out.json) {
    Json runtimes = Json::array(), rows = Json::array();
    for (const lab::RuntimeRule& r : lab::RuntimeRules())
      runtimes.push_back({{"scenario", r.scenario},
                          {"runtimes", r.runtimes},
                          {"reason", r.reason},
                          {"chosen", r.scenario == scenario}});
    for (const lab::Candidate& c : candidates) rows.push_back(CandidateJson(c));
    Json file = nullptr;
    if (exact) {
      const service::MemoryPlan& m = exact->memory;
      file = {{"model", o.model},
              {"weights_bytes", m.weights_bytes},
              {"kv_bytes", m.kv_bytes},
              {"workspace_bytes", m.workspace_bytes + m.scratch_bytes + m.logits_bytes},
              {"other_bytes", m.other_bytes},
              {"total_bytes", m.peak_bytes},
              {"fits", exact->fits},
              {"decode_ts", EstimateJson(exact->speed.decode)},
              {"prefill_ts", EstimateJson(exact->speed.prefill)},
              {"speed_reason", exact->speed.reason.empty() ? Json(nullptr) : Json(exact->speed.reason)}};
    }
    return out.Document({{"device",
                          {{"cpu", d.cpu},
                           {"threads", d.threads},
                           {"memory_bytes", static_cast<uint64_t>(d.budget.device_bytes)},
                           {"memory_reason", d.memory_reason},
                           {"reserve_bytes", static_cast<uint64_t>(d.budget.reserve_bytes)},
                           {"roofline", d.roofline ? Json(d.roofline->fingerprint) : Json(nullptr)},
                           {"roofline_reason", d.roofline ? Json(nullptr) : Json(d.roofline_reason)}}},
                         {"n_ctx", o.context},
                         {"concurrency", o.concurrency},
                         {"type_kv", kv_name},
                         {"task",
                          {{"name", task->task},
                           {"least_format", task->least_format},
                           {"type_kv", task->kv_type},
                           {"model", task->model},
                           {"reason", task->reason}}},
                         {"scenario", scenario},
                         {"runtimes", std::move(runtimes)},
                         {"file", std::move(file)},
                         {"recommended", suits ? CandidateJson(candidates[0]) : Json(nullptr)},
                         {"candidates", std::move(rows)}});
  }
  std::string text = fmt::format("{}: {:.1f} GB ({}), {:.1f} GB left to the system; {}\n", Printable(d.cpu),
                                 d.budget.device_bytes / 1e9, d.memory_reason, d.budget.reserve_bytes / 1e9,
                                 Count(d.threads, "thread"));
  if (!d.roofline) text += fmt::format("no speeds: {}\n", d.roofline_reason);
  text += fmt::format("{}: {}; {} or more bits, KV {}: {}\n\n", task->task, task->model, task->least_format, kv_name,
                      task->reason);
  if (exact) {
    const service::MemoryPlan& m = exact->memory;
    text += fmt::format(
        "{}: {:.2f} GB of weights, {:.2f} GB of KV for {} x {}, {:.2f} GB in all: {}\ndecode {} tokens/s at {}"
        " of context, prefill {} tokens/s\n",
        o.model, static_cast<double>(m.weights_bytes) / 1e9, static_cast<double>(m.kv_bytes) / 1e9, o.concurrency,
        Count(o.context, "token"), static_cast<double>(m.peak_bytes) / 1e9, exact->fits ? "fits" : "does NOT fit",
        Rate(exact->speed.decode), Count(o.context, "token"), Rate(exact->speed.prefill));
    if (d.roofline && !exact->speed.reason.empty()) text += "no speed of decoding: " + exact->speed.reason + "\n";
  } else {
    TextTable table({{"model"},
                     {"format"},
                     {"weights GB", true},
                     {"KV GB", true},
                     {"total GB", true},
                     {"decode t/s", true},
                     {"prefill t/s", true},
                     {"KLD", true},
                     {"why not"}});
    int64_t shown = 0;
    for (const lab::Candidate& c : candidates) {
      if (!o.all && (!c.why_not.empty() || shown >= o.most)) break;
      shown++;
      table.Row({std::string(c.shape->name), std::string(c.mix->name),
                 fmt::format("{:.2f}", c.footprint.weights_bytes / 1e9),
                 fmt::format("{:.2f}", c.footprint.kv_bytes / 1e9), fmt::format("{:.2f}", c.footprint.total() / 1e9),
                 Rate(c.speed.decode), Rate(c.speed.prefill), fmt::format("{:.4f}", c.mix->kld), c.why_not});
    }
    text += suits || o.all
                ? table.Text()
                : "nothing that suits the task fits: a smaller --context, fewer --concurrency, or --all to see why\n";
  }
  for (const lab::RuntimeRule& r : lab::RuntimeRules()) {
    if (r.scenario == scenario) text += fmt::format("\nruntime ({}): {}: {}\n", r.scenario, r.runtimes, r.reason);
  }
  return out.Write(text);
}

}  // namespace

void AddPlan(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<Options>();
  CLI::App* app = AddSubcommand(
      root, "plan", "which model in which format fits here, and how fast it can be, before a download",
      "ridge plan --memory 16GB --task code --context 8192\n  ridge plan -m smollm2:135m --context 2048\n\n"
      "Speeds follow from the roofline of the device (ridge roofline): decode from the bandwidth of each type's "
      "kernel, prefill from arithmetic. Divergences (KLD)\n"
      "are those of Llama 3 8B in llama.cpp's table: smaller models suffer more, so measure yours with ridge kld.");
  app->add_option("--memory", o->memory, "of the device, such as 16GB (default: what this process may use)");
  app->add_option("--device", o->device, "this, or a file that ridge roofline --json wrote on another machine")
      ->capture_default_str();
  app->add_option("--context,-c,--ctx-size", o->context, "tokens of one request")->capture_default_str();
  app->add_option("--concurrency,--np", o->concurrency, "requests at once")->capture_default_str();
  app->add_option("--scenario", o->scenario,
                  "how it is served: single, edge, concurrent, batch or agents (default: by --task, --concurrency and "
                  "memory)");
  app->add_option("--task", o->task, "chat, code, extraction, math, rag, agent or edge")->capture_default_str();
  app->add_option("--ctk,--cache-type-k", o->k_type, "type of the KV cache (default: the task's)");
  app->add_option("--ub,--ubatch-size", o->chunk, help::kChunk)->capture_default_str();
  app->add_option("-t,--threads", o->threads, help::kThreads);
  app->add_option("-m,--model", o->model,
                  "a file, a name in the store, a reference: planned exactly, from its own tensors");
  app->add_option("--most", o->most, "rows of the table at most")->capture_default_str();
  app->add_flag("--all", o->all, "what does not suit too, with the reason");
  invocation.Bind(app, [o](Output& out) { return Plan(*o, out); });
}

}  // namespace ridge::app
