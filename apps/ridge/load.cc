// ridge load: load on an OpenAI-compatible server, and latencies that count from when a request was to be sent.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "base/json_text.h"
#include "base/quantity.h"
#include "base/read_file.h"
#include "commands.h"
#include "interrupt.h"
#include "lab/load/load.h"
#include "lab/monitor/recorded.h"
#include "load_tokens.h"
#include "text_table.h"

namespace ridge::app {
namespace {

struct Options {
  lab::LoadOptions load;
  std::string arrivals = "poisson", dataset, csv, goodput, trace, tokenizer;
  int64_t prompt_tokens = 0;
  bool completions = false, has_arrivals = false, has_requests = false;
};

struct Goal {
  std::string name;
  double ms = 0;
};

Json Value(const std::optional<double>& v) { return v ? Json(*v) : Json(nullptr); }

Json DistributionJson(const lab::Distribution& d) {
  Json j = {{"n", d.n}, {"mean", Value(d.mean)}, {"min", Value(d.least)}};
  for (const auto& [name, value] : d.percentiles) j[name] = Value(value);
  j["max"] = Value(d.most);
  return j;
}

// "ttft:500,e2e:3000", in ms, counted from the scheduled moment.
Result<std::vector<Goal>> ParseGoals(const std::string& text) {
  std::vector<Goal> goals;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at), name = part.substr(0, part.find(':'));
    const auto ms = part.find(':') == std::string::npos ? std::nullopt : lab::ToNumber(part.substr(part.find(':') + 1));
    if (!ms || *ms <= 0 || (name != "ttft" && name != "e2e" && name != "tpot"))
      return Fail(Code::kUsage, "wrong value")
          .Where("--goodput")
          .Found(part)
          .Expected("ttft:MS, tpot:MS or e2e:MS with commas between");
    goals.push_back({name, *ms});
    at = end + 1;
  }
  return goals;
}

bool Meets(const lab::RequestRecord& r, const std::vector<Goal>& goals) {
  if (!r.error.empty()) return false;
  const double first = *r.first_token_s, last = r.chunk_s.empty() ? first : r.chunk_s.back();
  const int64_t tokens = r.output_tokens.value_or(r.chunks);
  for (const Goal& g : goals) {
    const double seconds = g.name == "ttft"  ? first - r.scheduled_s
                           : g.name == "e2e" ? r.done_s - r.scheduled_s
                           : tokens > 1      ? (last - first) / static_cast<double>(tokens - 1)
                                             : 0;
    if (seconds * 1e3 > g.ms) return false;
  }
  return true;
}

// A line is a prompt; where it is a JSON object, its "prompt" is.
Result<std::vector<std::string>> ReadPrompts(const std::string& path) {
  RIDGE_ASSIGN_OR_RETURN(std::string all,
                         ReadFile(path, {.what = "the prompts", .most_bytes = 1 << 30, .pipes = true}));
  std::istringstream file(std::move(all));
  std::vector<std::string> prompts;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); number++) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (line.starts_with('{')) {
      const Json j = ParseJsonText<Json>(line);
      if (!j.is_object() || !j.contains("prompt") || !j["prompt"].is_string())
        return Fail(Code::kInvalidData, "a line is no prompt")
            .Where(fmt::format("{}:{}", path, number))
            .Expected("text, or an object with \"prompt\"");
      line = j["prompt"].get<std::string>();
    }
    prompts.push_back(line);
  }
  if (prompts.empty()) return Fail(Code::kInvalidData, "the file holds no prompt").Where(path);
  return prompts;
}

Status CheckRange(const char* flag, double value, double low, double high) {
  if (value >= low && value <= high) return {};
  return Fail(Code::kUsage, "wrong value")
      .Where(flag)
      .Found(fmt::format("{}", value))
      .Expected(fmt::format("{} to {}", low, high));
}

