// ridge batched-bench: speed over the number of sequences that are decoded at once, as llama-batched-bench measures it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/quantity.h"
#include "bench_subject.h"
#include "bench_sweep.h"
#include "commands.h"
#include "model_options.h"

namespace ridge::app {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  ModelOptions model;
  std::string prompts = "512", gens = "128", sequences = "1,2,4,8", format = "md";
};

// llama-batched-bench's names: pp prompt tokens and tg generated tokens of each of pl sequences; times in seconds, speeds in tokens/s.
struct Row {
  int64_t pp = 0, tg = 0, pl = 0;
  double t_pp = 0, t_tg = 0, read_gbps = 0;
};

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

Result<Row> Measure(const service::Runtime& runtime, int64_t pp, int64_t tg, int64_t pl) {
  RIDGE_ASSIGN_OR_RETURN(BenchSubject subject, BenchSubject::Create(runtime, pl, pp + tg));
  Row row{.pp = pp, .tg = tg, .pl = pl};
  RIDGE_RETURN_IF_ERROR(subject.Generate(1));  // warm-up: every page of the weights, every thread
  subject.Rewind(0);
  auto begin = Clock::now();
  RIDGE_RETURN_IF_ERROR(subject.Prompt(pp));
  row.t_pp = SecondsSince(begin);
  begin = Clock::now();
  RIDGE_RETURN_IF_ERROR(subject.Generate(tg));
  row.t_tg = SecondsSince(begin);
  const double context = static_cast<double>(pp) + static_cast<double>(tg) / 2;
  row.read_gbps = StepReadBytes(runtime, static_cast<double>(pl), context) * static_cast<double>(tg) / row.t_tg / 1e9;
  return row;
}

// The settings as they were resolved, with llama-batched-bench's names where it has one.
Json SettingsJson(const service::Runtime& runtime) {
  const Json config = ConfigJson(runtime);
  Json j = {{"model_filename", runtime.model().file().path()}};
  for (const char* key : {"n_threads", "isa", "n_batch", "n_ubatch", "kv_page", "type_k", "type_v", "flash_attn",
                          "n_gpu_layers", "fusion", "matmul"})
    j[key] = config[key];
  return j;
}

Json RowJson(const Row& r) {
  const double total = r.t_pp + r.t_tg;
  const auto rate = [](int64_t n, double s) { return n == 0 ? Json(nullptr) : Json(static_cast<double>(n) / s); };
  return {{"pp", r.pp},
          {"tg", r.tg},
          {"pl", r.pl},
          {"n_kv", r.pl * (r.pp + r.tg)},
          {"t_pp", r.t_pp},
          {"speed_pp", rate(r.pl * r.pp, r.t_pp)},
          {"t_tg", r.t_tg},
          {"speed_tg", rate(r.pl * r.tg, r.t_tg)},
          {"t", total},
          {"speed", rate(r.pl * (r.pp + r.tg), total)},
          {"read_gbps", r.tg == 0 ? Json(nullptr) : Json(r.read_gbps)}};
}

std::string RowText(const Row& r) {
  const Json j = RowJson(r);
  const auto number = [&](const char* key) {
    return j[key].is_null() ? std::string("-") : fmt::format("{:.2f}", j[key].get<double>());
  };
  return fmt::format("| {:>6} | {:>6} | {:>4} | {:>7} | {:>8.3f} | {:>10} | {:>8.3f} | {:>10} | {:>8} | {:>10} |\n",
                     r.pp, r.tg, r.pl, r.pl * (r.pp + r.tg), r.t_pp, number("speed_pp"), r.t_tg, number("speed_tg"),
                     number("t"), number("speed"));
}

Status BatchedBench(const Options& o, Output& out) {
  const bool markdown = !out.json && o.format == "md";
  if (o.format != "md" && o.format != "jsonl") {
    return Fail(Code::kUsage, "unknown output format").Where("-o").Found(o.format).Expected("md or jsonl");
  }
  RIDGE_ASSIGN_OR_RETURN(const std::vector<int64_t> prompts, ParseNumbers("-npp", o.prompts));
  RIDGE_ASSIGN_OR_RETURN(const std::vector<int64_t> gens, ParseNumbers("-ntg", o.gens));
  RIDGE_ASSIGN_OR_RETURN(const std::vector<int64_t> sequences, ParseNumbers("-npl", o.sequences));
  const int64_t most = *std::max_element(sequences.begin(), sequences.end());
  const int64_t longest =
      *std::max_element(prompts.begin(), prompts.end()) + *std::max_element(gens.begin(), gens.end());
  if (*std::min_element(sequences.begin(), sequences.end()) < 1)
    return Fail(Code::kUsage, "wrong value").Where("-npl").Found("0").Expected("at least 1");
  if (longest < 1) return Fail(Code::kUsage, "nothing to measure").Expected("-npp or -ntg above 0");
  RIDGE_ASSIGN_OR_RETURN(const auto runtime, o.model.Load({.logit_rows = most, .context_tokens = longest}));
  if (most > runtime->chunk_tokens()) {
    return Fail(Code::kOutOfRange, "more sequences than a step may have tokens")
        .Where("-npl")
        .Found(std::to_string(most))
        .Expected(fmt::format("at most {}", runtime->chunk_tokens()))
        .Remedy("raise -ub");
  }
  if (longest > runtime->context_tokens()) {
    return Fail(Code::kOutOfRange, "prompt and output are longer than the context")
        .Found(Count(longest, "token"))
        .Expected(fmt::format("at most {}", runtime->context_tokens()));
  }
  if (markdown) {
    RIDGE_RETURN_IF_ERROR(out.Write(
        "|     PP |     TG |    B |    N_KV |   T_PP s |   S_PP t/s |   T_TG s |   S_TG t/s |      T s |      S t/s |\n"
        "|-------:|-------:|-----:|--------:|---------:|-----------:|---------:|-----------:|---------:|-----------:|"
        "\n"));
  }
  Json rows = Json::array();
  const Json settings = SettingsJson(*runtime);
  for (int64_t pp : prompts) {
    for (int64_t tg : gens) {
      for (int64_t pl : sequences) {
        RIDGE_ASSIGN_OR_RETURN(const Row row, Measure(*runtime, pp, tg, pl));
        Json document = RowJson(row);
        document.update(settings);
        if (out.json) {
          rows.push_back(std::move(document));
          continue;
        }
        RIDGE_RETURN_IF_ERROR(out.Write(markdown ? RowText(row) : document.dump() + "\n"));
        RIDGE_RETURN_IF_ERROR(out.Flush());
      }
    }
  }
  return out.json ? out.Document(rows) : Status();
}

}  // namespace

void AddBatchedBench(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<Options>();
  CLI::App* app =
      AddSubcommand(root, "batched-bench", "speed over the number of sequences decoded at once, as llama-batched-bench",
                    "ridge batched-bench -m model.gguf -npp 128 -ntg 32 -npl 1,2,4,8");
  o->model.Add(app);
  app->add_option("--npp", o->prompts, "prompt tokens of each sequence (lists and ranges as in ridge bench)")
      ->capture_default_str();
  app->add_option("--ntg", o->gens, "generated tokens of each sequence")->capture_default_str();
  app->add_option("--npl", o->sequences, "sequences at once")->capture_default_str();
  app->add_option("-o,--output", o->format, "md or jsonl")->capture_default_str();
  invocation.Bind(app, [o](Output& out) { return BatchedBench(*o, out); });
}

}  // namespace ridge::app
