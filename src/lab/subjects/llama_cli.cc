// llama-cli: one process for each question. Its text is what stands between the prompt, which it repeats, and its line of speeds.
#include <fmt/format.h>

#include <filesystem>

#include "lab/monitor/recorded.h"
#include "lab/subjects/asked.h"
#include "lab/subjects/llama_log.h"

namespace ridge::lab {
namespace {

using Json = nlohmann::ordered_json;

std::string_view Trimmed(std::string_view s) {
  const size_t begin = s.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return "";
  return s.substr(begin, s.find_last_not_of(" \t\r\n") - begin + 1);
}

// "[ Prompt: 123.4 t/s | Generation: 56.7 t/s ]"
std::optional<double> Speed(std::string_view text, std::string_view what) {
  const size_t at = text.rfind(what);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = Trimmed(text.substr(at + what.size(), 40));
  return ToNumber(rest.substr(0, rest.find(' ')));
}

// "prompt eval time = 12.34 ms / 37 tokens (...)", "eval time = 84.79 ms / 5 tokens", of older ones "/ 4 runs": the first token is none of them.
struct Eval {
  double ms = 0, counted = 0, tokens = 0;  // speeds are `counted` over the time
};
std::optional<Eval> EvalTime(std::string_view log, std::string_view what) {
  for (const std::string_view line : Lines(log)) {
    const size_t at = line.find(what);
    if (at == std::string_view::npos || (what == "eval time" && at >= 7 && line.substr(at - 7, 7) == "prompt "))
      continue;
    const size_t equals = line.find('=', at), slash = line.find('/', at);
    if (equals == std::string_view::npos || slash == std::string_view::npos) continue;
    const std::vector<std::string_view> left = Words(line.substr(equals + 1)), right = Words(line.substr(slash + 1));
    if (left.empty() || right.empty()) continue;
    const auto ms = ToNumber(left[0]), tokens = ToNumber(right[0]);
    const bool runs = right.size() > 1 && right[1].starts_with("run");
    if (ms && tokens) return Eval{*ms, *tokens, *tokens + (runs ? 1 : 0)};
  }
  return {};
}

class LlamaCli : public Subject {
 public:
  std::string_view name() const override { return "llama-cli"; }

  Status Check(const Experiment& e) const override {
    if (e.program.empty() && e.flag != "program" && e.flag != "subject")
      return Fail(Code::kInvalidData, "subject llama-cli needs its program").Where("[experiment] program");
    return {};
  }

  Result<std::vector<std::string>> Command(const Experiment& e, size_t arm) const override {
    std::vector<std::string> out = {ProgramOf(e, arm)};
    // A process of its own has no prompt cache to turn off.
    AddFlags(e, arm, true, {"p", "n", "d", "no-prefix-cache", "spec"}, out);
    const Workload work = WorkloadOf(e, arm);
    if (!work.chat)
      return Fail(Code::kInvalidArgument, "llama-cli only chats").Where("[work] chat").Remedy("take llama-server");
    out.insert(out.end(), {"-st", "--simple-io", "--verbosity", "4", "-n", std::to_string(work.max_tokens), "--temp",
                           "0", "-s", "1"});
    if (work.ignore_eos) out.push_back("--ignore-eos");
    return out;
  }

  Result<Usage> Run(const Experiment& e, size_t arm, const RunFiles& files) const override {
    RIDGE_ASSIGN_OR_RETURN(const std::vector<std::string> command, Command(e, arm));
    AskedRun run{.subject = "llama-cli", .version = VersionOf(command[0], files.out + ".part")};
    RIDGE_ASSIGN_OR_RETURN(const Usage total,
                           AskProcesses(command, WorkloadOf(e, arm), files, /*log_output=*/true, run, LlamaCliAnswer));
    if (const auto model = SettingOf(e, arm, {"m", "model"}))
      run.model_bytes = FileBytes(*model), run.settings["model"] = *model;
    RIDGE_RETURN_IF_ERROR(WriteAsked(run, files.out));
    return total;
  }

  Result<RunOutput> Parse(std::string_view out, std::string_view) const override { return ParseAsked(out); }

 private:
  static Result<AskedRequest> LlamaCliAnswer(const Question& q, const std::string& out, const std::string& log,
                                             AskedRun& run) {
    const std::string all = out + "\n" + log;
    ReadLlamaSettings(all, run.settings);
    AskedRequest r{.prompt_id = q.id, .prompt = q.text};
    std::string_view text = out;
    if (const size_t at = text.find(q.text); at != std::string_view::npos) text.remove_prefix(at + q.text.size());
    const size_t speeds = text.rfind("[ Prompt:");
    const std::string_view said = text.substr(0, std::min(speeds, text.find("\nllama_perf")));
    r.text = std::string(Trimmed(said));
    if (r.text.ends_with("[end of text]")) r.finish_reason = "stop", r.text.resize(r.text.size() - 13);
    r.timings = Json::object();
    if (const auto prompt = EvalTime(all, "prompt eval time"), eval = EvalTime(all, "eval time"); prompt && eval) {
      r.prompt_tokens = static_cast<int64_t>(prompt->tokens);
      r.output_tokens = static_cast<int64_t>(eval->tokens);
      r.first_token_s = prompt->ms / 1e3;
      r.last_token_s = r.done_s = (prompt->ms + eval->ms) / 1e3;
      if (prompt->ms > 0) r.timings["prompt_per_second"] = prompt->tokens / prompt->ms * 1e3;
      if (eval->ms > 0) r.timings["predicted_per_second"] = eval->counted / eval->ms * 1e3;
    } else {
      if (const auto v = Speed(text, "Prompt:")) r.timings["prompt_per_second"] = *v;
      if (const auto v = Speed(text, "Generation:")) r.timings["predicted_per_second"] = *v;
      r.done_s = -1;
    }
    return r;
  }
};

}  // namespace

const Subject& LlamaCliSubject() {
  static const LlamaCli subject;
  return subject;
}

}  // namespace ridge::lab