// The moments of a trace, and what its requests say.
Status ReadTrace(Options& o) {
  const char* other = o.load.rate > 0       ? "--rate"
                      : o.has_arrivals      ? "--arrivals"
                      : !o.dataset.empty()  ? "--dataset"
                      : o.prompt_tokens > 0 ? "--prompt-tokens"
                                            : nullptr;
  if (other != nullptr)
    return Fail(Code::kUsage, "a trace has that of its own").Where(other).Remedy("leave it or --trace out");
  RIDGE_ASSIGN_OR_RETURN(const std::string text,
                         ReadFile(o.trace, {.what = "the trace", .most_bytes = 1 << 30, .pipes = true}));
  auto trace = lab::ParseTrace(text);
  if (!trace) {
    trace.error().where = o.trace + (trace.error().where.empty() ? "" : ", " + trace.error().where);
    return std::unexpected(std::move(trace).error());
  }
  const int64_t all = static_cast<int64_t>(trace->size());
  if (o.has_requests && o.load.requests > all)
    return Fail(Code::kUsage, "the trace has fewer requests")
        .Where("--requests")
        .Found(std::to_string(o.load.requests))
        .Expected(fmt::format("{} at most", all));
  if (!o.has_requests) o.load.requests = all;
  trace->resize(static_cast<size_t>(o.load.requests));
  o.load.trace = std::move(*trace);
  o.load.arrivals = lab::Arrivals::kTrace, o.arrivals = "trace";
  bool lengths = false;
  for (const lab::TracedRequest& r : o.load.trace) lengths |= r.prompt.empty() && r.prompt_tokens.has_value();
  if (lengths && o.tokenizer.empty())
    return Fail(Code::kUsage,
                "the trace tells the prompts' lengths in tokens, and no tokenizer is there to make such prompts")
        .Where(o.trace)
        .Remedy("give --tokenizer MODEL, a GGUF file of the model that the server runs");
  for (int64_t i = 0; i < o.load.requests; i++) {
    const lab::TracedRequest& r = o.load.trace[static_cast<size_t>(i)];
    o.load.prompts.push_back(r.prompt.empty() ? lab::SyntheticPrompt(o.load, i, o.load.prompt_words) : r.prompt);
  }
  return {};
}

Status Check(Options& o) {
  RIDGE_RETURN_IF_ERROR(CheckRange("--requests", static_cast<double>(o.load.requests), 1, 1e7));
  RIDGE_RETURN_IF_ERROR(CheckRange("--rate", o.load.rate, 0, 1e6));
  RIDGE_RETURN_IF_ERROR(CheckRange("--concurrency", static_cast<double>(o.load.concurrency), 0, 10000));
  RIDGE_RETURN_IF_ERROR(CheckRange("--max-tokens", static_cast<double>(o.load.max_tokens), 1, 1e6));
  RIDGE_RETURN_IF_ERROR(CheckRange("--prompt-words", static_cast<double>(o.load.prompt_words), 1, 1e6));
  RIDGE_RETURN_IF_ERROR(CheckRange("--warmup", static_cast<double>(o.load.warmup), 0, 1e6));
  RIDGE_RETURN_IF_ERROR(CheckRange("--timeout", o.load.timeout_s, 0.001, 1e6));
  if (o.arrivals != "poisson" && o.arrivals != "constant")
    return Fail(Code::kUsage, "wrong value").Where("--arrivals").Found(o.arrivals).Expected("poisson or constant");
  o.load.arrivals = o.arrivals == "poisson" ? lab::Arrivals::kPoisson : lab::Arrivals::kConstant;
  if (!o.trace.empty()) RIDGE_RETURN_IF_ERROR(ReadTrace(o));
  o.load.chat = !o.completions;
  RIDGE_RETURN_IF_ERROR(CheckRange("--prompt-tokens", static_cast<double>(o.prompt_tokens), 0, 1e7));
  if (o.prompt_tokens > 0 && o.tokenizer.empty())
    return Fail(Code::kUsage, "prompts of so many tokens need a tokenizer that counts them")
        .Where("--prompt-tokens")
        .Remedy("give --tokenizer MODEL, a GGUF file of the model that the server runs, or use --prompt-words");
  if (o.prompt_tokens > 0 && !o.dataset.empty())
    return Fail(Code::kUsage, "--prompt-tokens makes prompts, and --dataset has its own").Where("--prompt-tokens");
  if (!o.csv.empty()) RIDGE_RETURN_IF_ERROR(CheckReplaces(o.csv, "CSV of ridge load", {"request,scheduled_s,"}));
  if (!o.dataset.empty()) {
    RIDGE_ASSIGN_OR_RETURN(o.load.prompts, ReadPrompts(o.dataset));
  }
  return {};
}

