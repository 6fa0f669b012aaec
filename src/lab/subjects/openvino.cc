// OpenVINO GenAI through its Python package: one process that loads the model and answers all questions one by one.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "lab/subjects/asked.h"

namespace ridge::lab {
namespace {

using Json = nlohmann::ordered_json;

// Arguments: model, device, threads (0: its own), file of {"questions": [[id, text]], "max_tokens", "ignore_eos"}. Prints the lab's document.
constexpr const char* kScript = R"(
import json, sys, time
import openvino_genai as genai
model, device, threads, path = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
with open(path, encoding="utf-8") as file:
    work = json.load(file)
config = {"INFERENCE_NUM_THREADS": threads} if threads else {}
pipe = genai.LLMPipeline(model, device, **config)
settings = {"model": model, "device": device, "n_threads": threads or None}
requests, begin = [], time.monotonic()
for name, text in work["questions"]:
    g = genai.GenerationConfig()
    g.max_new_tokens, g.do_sample, g.ignore_eos = work["max_tokens"], False, work["ignore_eos"]
    g.apply_chat_template = work["chat"]
    sent = time.monotonic() - begin
    result = pipe.generate([text], g)
    done = time.monotonic() - begin
    p = result.perf_metrics
    n, ttft = p.get_num_generated_tokens(), p.get_ttft().mean
    reason = str(result.finish_reasons[0]).rsplit(".", 1)[-1].lower() if hasattr(result, "finish_reasons") else ""
    requests.append({"prompt_id": name, "prompt": text, "text": result.texts[0], "finish_reason": reason if reason in ("stop", "length") else "",
        "error": None, "sent_s": sent, "first_token_s": sent + ttft / 1e3, "last_token_s": done, "done_s": done,
        "prompt_tokens": p.get_num_input_tokens(), "output_tokens": n, "cached_tokens": None,
        "timings": {"load_ms": p.get_load_time(), "ttft_ms": ttft, "tpot_ms": p.get_tpot().mean,
                    "predicted_per_second": p.get_throughput().mean}})
print(json.dumps({"subject": "openvino", "version": "OpenVINO GenAI " + genai.__version__, "settings": settings, "model_bytes": None,
    "concurrency": 1, "max_tokens": work["max_tokens"], "duration_s": time.monotonic() - begin, "not_asked": None, "requests": requests},
    ensure_ascii=False, indent=1))
)";

class OpenVino : public Subject {
 public:
  std::string_view name() const override { return "openvino"; }

  Status Check(const Experiment& e) const override {
    if (e.flag == "m" || SettingOf(e, 0, {"m"})) return {};
    return Fail(Code::kInvalidData, "subject openvino needs a model")
        .Where("[base] m")
        .Expected("a folder of OpenVINO IR, or a GGUF file that it can read");
  }

  // program: the Python that has openvino_genai; python3 when not given.
  Result<std::vector<std::string>> Command(const Experiment& e, size_t arm) const override {
    const std::string program = ProgramOf(e, arm);
    for (const FlagValue& f : FlagsOf(e, arm)) {
      if (f.flag != "m" && f.flag != "t" && f.flag != "device")
        return Fail(Code::kInvalidArgument, "OpenVINO has no such setting here")
            .Where(f.flag)
            .Expected("m, t or device");
    }
    return std::vector<std::string>{program.empty() ? "python3" : program,
                                    "-c",
                                    kScript,
                                    SettingOf(e, arm, {"m"}).value_or(""),
                                    SettingOf(e, arm, {"device"}).value_or("CPU"),
                                    SettingOf(e, arm, {"t"}).value_or("0")};
  }

  Result<Usage> Run(const Experiment& e, size_t arm, const RunFiles& files) const override {
    RIDGE_ASSIGN_OR_RETURN(std::vector<std::string> command, Command(e, arm));
    const Workload work = WorkloadOf(e, arm);
    Json questions = Json::array();
    for (const Question& q : QuestionsOf(work)) questions.push_back({q.id, q.text});
    const std::string path = files.out + ".questions";
    std::ofstream(path) << Json({{"questions", questions},
                                 {"max_tokens", work.max_tokens},
                                 {"ignore_eos", work.ignore_eos},
                                 {"chat", work.chat}});
    command.push_back(path);
    auto usage = RunProcess(command, files.out, files.log);
    std::filesystem::remove(path);
    return usage;
  }

  Result<RunOutput> Parse(std::string_view out, std::string_view) const override { return ParseAsked(out); }
};

}  // namespace

const Subject& OpenVinoSubject() {
  static const OpenVino subject;
  return subject;
}

}  // namespace ridge::lab
