// Servers that speak OpenAI's API: ridge serve and llama-server, started on a free port, asked, and stopped; and any that runs already, by its URL.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "base/json_text.h"
#include "lab/load/load.h"
#include "lab/monitor/recorded.h"
#include "lab/subjects/asked.h"
#include "lab/subjects/llama_log.h"

namespace ridge::lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kReadySeconds = 300;
constexpr int kMostPorts = 3;  // that are tried

// CPU time of this process: who asks works too, and is no neighbour.
double OwnCpu() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Json JsonAt(const std::string& url) {
  const auto text = GetText(url, "", 5);
  return text ? ParseJsonText<Json>(*text) : Json();
}

// What it serves: llama.cpp tells in /props, vLLM and Ollama in /version and /api/version, others in nothing.
void AskVersion(const std::string& base, AskedRun& run) {
  if (const Json props = JsonAt(base + "/props"); props.is_object() && props.contains("build_info")) {
    run.version = "llama.cpp server " + props.value("build_info", "");
    run.settings["total_slots"] = props.value("total_slots", Json());
    run.settings["model_path"] = props.value("model_path", Json());
    if (props.contains("default_generation_settings") && props["default_generation_settings"].contains("n_ctx"))
      run.settings["n_ctx"] = props["default_generation_settings"]["n_ctx"];
    return;
  }
  for (const auto& [path, name] : {std::pair{"/api/version", "Ollama"}, {"/version", "vLLM"}}) {
    const Json j = JsonAt(base + path);
    if (j.is_object() && j.contains("version") && j["version"].is_string()) {
      run.version = fmt::format("{} {}", name, j["version"].get<std::string>());
      return;
    }
  }
  if (const Json j = JsonAt(base + "/get_server_info");
      j.is_object() && j.contains("version") && j["version"].is_string())
    run.version = "SGLang " + j["version"].get<std::string>();
}

// --- started here ---------------------------------------------------------------------------------------------------------------

class Started : public Subject {
 public:
  explicit Started(bool llama) : llama_(llama) {}
  std::string_view name() const override { return llama_ ? "llama-server" : "serve"; }

  Status Check(const Experiment& e) const override {
    if (llama_ && e.program.empty() && e.flag != "program")
      return Fail(Code::kInvalidData, "subject llama-server needs its program").Where("[experiment] program");
    return {};
  }

  Result<std::vector<std::string>> Command(const Experiment& e, size_t arm) const override {
    std::vector<std::string> out = {ProgramOf(e, arm)};
    if (out[0].empty()) {
      RIDGE_ASSIGN_OR_RETURN(out[0], OwnProgram());
    }
    if (!llama_) out.push_back("serve");
    if (llama_) {
      // What has another name there, or is nothing that it has.
      AddFlags(e, arm, true, {"p", "n", "d", "port", "host", "no-prefix-cache", "spec"}, out);
      if (SettingOf(e, arm, {"no-prefix-cache"}) == "true") out.push_back("--no-cache-prompt");
    } else {
      AddFlags(e, arm, false, {"p", "n", "d", "port", "host"}, out);
    }
    const int64_t concurrency = WorkloadOf(e, arm).concurrency;
    // As many sequences at once as are asked, where the experiment does not say it.
    if (!SettingOf(e, arm, {"np", "parallel"}))
      out.insert(out.end(), {"-np", std::to_string(llama_ ? concurrency : std::max<int64_t>(concurrency, 1))});
    if (llama_)
      out.insert(out.end(), {"--verbosity", "4"});  // its settings stand in its log from this level on
    else
      out.push_back("--json");
    return out;
  }