std::string CsvOf(const lab::LoadRun& run) {
  std::string text =
      "request,scheduled_s,sent_s,first_token_s,done_s,held,status,prompt_tokens,output_tokens,chunks,error\n";
  const auto number = [](const auto& v) { return v ? fmt::format("{}", *v) : std::string(); };
  for (size_t i = 0; i < run.records.size(); i++) {
    const lab::RequestRecord& r = run.records[i];
    text += fmt::format("{},{:.6f},{:.6f},{},{:.6f},{},{},{},{},{},{}\n", i, r.scheduled_s, r.sent_s,
                        r.first_token_s ? fmt::format("{:.6f}", *r.first_token_s) : "", r.done_s, r.held ? 1 : 0,
                        r.status, number(r.prompt_tokens), number(r.output_tokens), r.chunks, lab::CsvCell(r.error));
  }
  return text;
}

std::string Text(const Options& o, const lab::LoadRun& run, const lab::LoadReport& r, const Json& document) {
  std::string text = fmt::format("{} at {}: {} done, {} failed in {:.2f} s", Printable(run.model), o.load.url,
                                 r.completed, r.failed, r.duration_s);
  text += o.load.arrivals == lab::Arrivals::kTrace ? fmt::format(", open loop, as in {}\n", Printable(o.trace))
          : o.load.rate > 0 ? fmt::format(", open loop, {} requests/s ({})\n", o.load.rate, o.arrivals)
                            : fmt::format(", closed loop, {} at once\n", std::max<int64_t>(1, o.load.concurrency));
  text += fmt::format("{:.2f} requests/s", r.request_throughput);
  if (r.output_throughput)
    text += fmt::format(", {:.1f} output tokens/s ({} of them, counted by {})", *r.output_throughput, r.output_tokens,
                        r.tokens_from);
  if (!document["goodput"].is_null())
    text += fmt::format(", {:.1f} % within the goals", 100 * document["goodput"]["share"].get<double>());
  TextTable table({{"ms"},
                   {"n", true},
                   {"mean", true},
                   {"p50", true},
                   {"p90", true},
                   {"p95", true},
                   {"p99", true},
                   {"most", true}});
  const auto row = [&](const char* name, const lab::Distribution& d) {
    const auto cell = [](const std::optional<double>& v) { return v ? fmt::format("{:.2f}", *v) : std::string("-"); };
    table.Row({name, std::to_string(d.n), cell(d.mean), cell(d.percentiles.at("p50")), cell(d.percentiles.at("p90")),
               cell(d.percentiles.at("p95")), cell(d.percentiles.at("p99")), cell(d.most)});
  };
  row("first token, from schedule", r.ttft_scheduled);
  row("first token, from send", r.ttft_sent);
  // Where reasoning or a tool call came first, what a reader sees came later.
  if (r.content_scheduled.mean != r.ttft_scheduled.mean) row("first content, from schedule", r.content_scheduled);
  row("whole answer, from schedule", r.e2e_scheduled);
  row("whole answer, from send", r.e2e_sent);
  row("gap between chunks", r.gap);
  row("per output token", r.tpot);
  text += "\n\n" + table.Text();
  text += "\n- : too few samples for this percentile (p50 takes 11, p90 64, p95 130, p99 662)\n";
  if (r.held > 0)
    text += fmt::format("{} waited for one of the {} places: only the rows \"from schedule\" show that\n",
                        Count(r.held, "request"), o.load.concurrency);
  text += fmt::format("client: {:.1f} % of one CPU, longest turn {:.2f} ms", r.client_cpu_percent, r.longest_turn_ms);
  if (r.dispatch.most) text += fmt::format(", sends at most {:.2f} ms late", *r.dispatch.most);
  text += r.invalid.empty() ? "\n" : "\n";
  if (const Json& c = document["token_counts"]; !c.is_null()) {
    text +=
        fmt::format("tokens by {}: {} of prompts (usage {}), {} of answers (usage {})\n", Printable(o.tokenizer),
                    c["prompt_own"].dump(), c["prompt_usage"].dump(), c["output_own"].dump(), c["output_usage"].dump());
    for (const auto& flag : c["flags"]) text += "COUNTS DIFFER: " + flag.get<std::string>() + "\n";
  }
  for (const std::string& why : r.invalid) text += "INVALID: " + why + "\n";
  for (const auto& [what, n] : r.disbelieved)
    text += fmt::format("not believed, chunks counted instead: {} x {}\n", n, Printable(what));
  for (const auto& [error, n] : r.errors) text += fmt::format("failed: {} x {}\n", n, Printable(error));
  return text;
}

