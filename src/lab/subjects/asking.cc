// Benchmarks answer nothing: the server beside them is asked in their place, with the arm's settings, for the quality alone.
#include <algorithm>
#include <filesystem>

#include "lab/subjects/asked.h"

namespace ridge::lab {
namespace {

namespace fs = std::filesystem;

// Flags that shape what a benchmark measures and mean nothing to a server.
bool IsShape(const std::string& flag) {
  static constexpr std::string_view kShapes[] = {"p",          "n-prompt",      "n",        "n-gen", "pg",      "d",
                                                 "n-depth",    "npp",           "ntg",      "npl",   "pps",     "mmp",
                                                 "sequential", "with-sampling", "roofline", "c",     "ctx-size"};
  return std::ranges::find(kShapes, flag) != std::end(kShapes);
}

class Asking : public Subject {
 public:
  explicit Asking(bool llama) : llama_(llama) {}
  std::string_view name() const override { return inner().name(); }

  Result<std::vector<std::string>> Command(const Experiment& e, size_t arm) const override {
    return inner().Command(Beside(e, arm), arm);
  }

  // A run that fails leaves its reason, and the experiment goes on: the speeds are there.
  Result<Usage> Run(const Experiment& e, size_t arm, const RunFiles& files) const override {
    const Experiment beside = Beside(e, arm);
    std::string why;
    if (llama_ && !fs::exists(beside.program)) {
      why = "there is no " + beside.program;
    } else {
      const auto usage = inner().Run(beside, arm, files);
      if (usage && usage->status == 0) return *usage;
      const std::string log = ReadText(files.log).value_or("");
      why = usage ? "the server failed" + (log.empty() ? "" : ": " + log.substr(log.rfind('\n', log.size() - 2) + 1))
                  : usage.error().Message();
      while (why.ends_with('\n')) why.pop_back();
    }
    RIDGE_RETURN_IF_ERROR(AppendLine(files.log, "ridge lab: not asked: " + why));
    AskedRun none{.subject = std::string(name())};
    none.not_asked = why;
    RIDGE_RETURN_IF_ERROR(WriteAsked(none, files.out));
    return Usage{.cpu_s = 0, .max_rss_mb = 0};
  }

  Result<RunOutput> Parse(std::string_view out, std::string_view) const override {
    RIDGE_ASSIGN_OR_RETURN(RunOutput output, ParseAsked(out));
    output.tests.clear();  // other work than the experiment's
    return output;
  }

 private:
  const Subject& inner() const { return llama_ ? LlamaServerSubject() : ServeSubject(); }

  Experiment Beside(const Experiment& e, size_t arm) const {
    Experiment out = e;
    out.subject = std::string(inner().name());
    std::erase_if(out.base, [](const auto& flag) { return IsShape(flag.first); });
    if (!IsShape(e.flag) && e.flag != "program") out.base.emplace_back(e.flag, ValueOf(e, arm));
    out.flag = "max_tokens";  // of [work], in every arm
    for (std::string& v : out.values) v = std::to_string(e.work.value_or(Workload{}).max_tokens);
    // One stream, one place: a server that batches nothing gives what the benchmark's settings give.
    std::erase_if(out.base, [](const auto& flag) { return flag.first == "power-mode"; });
    if (out.work) out.work->concurrency = 1;
    out.base.emplace_back("c", "2048");
    if (llama_)
      out.program = (fs::path(ProgramOf(e, arm)).parent_path() / "llama-server").string();
    else
      out.base.emplace_back("spec", "off"), out.program = ProgramOf(e, arm);
    return out;
  }

  bool llama_;
};

}  // namespace

const Subject& AskingSubject(bool llama) {
  static const Asking own(false), other(true);
  return llama ? other : own;
}

}  // namespace ridge::lab
