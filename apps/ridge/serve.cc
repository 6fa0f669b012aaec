// ridge serve: OpenAI's HTTP API over one model.
#include <fmt/format.h>

#include <cctype>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "base/atomic_file.h"
#include "base/planted.h"
#include "base/quantity.h"
#include "base/read_file.h"
#include "commands.h"
#include "engine/cache_file.h"
#include "hub/files.h"
#include "interrupt.h"
#include "model_options.h"
#include "option_help.h"
#include "profile.h"
#include "server/server.h"
#include "service/embedder.h"
#include "service/service.h"
#include "speculation_options.h"

namespace ridge::app {
namespace {

using server::Server;
using service::Service;

constexpr Stage kStages[] = {Stage::kReceive, Stage::kTokenize,   Stage::kQueue,   Stage::kPrefill, Stage::kDecode,
                             Stage::kSample,  Stage::kDetokenize, Stage::kDeliver, Stage::kWrite};
constexpr int64_t kScoreRows = 32;  // tokens of prompts that a step may give log-probabilities of

struct Options {
  ModelOptions model;
  server::ServerOptions server;
  int64_t running = kServeParallel, waiting = 1024;
  SpeculationOptions speculation{"auto"};
  std::string kv_memory, alias, prefix_cache_file, planted;
  double stall_s = server::Context().stall_s;
  bool no_prefix_cache = false, embeddings = false;
};

// What requests call the model: the alias, the name in the store, or the file's name without its ending.
std::string ModelId(const Options& o, const std::string& path) {
  if (!o.alias.empty()) return o.alias;
  const std::string& typed = o.model.model();
  return typed == path ? std::filesystem::path(path).stem().string() : typed;
}

// Refuses a file that could never be written, or that is something else, before the model is loaded. The lock is held while the server runs: of two
// servers on one file the second to end would write over what the first kept. It ends with the process, however that ends.
Result<std::optional<hub::FileLock>> TakeCacheFile(const Options& o) {
  if (o.prefix_cache_file.empty()) return std::nullopt;
  if (o.no_prefix_cache || o.embeddings) {
    return Fail(Code::kUsage, "there is no prefix cache to keep")
        .Where("--prefix-cache-file")
        .Found(o.embeddings ? "--embeddings" : "--no-prefix-cache");
  }
  auto file = AtomicFile::Create(o.prefix_cache_file);
  if (!file) return std::unexpected(std::move(file).error());
  RIDGE_RETURN_IF_ERROR(CheckReplaces(o.prefix_cache_file, "saved prefix cache", {engine::kCacheFileBegins}));
  std::error_code unknown;  // no such file yet: its folder is there
  const std::filesystem::path path = std::filesystem::weakly_canonical(o.prefix_cache_file, unknown);
  RIDGE_ASSIGN_OR_RETURN(
      std::optional<hub::FileLock> lock,
      hub::FileLock::TryAcquire((unknown || path.empty() ? o.prefix_cache_file : path.string()) + ".lock"));
  if (lock) return lock;
  return Fail(Code::kUnavailable, "another server keeps its prefix cache in this file")
      .Where("--prefix-cache-file")
      .Found(o.prefix_cache_file)
      .Expected("a file for each server")
      .Remedy("give another path, or end the other server first");
}

// What is wrong with a file is said, and the cache starts empty.
Json RestoreCache(const Options& o, Service& service) {
  Json told = {{"path", o.prefix_cache_file}, {"pages", 0}, {"tokens", 0}, {"reason", nullptr}};
  const auto restored = service.RestoreCache(o.prefix_cache_file);
  if (!restored) {
    const Error& error = restored.error();
    const std::string why = error.code == Code::kNotFound ? "there is no such file yet" : error.Message();
    told["reason"] = why;
    Note(fmt::format("the prefix cache starts empty: {}", why));
    return told;
  }
  told["pages"] = restored->pages;
  told["tokens"] = restored->tokens;
  Note(fmt::format("prefix cache of {} restored from {} in {:.0f} ms{}", Count(restored->tokens, "token"),
                   o.prefix_cache_file, restored->ms,
                   restored->pages_left_out > 0 ? fmt::format("; {} that were used least recently did not fit",
                                                              Count(restored->pages_left_out, "page"))
                                                : ""));
  if (restored->pages_left_out > 0)
    told["reason"] = fmt::format("{} did not fit", Count(restored->pages_left_out, "page"));
  return told;
}

Status SaveCache(const Options& o, Service& service) {
  const auto saved = service.SaveCache(o.prefix_cache_file);
  if (!saved) return std::unexpected(saved.error());
  if (saved->pages == 0) {
    Note("the prefix cache is empty, nothing was saved");
  } else {
    Note(fmt::format("prefix cache of {} saved to {} ({:.0f} MiB) in {:.0f} ms", Count(saved->tokens, "token"),
                     o.prefix_cache_file, static_cast<double>(saved->bytes) / (1 << 20), saved->ms));
  }
  return {};
}

Status Serve(const Options& o, Output& out) {
  Interrupt interrupt(out.json);
  interrupt.EndInOrder();  // nobody is served yet: nothing is lost
  RIDGE_RETURN_IF_ERROR(o.speculation.Resolve());
  LoadNeeds needs{.logit_rows = o.running + kScoreRows, .sequences = o.running};
  if (o.embeddings && o.speculation.drafts_by_model())
    return Fail(Code::kUsage, "a draft model drafts text").Where("--draft-model").Found("--embeddings");
  if (o.embeddings && !o.kv_memory.empty())
    return Fail(Code::kUsage, "there is no KV pool to size").Where("--kv-memory").Found("--embeddings");
  if (o.embeddings) needs = {.embeddings = true, .context_tokens = 0};
  if (!o.kv_memory.empty()) {
    RIDGE_ASSIGN_OR_RETURN(needs.kv_bytes, ParseBytes("--kv-memory", o.kv_memory));
  }
  RIDGE_RETURN_IF_ERROR(o.model.Check(needs));
  RIDGE_ASSIGN_OR_RETURN(const std::optional<hub::FileLock> cache_lock, TakeCacheFile(o));
  if (!o.planted.empty()) {
    RIDGE_RETURN_IF_ERROR(Plant(o.planted, kStages));
    Note(fmt::format("a sleep is planted on purpose: {} ms", o.planted));
  }
  RIDGE_RETURN_IF_ERROR(o.model.Place());
  // Before the model is loaded, so that a taken port is known at once. Destroyed last: see Server.
  RIDGE_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server, Server::Listen(o.server));
  if (!out.json) Note(fmt::format("{}: loading {}", server->url(), o.model.model()));
  Result<SpeculationOptions::Loaded> loading = o.speculation.Load(o.model, needs, o.running);
  if (!loading && loading.error().code == Code::kCancelled) {  // by a signal, while the model was fetched
    Note("ended before the model was loaded: " + loading.error().Message());
    return {};
  }
  RIDGE_ASSIGN_OR_RETURN(SpeculationOptions::Loaded models, std::move(loading));
  std::unique_ptr<service::Runtime> runtime = std::move(models.model);
  const std::string id = ModelId(o, runtime->model().file().path());
  const bool embeddings = runtime->model().output() == model::ModelOutput::kEmbeddings;
  std::unique_ptr<Service> service;
  std::unique_ptr<service::Embedder> embedder;
  Json cache_file = nullptr;
  if (embeddings) {
    if (!o.planted.empty())
      return Fail(Code::kUsage, "embeddings have no ledger")
          .Where("--plant-sleep")
          .Found("a model that gives embeddings");
    if (!o.prefix_cache_file.empty()) {
      return Fail(Code::kUsage, "there is no prefix cache to keep")
          .Where("--prefix-cache-file")
          .Found("a model that gives embeddings");
    }
    if (!o.kv_memory.empty()) {
      return Fail(Code::kUsage, "there is no KV pool to size")
          .Where("--kv-memory")
          .Found("a model that gives embeddings");
    }
    RIDGE_ASSIGN_OR_RETURN(embedder, service::Embedder::Create(std::move(runtime)));
  } else {
    if (o.running > runtime->chunk_tokens()) {
      return Fail(Code::kOutOfRange, "more sequences than a step may have tokens")
          .Where("-np")
          .Found(std::to_string(o.running))
          .Expected(fmt::format("at most -ub {}", runtime->chunk_tokens()));
    }
    RIDGE_ASSIGN_OR_RETURN(service, Service::Create(std::move(runtime),
                                                    {.max_running = o.running,
                                                     .max_waiting = static_cast<size_t>(o.waiting),
                                                     .prefix_cache = !o.no_prefix_cache,
                                                     .resident_pool = true},
                                                    std::move(models.draft)));
    if (!o.prefix_cache_file.empty()) cache_file = RestoreCache(o, *service);
  }
  server->Open(
      {.service = service.get(),
       .embedder = embedder.get(),
       .model_id = id,
       .aliases = {o.model.model()},
       .created = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                      .count(),
       .speculation = models.speculation,
       .stall_s = o.stall_s,
       .version = RIDGE_VERSION});
  const service::Runtime& loaded = embeddings ? embedder->runtime() : service->runtime();
  if (out.json) {
    Json config = ConfigJson(loaded);
    config["embeddings"] = embeddings;
    config["planted_sleep"] = o.planted.empty() ? Json(nullptr) : Json(o.planted);
    config["profile"] = models.profile ? Json(models.profile->path) : Json(nullptr);
    if (!embeddings) {
      config["max_running"] = o.running;
      config["max_waiting"] = o.waiting;
      config["prefix_cache"] = !o.no_prefix_cache;
      config["prefix_cache_file"] = cache_file;
      config.update(SpeculationOptions::ConfigJson(models.speculation, service->draft(), models.profile.get()));
      config["kv_pages_reason"] = loaded.pages_reason();
    }
    RIDGE_RETURN_IF_ERROR(out.Document({{"url", server->url()}, {"model", id}, {"config", std::move(config)}}));
  } else if (embeddings) {
    Note(fmt::format("{}: {} on {} ({}), embeddings of {}, texts of at most {}", server->url(), id,
                     Count(loaded.program().n_threads(), "thread"), loaded.threads().reason,
                     Count(embedder->width(), "value"), Count(loaded.context_tokens(), "token")));
  } else {
    const int64_t tokens = loaded.state_options().n_pages * loaded.state_options().page_tokens;
    Note(fmt::format("{}: {} on {} ({}), {} at once of at most {}, KV pool of {}, {:.0f} MiB ({})", server->url(), id,
                     Count(loaded.program().n_threads(), "thread"), loaded.threads().reason,
                     Count(o.running, "request"), Count(loaded.request_tokens(), "token"), Count(tokens, "token"),
                     static_cast<double>(service->kv_bytes()) / (1 << 20), loaded.pages_reason()));
    if (const service::Runtime* draft = service->draft()) {
      Note(fmt::format("{} drafts where that pays, with {:.0f} MiB of KV beside the pool", draft->model().file().path(),
                       static_cast<double>(service->draft_kv_bytes()) / (1 << 20)));
    }
  }
  switch (server->Wait()) {
    case Server::End::kDrained: break;
    case Server::End::kCutOff:
      Note(fmt::format("requests that ran longer than {:.0f} s were cancelled", o.server.drain_s));
      break;
    case Server::End::kInterrupted: return Fail(Code::kCancelled, "interrupted");
  }
  if (!o.prefix_cache_file.empty()) return SaveCache(o, *service);
  return {};
}

}  // namespace