Status Load(Options o, Output& out) {
  RIDGE_RETURN_IF_ERROR(Check(o));
  RIDGE_ASSIGN_OR_RETURN(const std::vector<Goal> goals, ParseGoals(o.goodput));
  Interrupt interrupt(out.json);
  interrupt.Count();
  o.load.cancelled = [&] { return interrupt.count() > 0; };
  if (isatty(STDERR_FILENO) != 0) {
    o.load.progress = [last = int64_t{-1}](int64_t done, int64_t of) mutable {
      if (done == last) return;
      last = done;
      std::fputs(fmt::format("\r{} of {} requests ", done, of).c_str(), stderr);
    };
  }
  std::optional<LoadTokens> own;
  std::vector<int64_t> asked;
  if (!o.tokenizer.empty()) {
    RIDGE_ASSIGN_OR_RETURN(LoadTokens opened, LoadTokens::Open(o.tokenizer, o.load.chat));
    own.emplace(std::move(opened));
    o.load.keep_text = true;
    const bool traced = o.load.arrivals == lab::Arrivals::kTrace;
    if (o.prompt_tokens > 0 || traced) {
      RIDGE_ASSIGN_OR_RETURN(o.load.prompts,
                             own->Prompts(o.load, o.prompt_tokens > 0 ? std::optional(o.prompt_tokens) : std::nullopt));
      for (size_t i = 0; i < o.load.prompts.size(); i++)
        asked.push_back(!traced                          ? o.prompt_tokens
                        : o.load.trace[i].prompt.empty() ? o.load.trace[i].prompt_tokens.value_or(0)
                                                         : 0);
    }
  }
  auto ran = lab::RunLoad(o.load);
  if (isatty(STDERR_FILENO) != 0) std::fputs("\r\033[K", stderr);
  RIDGE_ASSIGN_OR_RETURN(lab::LoadRun run, std::move(ran));
  Json counts = nullptr;
  if (own) {
    RIDGE_ASSIGN_OR_RETURN(const TokenCounts c, own->Count(run, asked));
    Json flags = Json::array();
    if (c.prompts_off > 0)
      flags.push_back(fmt::format("{} of {} prompts have by the server's count another length than was asked for",
                                  c.prompts_off, c.prompts));
    if (c.prompts_differ > 0)
      flags.push_back(
          fmt::format("{} of {} prompts have another length by the server's count than by this tokenizer: "
                      "another model, template or special token",
                      c.prompts_differ, c.prompts));
    if (c.outputs_differ > 0)
      flags.push_back(fmt::format("{} of {} answers have another length by the server's count than by this tokenizer",
                                  c.outputs_differ, c.outputs));
    const auto both = [](int64_t n, int64_t value) { return n > 0 ? Json(value) : Json(nullptr); };
    counts = {{"tokenizer", o.tokenizer},
              {"prompts", c.prompts},
              {"prompt_own", both(c.prompts, c.prompt_own)},
              {"prompt_usage", both(c.prompts, c.prompt_usage)},
              {"answers", c.outputs},
              {"output_own", both(c.outputs, c.output_own)},
              {"output_usage", both(c.outputs, c.output_usage)},
              {"flags", std::move(flags)}};
  }
  const lab::LoadReport r = lab::Report(o.load, run);
  if (!o.csv.empty()) {
    errno = 0;
    std::ofstream file(o.csv, std::ios::binary | std::ios::trunc);
    file << CsvOf(run) << std::flush;
    if (!file)
      return Fail(Code::kUnavailable, "cannot write the file")
          .Where(o.csv)
          .Found(errno != 0 ? std::strerror(errno) : "an error while writing");
  }
  if (r.completed == 0)
    return Fail(Code::kUnavailable, "no request was answered")
        .Where(o.load.url)
        .Found(r.errors.empty() ? "interrupted" : r.errors.begin()->first);
  Json goodput = nullptr;
  if (!goals.empty()) {
    int64_t met = 0;
    for (const lab::RequestRecord& record : run.records) met += Meets(record, goals);
    goodput = {{"share", static_cast<double>(met) / static_cast<double>(run.records.size())},
               {"requests_per_second", static_cast<double>(met) / r.duration_s}};
    for (const Goal& g : goals) goodput[g.name + "_ms"] = g.ms;
  }
  Json errors = Json::array();
  for (const auto& [message, n] : r.errors) errors.push_back({{"message", message}, {"count", n}});
  Json disbelieved = Json::array();
  for (const auto& [what, n] : r.disbelieved) disbelieved.push_back({{"what", what}, {"count", n}});
  const bool open = lab::IsOpen(o.load);
  const Json document = {
      {"url", o.load.url},
      {"model", run.model},
      {"endpoint", o.load.chat ? "chat" : "completions"},
      {"loop", open ? "open" : "closed"},
      {"rate", o.load.rate > 0 ? Json(o.load.rate) : Json(nullptr)},
      {"arrivals", open ? Json(o.arrivals) : Json(nullptr)},
      {"trace", o.trace.empty() ? Json(nullptr) : Json(o.trace)},
      {"concurrency", o.load.concurrency > 0 ? Json(o.load.concurrency)
                      : open                 ? Json(nullptr)
                                             : Json(1)},
      {"requests", run.records.size()},
      {"warmup", o.load.warmup},
      {"seed", o.load.seed},
      {"max_tokens", o.load.max_tokens},
      {"completed", r.completed},
      {"failed", r.failed},
      {"errors", std::move(errors)},
      {"duration_s", r.duration_s},
      {"request_throughput", r.request_throughput},
      {"output_throughput", Value(r.output_throughput)},
      {"prompt_tokens", r.prompt_tokens},
      {"output_tokens", r.output_tokens},
      {"tokens_from", r.tokens_from},
      {"usage_not_believed", std::move(disbelieved)},
      {"token_counts", std::move(counts)},
      {"ttft_ms", {{"scheduled", DistributionJson(r.ttft_scheduled)}, {"sent", DistributionJson(r.ttft_sent)}}},
      {"first_content_ms", {{"scheduled", DistributionJson(r.content_scheduled)}}},
      {"e2e_ms", {{"scheduled", DistributionJson(r.e2e_scheduled)}, {"sent", DistributionJson(r.e2e_sent)}}},
      {"gap_ms", DistributionJson(r.gap)},
      {"tpot_ms", DistributionJson(r.tpot)},
      {"goodput", goodput},
      {"held", r.held},
      {"client",
       {{"cpu_percent", r.client_cpu_percent},
        {"longest_turn_ms", r.longest_turn_ms},
        {"dispatch_ms", DistributionJson(r.dispatch)}}},
      {"valid", r.invalid.empty()},
      {"invalid", r.invalid}};
  if (out.json) return out.Document(document);
  return out.Write(Text(o, run, r, document));
}

}  // namespace

