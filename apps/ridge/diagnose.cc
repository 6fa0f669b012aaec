// ridge diagnose: which bottleneck, found by changing things and watching what follows.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "base/quantity.h"
#include "commands.h"
#include "diagnose_run.h"
#include "diagnose_service.h"
#include "interrupt.h"
#include "lab/diagnose/diagnose_actions.h"
#include "lab/statistics.h"
#include "model_options.h"
#include "own_server.h"
#include "pull_progress.h"
#include "text_table.h"

namespace ridge::app {
namespace {

struct Options {
  ModelOptions model;
  CLI::Option *model_flag = nullptr, *threads_flag = nullptr;
  std::string url, api_key, served_model;
  int64_t prompt = 128, gen = 64, blocks = 4, requests = 12;
  double client_delay_ms = 0, most_s = 120;
  bool no_http = false;
};

Status CheckUsage(const Options& o) {
  const auto range = [](const char* flag, int64_t value, int64_t least, int64_t most) -> Status {
    if (value >= least && value <= most) return {};
    return Fail(Code::kUsage, "wrong value")
        .Where(flag)
        .Found(std::to_string(value))
        .Expected(fmt::format("{} to {}", least, most));
  };
  RIDGE_RETURN_IF_ERROR(range("-p", o.prompt, 1, 1 << 20));
  RIDGE_RETURN_IF_ERROR(range("-n", o.gen, 1, 1 << 20));
  RIDGE_RETURN_IF_ERROR(range("-r", o.blocks, 3, 100));
  RIDGE_RETURN_IF_ERROR(range("--requests", o.requests, 6, 1000));
  if (!(o.most_s >= 1 && o.most_s <= 86400))
    return Fail(Code::kUsage, "wrong value").Where("--time").Expected("1 to 86400 seconds");
  if (o.client_delay_ms < 0 || o.client_delay_ms > 10000)
    return Fail(Code::kUsage, "wrong value").Where("--client-delay").Expected("0 to 10000 ms");
  if (o.model.model().empty() && o.url.empty())
    return Fail(Code::kUsage, "nothing to diagnose").Remedy("give a model with -m, the URL of a server, or both");
  return {};
}

// The settings that this process resolved, for a server of the same kind.
std::vector<std::string> ServerArguments(const service::Runtime& r, int64_t tokens) {
  const backend::StateOptions& s = r.state_options();
  return {"-m",     r.model().file().path(),
          "-t",     std::to_string(r.program().n_threads()),
          "--isa",  r.program().isa(),
          "-c",     std::to_string(tokens),
          "-b",     std::to_string(r.batch_tokens()),
          "-ub",    std::to_string(r.chunk_tokens()),
          "-ctk",   std::string(backend::Name(s.k_type)),
          "-ctv",   std::string(backend::Name(s.v_type)),
          "-np",    "1",
          "--spec", "off"};
}

// Fewer and shorter requests to the own server, where those that were asked for would take more than half of --time. Of such a request's time HTTP takes no smaller
// share than of a long one.
void Shorten(const Options& o, const lab::Evidence& evidence, ServiceWork& work, std::vector<Shortened>& shortened) {
  constexpr int64_t kFewest = 6;
  const double request_s = evidence.prefill.seconds + evidence.decode.seconds, most_s = o.most_s / 2;
  const auto all = [&](int64_t requests) { return request_s * static_cast<double>(requests + 2); };
  if (all(work.requests) <= most_s) return;
  work.requests = kFewest;
  const double scale = std::min(1.0, most_s / all(kFewest));
  const auto scaled = [&](int64_t tokens, int64_t least) {
    return std::min(tokens, std::max(least, static_cast<int64_t>(scale * static_cast<double>(tokens))));
  };
  work.prompt_tokens = scaled(work.prompt_tokens, 8);
  work.max_tokens = scaled(work.max_tokens, 4);
  shortened.push_back({fmt::format("{} over HTTP of {} + {} instead of {} of {} + {}", Count(work.requests, "request"),
                                   work.prompt_tokens, Count(work.max_tokens, "token"), o.requests, o.prompt, o.gen),
                       fmt::format("{:.1f} s a request", request_s)});
}

Status MeasureHttp(const Options& o, DiagnoseRun* run, lab::Evidence& evidence, std::optional<ServiceTimes>& times,
                   std::string& url, std::vector<Shortened>& shortened) {
  ServiceWork work{.url = o.url,
                   .model = o.served_model,
                   .api_key = o.api_key,
                   .prompt_tokens = o.prompt,
                   .max_tokens = o.gen,
                   .requests = o.requests,
                   .client_delay_s = o.client_delay_ms / 1e3};
  std::optional<OwnServer> server;
  if (o.url.empty()) {
    const service::Runtime& runtime = run->base()->runtime();
    RIDGE_ASSIGN_OR_RETURN(server, OwnServer::Start(ServerArguments(runtime, 2 * o.prompt + o.gen + 256)));
    work.url = server->url();
    Shorten(o, evidence, work, shortened);
  } else if (run != nullptr && run->base() != nullptr) {
    work.engine_s = evidence.prefill.seconds + evidence.decode.seconds;
  }
  url = work.url;
  RIDGE_ASSIGN_OR_RETURN(times, MeasureService(work));
  evidence.service_shares = times->service;
  evidence.client_shares = times->client;
  return {};
}

Json ShareJson(const std::map<std::string, lab::Share>& shares) {
  Json j = Json::object();
  for (const auto& [name, s] : shares) j[name] = {{"median", s.median}, {"low", s.low}, {"high", s.high}};
  return j;
}

Json PhaseJson(const lab::PhaseDiagnosis& d, const lab::PhaseEvidence& e, double tokens) {
  Json responses = Json::array();
  for (const lab::Response& r : e.responses) {
    Json factors = Json::object();
    for (size_t i = 0; i < lab::kParts; i++) factors[std::string(lab::Name(lab::kAllParts[i]))] = r.factors[i];
    const auto interval = lab::MedianInterval(r.ratios);
    responses.push_back({{"intervention", r.name},
                         {"ratio", lab::Median(r.ratios)},
                         {"ratio_low", interval ? Json(interval->low) : Json(nullptr)},
                         {"ratio_high", interval ? Json(interval->high) : Json(nullptr)},
                         {"pairs", r.ratios},
                         {"factors", std::move(factors)}});
  }
  Json limits = Json::array();
  for (const lab::MostShare& l : e.limits) limits.push_back(l.name);
  const bool known = d.known && e.seconds > 0;
  return {{"seconds", known ? Json(e.seconds) : Json(nullptr)},
          {"per_second", known ? Json(tokens / e.seconds) : Json(nullptr)},
          {"bottleneck", d.bottleneck ? Json(std::string(lab::Name(*d.bottleneck))) : Json(nullptr)},
          {"reason", d.reason.empty() ? Json(nullptr) : Json(d.reason)},
          {"shares", ShareJson(d.shares)},
          {"misfit", known ? Json(d.misfit) : Json(nullptr)},
          {"limits", std::move(limits)},
          {"responses", std::move(responses)}};
}

Json Document(const Options& o, const DiagnoseRun* run, const lab::Evidence& e, const lab::Diagnosis& d,
              const std::optional<ServiceTimes>& service, const std::string& url,
              const std::vector<NotTried>& not_tried, const std::vector<Shortened>& shortened, double seconds) {
  Json levers = Json::array(), actions = Json::array(), skipped = Json::array();
  for (const lab::LeverResult& l : d.levers)
    levers.push_back({{"phase", l.phase},
                      {"cause", l.cause},
                      {"action", l.action},
                      {"predicted_ratio", l.predicted},
                      {"realised_ratio", l.realised},
                      {"realised_low", l.low},
                      {"realised_high", l.high},
                      {"proved", l.proved}});
  for (const lab::Action& a : lab::ActionsFor(d))
    actions.push_back({{"action", a.action},
                       {"reason", a.reason},
                       {"tried", a.tried},
                       {"helps", a.tried ? Json(a.helps) : Json(nullptr)}});
  for (const NotTried& n : not_tried) skipped.push_back({{"intervention", n.intervention}, {"reason", n.reason}});
  Json shorter = Json::array();
  for (const Shortened& s : shortened) shorter.push_back({{"what", s.what}, {"reason", s.reason}});
  const auto median = [](const std::vector<double>& v) { return v.empty() ? Json(nullptr) : Json(lab::Median(v)); };
  Json http = nullptr;
  if (service)
    http = {{"url", url},
            {"requests", service->total_s.size()},
            {"request_s", lab::Median(service->total_s)},
            {"engine_s", lab::Median(service->engine_s)},
            {"engine_from", service->engine_from},
            {"ttft_s", lab::Median(service->ttft_s)},
            {"service_share", lab::Median(service->service)},
            {"client_share", lab::Median(service->client)}};
  const bool measured = run != nullptr && run->base() != nullptr;
  return {{"model", o.model.model().empty() ? Json(nullptr) : Json(o.model.model())},
          {"n_prompt", o.prompt},
          {"n_gen", o.gen},
          {"verdict",
           {{"bottleneck", d.bottleneck},
            {"cause", d.cause.empty() ? Json(nullptr) : Json(d.cause)},
            {"phase", d.phase.empty() ? Json(nullptr) : Json(d.phase)},
            {"reason", d.reason}}},
          {"shares", ShareJson(d.shares)},
          {"prefill", PhaseJson(d.prefill, e.prefill, static_cast<double>(o.prompt))},
          {"decode", PhaseJson(d.decode, e.decode, static_cast<double>(o.gen))},
          {"http", std::move(http)},
          {"cpu_share", median(e.cpu_shares)},
          {"rest_ratio", median(e.rest_ratios)},
          {"read_share", e.read_share ? Json(*e.read_share) : Json(nullptr)},
          {"levers", std::move(levers)},
          {"actions", std::move(actions)},
          {"not_tried", std::move(skipped)},
          {"shortened", std::move(shorter)},
          {"config", measured ? ConfigJson(run->base()->runtime()) : Json(nullptr)},
          {"seconds", seconds}};
}

std::string Percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

std::string PhaseText(const char* name, const lab::PhaseDiagnosis& d, const lab::PhaseEvidence& e, double tokens) {
  if (!d.known) return "";
  std::string text =
      fmt::format("\n{}: {:.1f} tokens/s; {}\n", name, tokens / e.seconds,
                  d.bottleneck ? fmt::format("bound by {}", lab::Name(*d.bottleneck)) : "undetermined: " + d.reason);
  TextTable table({{"what was changed"},
                   {"time with / without", true},
                   {"interval", true},
                   {"compute", true},
                   {"memory", true},
                   {"unpacking", true},
                   {"attention", true},
                   {"overhead", true}});
  for (const lab::Response& r : e.responses) {
    const auto interval = lab::MedianInterval(r.ratios);
    std::vector<std::string> row = {r.name, fmt::format("{:.2f}", lab::Median(r.ratios)),
                                    interval ? fmt::format("{:.2f} to {:.2f}", interval->low, interval->high) : "-"};
    for (double f : r.factors) row.push_back(fmt::format("{:.2f}", f));
    table.Row(std::move(row));
  }
  std::vector<std::string> row = {"share of the time", "", ""};
  for (lab::Part p : lab::kAllParts) {
    const lab::Share& s = d.shares.at(std::string(lab::Name(p)));
    row.push_back(fmt::format("{} ({:.0f}-{:.0f})", Percent(s.median), 100 * s.low, 100 * s.high));
  }
  table.Row(std::move(row));
  text += table.Text();
  for (const lab::MostShare& l : e.limits) text += "  by its work alone: " + l.name + "\n";
  return text;
}

std::string Text(const Options& o, const lab::Evidence& e, const lab::Diagnosis& d,
                 const std::optional<ServiceTimes>& service, const std::vector<NotTried>& not_tried,
                 const std::vector<Shortened>& shortened) {
  std::string text = fmt::format("bottleneck: {}{}\n            {}\n", d.bottleneck,
                                 d.cause.empty() ? "" : " (" + d.cause + ")", d.reason);
  TextTable shares({{"of a request"}, {"share", true}, {"interval", true}});
  for (const auto& [name, s] : d.shares)
    shares.Row({name, Percent(s.median), fmt::format("{:.0f} to {:.0f} %", 100 * s.low, 100 * s.high)});
  text += "\n" + shares.Text();
  text += PhaseText("prefill", d.prefill, e.prefill, static_cast<double>(o.prompt));
  text += PhaseText("decode", d.decode, e.decode, static_cast<double>(o.gen));
  if (d.prefill.known || d.decode.known)
    text += "\nUnder each part: the factor by which its time alone was measured to change.\n";
  if (service)
    text +=
        fmt::format("\nhttp: {:.1f} ms a request, of them {:.1f} in the engine ({})\n",
                    1e3 * lab::Median(service->total_s), 1e3 * lab::Median(service->engine_s), service->engine_from);
  const std::vector<lab::Action> actions = lab::ActionsFor(d);
  if (!actions.empty()) text += "\nwhat to do:\n";
  for (const lab::Action& a : actions)
    text += fmt::format("  {}{}: {}\n", a.tried ? "" : "(not tried) ", a.action, a.reason);
  if (!shortened.empty()) text += "\nshorter than asked for:\n";
  for (const Shortened& s : shortened) text += fmt::format("  {}: {}\n", s.what, s.reason);
  if (!not_tried.empty()) text += "\nnot tried:\n";
  for (const NotTried& n : not_tried) text += fmt::format("  {}: {}\n", n.intervention, n.reason);
  return text;
}

Status DiagnoseCommand(const Options& o, Output& out) {
  RIDGE_RETURN_IF_ERROR(CheckUsage(o));
  Interrupt interrupt(out.json);
  const auto begin = std::chrono::steady_clock::now();
  std::optional<DiagnoseRun> run;
  lab::Evidence nothing;
  std::vector<NotTried> not_tried;
  std::vector<Shortened> shortened;
  if (!o.model.model().empty()) {
    RIDGE_ASSIGN_OR_RETURN(service::RuntimeOptions options, o.model.Check({}));
    RIDGE_ASSIGN_OR_RETURN(options.path, ResolveOrPull(o.model.model()));
    RIDGE_ASSIGN_OR_RETURN(const std::shared_ptr<const Profile> taken, o.model.TakeProfile(options.path));
    o.model.Apply(taken.get(), options);
    run.emplace(options, DiagnoseWork{o.prompt, o.gen, o.blocks, o.threads_flag->count() > 0, o.most_s});
    RIDGE_RETURN_IF_ERROR(run->Measure());
    not_tried = run->not_tried();
    shortened = run->shortened();
  } else {
    not_tried.push_back(
        {"the parts of prefill and decode", "they are changed in this process, and no model was given with -m"});
  }
  lab::Evidence& evidence = run ? run->evidence() : nothing;
  std::optional<ServiceTimes> service;
  std::string url;
  if (run && run->base() == nullptr) {
    not_tried.push_back({"everything else", "the model was refused"});
  } else if (o.no_http) {
    not_tried.push_back({"HTTP", "--no-http"});
  } else if (const Status http = MeasureHttp(o, run ? &*run : nullptr, evidence, service, url, shortened); !http) {
    if (!o.url.empty()) return http;  // it was asked for
    not_tried.push_back({"HTTP", http.error().Message()});
  }
  const lab::Diagnosis d = lab::Diagnose(evidence);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (out.json)
    return out.Document(Document(o, run ? &*run : nullptr, evidence, d, service, url, not_tried, shortened, seconds));
  return out.Write(Text(o, evidence, d, service, not_tried, shortened));
}

}  // namespace

void AddDiagnose(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<Options>();
  CLI::App* app = AddSubcommand(
      root, "diagnose", "which bottleneck, found by changing things and watching what follows",
      "ridge diagnose -m smollm2:135m -p 128 -n 64\n  ridge diagnose -m smollm2:135m http://127.0.0.1:8080\n\n"
      "Changes threads, kernels, tokens a step, context, prompt, chunk, layers, what else reads memory, rests, and "
      "HTTP, each in interleaved\n"
      "pairs, and finds which parts of the time answer. Each setting (-t, --isa, -ub …) is the run that is asked "
      "about. With a URL the server\n"
      "there is held against its engine; without one, a server of this program is started for that.");
  o->model.Add(app);
  o->model_flag = app->get_option("-m")->required(false);
  o->threads_flag = app->get_option("-t");
  app->add_option("URL", o->url, "a server with OpenAI's API to diagnose too");
  app->add_option("-p,--n-prompt", o->prompt, "tokens of the prompt")->capture_default_str();
  app->add_option("-n,--n-gen", o->gen, "tokens generated")->capture_default_str();
  app->add_option("-r,--blocks", o->blocks, "blocks of two pairs for each change")->capture_default_str();
  app->add_option("--time", o->most_s,
                  "seconds that all changes may take, about, and half as many for HTTP: slow settings are measured on "
                  "less, and what would take longer is left out; both are told")
      ->capture_default_str();
  app->add_option("--requests", o->requests, "requests over HTTP")->capture_default_str();
  app->add_flag("--no-http", o->no_http, "leave HTTP out");
  app->add_option("--api-key", o->api_key, "key of the server at URL")->envname("RIDGE_API_KEY");
  app->add_option("--served-model", o->served_model, "the model's name there (default: the first that it lists)");
  app->add_option("--client-delay", o->client_delay_ms,
                  "milliseconds that the client takes over each piece of text, to see what a slow one costs")
      ->capture_default_str();
  invocation.Bind(app, [o](Output& out) { return DiagnoseCommand(*o, out); });
}

}  // namespace ridge::app