void AddServe(CLI::App& root, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* app = AddSubcommand(
      root, "serve", "OpenAI-compatible HTTP server with continuous batching",
      "ridge serve -m smollm2:135m --port 8080\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\", \"content\": "
      "\"Hello\"}]}'\n\n"
      "Ends in order on SIGTERM or Ctrl-C: no new requests, those that run finish. A second one ends at once.\n"
      "With --json one document on stdout says the address and every setting, once requests are taken.");
  options->model.Add(app, ModelOptions::Profiles::kStored);
  server::ServerOptions& server = options->server;
  app->add_option("--host", server.host, "address to listen on; beyond loopback only with --api-key or --insecure")
      ->capture_default_str();
  app->add_option("--port", server.port, "0: any that is free, which is then printed")->capture_default_str();
  app->add_option("--api-key", server.api_key, "ask for 'Authorization: Bearer KEY' (all but /health and /ready)")
      ->envname("RIDGE_API_KEY");
  app->add_flag("--insecure", server.insecure, "listen beyond loopback without a key");
  app->add_option("--np,--parallel", options->running, help::kParallel)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app->add_option("--max-waiting", options->waiting, "sequences that may wait; more are refused with 429")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app->add_option("--kv-memory", options->kv_memory, help::kKvMemory);
  app->add_option("--prefix-cache-file", options->prefix_cache_file,
                  "file that keeps the prefix cache over restarts: read at the start, written at the end in order");
  app->add_flag("--no-prefix-cache", options->no_prefix_cache, "compute every prompt in full");
  options->speculation.Add(app);
  app->add_flag("--embeddings", options->embeddings, "serve embeddings instead of text (encoders always do)");
  app->add_option("-a,--alias", options->alias,
                  "name of the model in the API (default: as in the store, or the file's name)");
  app->add_option("--drain", server.drain_s, "seconds that running requests get to finish after SIGTERM")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  app->add_option(
         "--stall-timeout", options->stall_s,
         "seconds without a finished step, where there is work, before /health says that the engine is stalled")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  app->add_option("--plant-sleep", options->planted,
                  "STAGE=MS: a sleep in one stage of each request, to see that ledger and diagnosis find it (receive, "
                  "tokenize, queue, prefill, decode, sample, detokenize, deliver, write)");
  app->add_option("--max-connections", server.max_connections, "open connections; more are refused")
      ->capture_default_str()
      ->check(CLI::Range(1, 65536));
  invocation.Bind(app, [options](Output& out) { return Serve(*options, out); });
}

}  // namespace ridge::app
