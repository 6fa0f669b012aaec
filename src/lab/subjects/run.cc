// ridge run: one process for each question, as at a prompt of the shell.
#include <fmt/format.h>

#include <filesystem>

#include "base/json_text.h"
#include "lab/subjects/asked.h"

namespace ridge::lab {
namespace {

using Json = nlohmann::ordered_json;

class RunCommand : public Subject {
 public:
  std::string_view name() const override { return "run"; }

  Result<std::vector<std::string>> Command(const Experiment& e, size_t arm) const override {
    std::vector<std::string> out = {ProgramOf(e, arm)};
    if (out[0].empty()) {
      RIDGE_ASSIGN_OR_RETURN(out[0], OwnProgram());
    }
    out.push_back("run");
    // A process of its own has no prefix cache to turn off.
    AddFlags(e, arm, false, {"p", "n", "d", "no-prefix-cache"}, out);
    AddTrace(e, arm, out);
    const Workload work = WorkloadOf(e, arm);
    out.insert(out.end(), {"-n", std::to_string(work.max_tokens), "--temp", "0", "--seed", "1", "--json"});
    if (work.chat) out.push_back("-st");
    if (work.ignore_eos) out.push_back("--ignore-eos");
    return out;
  }

  Result<Usage> Run(const Experiment& e, size_t arm, const RunFiles& files) const override {
    RIDGE_ASSIGN_OR_RETURN(const std::vector<std::string> command, Command(e, arm));
    AskedRun run{.subject = "run", .version = VersionOf(command[0], files.out + ".part")};
    RIDGE_ASSIGN_OR_RETURN(const Usage total,
                           AskProcesses(command, WorkloadOf(e, arm), files, /*log_output=*/false, run, FromLedger));
    RIDGE_RETURN_IF_ERROR(WriteAsked(run, files.out));
    return total;
  }

  Result<RunOutput> Parse(std::string_view out, std::string_view) const override { return ParseAsked(out); }

 private:
  static Result<AskedRequest> FromLedger(const Question& q, const std::string& out, const std::string&, AskedRun& run) {
    const Json j = ParseJsonText<Json>(out);
    if (!j.is_object() || !j.contains("config")) return Fail(Code::kInvalidData, "ridge run printed no document");
    run.settings = j["config"];
    if (j["config"].contains("model") && j["config"]["model"].is_string())
      run.model_bytes = FileBytes(j["config"]["model"].get<std::string>());
    const auto ms = [&](const char* key) { return j.contains(key) && j[key].is_number() ? j[key].get<double>() : 0.0; };
    const auto count = [&](const char* key) { return static_cast<int64_t>(ms(key)); };
    AskedRequest r{.prompt_id = q.id, .prompt = q.text};
    r.text = j.value("text", "");
    r.finish_reason = j.value("finish_reason", "");
    // The ledger's own times: the prompt is submitted once the model is loaded.
    r.first_token_s = ms("ttft_ms") / 1e3;
    r.last_token_s = r.done_s = (ms("ttft_ms") + ms("predicted_ms")) / 1e3;
    r.prompt_tokens = count("prompt_n"), r.output_tokens = count("predicted_n"), r.cached_tokens = count("cache_n");
    for (const auto& [key, value] : j.items()) {
      if (key != "text" && key != "ids" && key != "prompt_ids" && key != "plan" && key != "config" && key != "phases")
        r.timings[key] = value;
    }
    return r;
  }
};

}  // namespace

const Subject& RunSubject() {
  static const RunCommand subject;
  return subject;
}

}  // namespace ridge::lab