  Result<Usage> Run(const Experiment& e, size_t arm, const RunFiles& files) const override {
    RIDGE_ASSIGN_OR_RETURN(const std::vector<std::string> command, Command(e, arm));
    const std::string said = llama_ ? files.log : files.out + ".part", version = VersionOf(command[0], said);
    AskedRun run;
    Usage usage;
    Status asked;
    bool ready = false, alive = false;
    for (int ports = 1;; ports++) {
      RIDGE_ASSIGN_OR_RETURN(const int port, FreePort());
      run = {.subject = std::string(name()), .version = version};
      std::vector<std::string> full = command;
      full.insert(full.end(), {"--host", "127.0.0.1", "--port", std::to_string(port)});
      const std::string base = fmt::format("http://127.0.0.1:{}", port);
      RIDGE_ASSIGN_OR_RETURN(Child child, Child::Start(full, said, files.log));
      const double own = OwnCpu();
      const double begin = MonotonicSeconds();
      for (ready = false; child.Running() && MonotonicSeconds() - begin < kReadySeconds;) {
        ready = GetText(base + (llama_ ? "/health" : "/ready"), "", 5).has_value();
        if (ready) break;
        usleep(20'000);
      }
      if (ready) {
        asked = AskServer(base, "", WorkloadOf(e, arm), run);
        if (llama_) AskVersion(base, run);
      }
      alive = child.Running();
      RIDGE_ASSIGN_OR_RETURN(usage, child.Stop());
      usage.cpu_s = usage.cpu_s.value_or(0) + OwnCpu() - own;
      // Somebody else may have taken the port in between; who answered there was no subject.
      if (alive || ports == kMostPorts || IsFree(port)) break;
    }
    if (!alive || !ready || !asked) {
      const std::string why = !ready && alive ? "it was not ready in time"
                              : !alive        ? "it ended by itself"
                                              : asked.error().Message();
      RIDGE_RETURN_IF_ERROR(AppendLine(files.log, "ridge lab: " + why));
      std::filesystem::remove(files.out + ".part");
      if (usage.status == 0) usage.status = 1;
      return usage;
    }
    usage.status = 0;  // a server that ends on SIGTERM may say so in its status
    RIDGE_ASSIGN_OR_RETURN(const std::string text, ReadText(said));
    if (llama_) {
      ReadLlamaSettings(text, run.settings);
    } else {
      const Json j = ParseJsonText<Json>(text);
      if (!j.is_object() || !j.contains("config")) return Fail(Code::kInvalidData, "ridge serve printed no document");
      run.settings = j["config"];
      std::filesystem::remove(said);
    }
    const auto model = run.settings.find(llama_ ? "model_path" : "model");
    if (model != run.settings.end() && model->is_string()) run.model_bytes = FileBytes(model->get<std::string>());
    RIDGE_RETURN_IF_ERROR(WriteAsked(run, files.out));
    return usage;
  }

  Result<RunOutput> Parse(std::string_view out, std::string_view) const override { return ParseAsked(out); }

 private:
  bool llama_;
};

// --- there already --------------------------------------------------------------------------------------------------------------

class Url : public Subject {
 public:
  std::string_view name() const override { return "url"; }

  Status Check(const Experiment& e) const override {
    if (e.url.empty() && e.flag != "url")
      return Fail(Code::kInvalidData, "subject url needs the server's address").Where("[experiment] url");
    if (!e.base.empty())
      return Fail(Code::kInvalidData, "a server that runs already takes no flags")
          .Where("[base]")
          .Found(e.base[0].first);
    return {};
  }

  Result<std::vector<std::string>> Command(const Experiment& e, size_t arm) const override {
    return std::vector<std::string>{e.flag == "url" ? ValueOf(e, arm) : e.url};
  }

  Result<Usage> Run(const Experiment& e, size_t arm, const RunFiles& files) const override {
    RIDGE_ASSIGN_OR_RETURN(const std::vector<std::string> command, Command(e, arm));
    std::string base = command[0];
    while (base.ends_with('/')) base.pop_back();
    if (base.ends_with("/v1")) base.resize(base.size() - 3);
    AskedRun run{.subject = "url", .version = "not told by the server"};
    run.settings["server"] = base;
    AskVersion(base, run);
    run.settings["server_version"] = run.version;
    RIDGE_RETURN_IF_ERROR(AppendLine(files.log, fmt::format("{}: {}", base, run.version)));
    const std::string model = e.flag == "model" ? ValueOf(e, arm) : e.url_model;
    run.settings["model"] = model.empty() ? "(the server's first)" : model;
    if (const Status asked = AskServer(base, model, WorkloadOf(e, arm), run); !asked) {
      RIDGE_RETURN_IF_ERROR(AppendLine(files.log, asked.error().Message()));
      return Usage{.status = 1};
    }
    RIDGE_RETURN_IF_ERROR(WriteAsked(run, files.out));
    return Usage{};
  }

  Result<RunOutput> Parse(std::string_view out, std::string_view) const override { return ParseAsked(out); }
};

}  // namespace

const Subject& ServeSubject() {
  static const Started subject(false);
  return subject;
}

const Subject& LlamaServerSubject() {
  static const Started subject(true);
  return subject;
}

const Subject& UrlSubject() {
  static const Url subject;
  return subject;
}

}  // namespace ridge::lab