void AddLoad(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<Options>();
  CLI::App* app = AddSubcommand(root, "load", "load on an OpenAI-compatible server, and what its users would wait",
                                "ridge load http://127.0.0.1:8080 --rate 2 --requests 100 --goodput ttft:500");
  app->add_option("URL", o->load.url, "the server: ridge serve, llama-server, vLLM, Ollama, …")->required();
  app->add_option("--model", o->load.model, "model to ask for (default: the first that /v1/models names)");
  app->add_option("--api-key", o->load.api_key, "sent as a bearer token")->envname("RIDGE_LOAD_API_KEY");
  CLI::Option* requests = app->add_option("--requests", o->load.requests,
                                          "requests to measure (with --trace: the first so many of it, default all)");
  requests->capture_default_str();
  app->add_option("--rate", o->load.rate, "requests a second, sent whatever the answers do (open loop)");
  CLI::Option* arrivals = app->add_option("--arrivals", o->arrivals, "with --rate: poisson or constant");
  arrivals->capture_default_str();
  app->add_option(
      "--trace", o->trace,
      "send requests at the moments of this file (open loop): each line seconds, or an object with \"at_s\" "
      "(or \"timestamp\" in ms) and perhaps \"prompt\", \"max_tokens\", \"input_length\"");
  app->add_option("--concurrency", o->load.concurrency,
                  "without --rate: requests in flight at all times (closed loop, default 1); with it: the most in "
                  "flight (default: no limit)");
  app->add_option("--max-tokens", o->load.max_tokens, "output tokens of a request at most")->capture_default_str();
  app->add_option("--prompt-words", o->load.prompt_words, "words of each synthetic prompt, all different")
      ->capture_default_str();
  app->add_option("--tokenizer", o->tokenizer,
                  "a GGUF file or name of the server's model: prompts and answers are counted by its tokenizer too, "
                  "and a count of the server that differs is told");
  app->add_option("--prompt-tokens", o->prompt_tokens,
                  "tokens of each synthetic prompt, chat template included (needs --tokenizer)");
  app->add_option("--dataset", o->dataset,
                  "prompts instead of synthetic ones: a line each, or JSON objects with \"prompt\"");
  app->add_flag("--completions", o->completions, "/v1/completions instead of /v1/chat/completions");
  app->add_flag("--ignore-eos", o->load.ignore_eos,
                "ask for max_tokens tokens whatever the model says (not every server can)");
  app->add_option("--warmup", o->load.warmup, "requests before, which are not measured")->capture_default_str();
  app->add_option("--seed", o->load.seed, "of prompts and arrivals")->capture_default_str();
  app->add_option("--timeout", o->load.timeout_s, "seconds until a request has failed")->capture_default_str();
  app->add_option("--goodput", o->goodput,
                  "goals in ms that a request must meet, ttft:500,tpot:50,e2e:5000: their share is told");
  app->add_option("--csv", o->csv, "write a line for each request there");
  invocation.Bind(app, [o, requests, arrivals](Output& out) {
    o->has_requests = requests->count() > 0, o->has_arrivals = arrivals->count() > 0;
    return Load(*o, out);
  });
}

}  // namespace ridge::app
