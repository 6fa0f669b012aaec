// ridge tune: the fastest settings of a model on this machine, under constraints, with proof.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "base/atomic_file.h"
#include "base/read_file.h"
#include "base/topology.h"
#include "ceilings.h"
#include "commands.h"
#include "diagnose_arm.h"
#include "interrupt.h"
#include "lab/machine.h"
#include "lab/planning/tune.h"
#include "lab/quiet.h"
#include "lab/statistics.h"
#include "model_options.h"
#include "profile.h"
#include "pull_progress.h"
#include "text_table.h"

namespace ridge::app {
namespace {

struct Options {
  ModelOptions model;
  std::string memory, out;
  int64_t prompt = 256;
  std::optional<double> ttft_ms, gap_ms;
};

struct Setting {
  int threads = 1;
  int64_t chunk = 512;
};

struct Searched {
  std::string knob, phase;
  lab::Elimination elimination;
  std::vector<std::string> refused;  // of each value, why it was not measured; empty: it was
};

class Tuning {
 public:
  Tuning(const Options& o, service::RuntimeOptions options) : o_(o), options_(std::move(options)) {}
  Status Search();
  Json Evidence() const;
  std::string Text() const;
  const Setting& chosen() const { return chosen_; }
  bool meets() const { return problems_.empty(); }
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  Result<std::unique_ptr<Arm>> Load(const Setting& s) const;
  Status Knob(const std::string& name, const std::string& phase, const std::vector<int64_t>& values,
              int64_t Setting::* chunk);
  Status Measure();
  Status CheckMemory(const service::Runtime& runtime) const;

  const Options& o_;
  service::RuntimeOptions options_;
  Setting first_, chosen_;
  std::vector<Searched> searched_;
  double step_s_ = 0, token_s_ = 0, slowest_step_s_ = 0;
  std::vector<std::string> problems_;
  lab::Verdict quiet_;
};

Result<std::unique_ptr<Arm>> Tuning::Load(const Setting& s) const {
  service::RuntimeOptions o = options_;
  o.threads = s.threads;
  o.chunk_tokens = s.chunk;
  o.batch_tokens = std::max<int64_t>(o.batch_tokens.value_or(2048), s.chunk);
  RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<Arm> arm, Arm::Load(o, {.depth = o_.prompt, .prompt = o_.prompt}));
  RIDGE_RETURN_IF_ERROR(CheckMemory(arm->runtime()));
  return arm;
}

Status Tuning::CheckMemory(const service::Runtime& runtime) const {
  if (o_.memory.empty()) return {};
  RIDGE_ASSIGN_OR_RETURN(const uint64_t most, ParseBytes("--max-memory", o_.memory));
  if (runtime.memory().peak_bytes <= most) return {};
  return Fail(Code::kResourceExhausted, "more memory than --max-memory")
      .Found(fmt::format("{:.2f} GB", static_cast<double>(runtime.memory().peak_bytes) / 1e9));
}

// One setting at a time, the others as found so far.
Status Tuning::Knob(const std::string& name, const std::string& phase, const std::vector<int64_t>& values,
                    int64_t Setting::* chunk) {
  const auto with = [&](int64_t value) {
    Setting s = chosen_;
    if (chunk != nullptr)
      s.*chunk = value;
    else
      s.threads = static_cast<int>(value);
    return s;
  };
  const int64_t now = chunk != nullptr ? chosen_.*chunk : chosen_.threads;
  std::vector<std::string> names;
  for (int64_t v : values) names.push_back(std::to_string(v));
  const size_t present = static_cast<size_t>(std::ranges::find(values, now) - values.begin());
  Searched s{name, phase, lab::Elimination(names, present), std::vector<std::string>(values.size())};
  RIDGE_ASSIGN_OR_RETURN(const std::unique_ptr<Arm> base, Load(chosen_));
  std::map<size_t, std::unique_ptr<Arm>> arms;
  while (const auto turn = s.elimination.Next()) {
    if (!arms.contains(*turn)) {
      auto arm = Load(with(values[*turn]));
      if (!arm) {
        s.refused[*turn] = arm.error().Message();
        s.elimination.Add(*turn, {});
        continue;
      }
      arms[*turn] = std::move(*arm);
    }
    RIDGE_ASSIGN_OR_RETURN(const Pairs pairs, Interleave(*base, *arms[*turn], 4));
    s.elimination.Add(*turn, phase == "prefill" ? pairs.prefill : pairs.decode);
    if (s.elimination.entries()[*turn].state != lab::Elimination::State::kOpen) arms.erase(*turn);
  }
  chosen_ = with(values[s.elimination.winner()]);
  searched_.push_back(std::move(s));
  return {};
}

Status Tuning::Measure() {
  RIDGE_ASSIGN_OR_RETURN(const std::unique_ptr<Arm> arm, Load(chosen_));
  std::vector<double> steps, tokens;
  for (int i = 0; i < 8; i++) {
    RIDGE_ASSIGN_OR_RETURN(const double step_s, arm->StepSeconds());
    RIDGE_ASSIGN_OR_RETURN(const double token_s, arm->PromptSeconds());
    steps.push_back(step_s);
    tokens.push_back(token_s);
  }
  step_s_ = lab::Median(steps);
  token_s_ = lab::Median(tokens);
  slowest_step_s_ = *std::ranges::max_element(steps);
  const double ttft_ms = 1e3 * (token_s_ * static_cast<double>(o_.prompt));
  if (o_.ttft_ms && ttft_ms > *o_.ttft_ms)
    problems_.push_back(
        fmt::format("the first token of {} takes {:.0f} ms, --max-ttft {:.0f}", o_.prompt, ttft_ms, *o_.ttft_ms));
  if (o_.gap_ms && 1e3 * slowest_step_s_ > *o_.gap_ms)
    problems_.push_back(fmt::format("a token takes {:.1f} ms, --max-gap {:.1f}", 1e3 * slowest_step_s_, *o_.gap_ms));
  return {};
}

Status Tuning::Search() {
  const lab::CpuTimes before = lab::ReadCpuTimes();
  RIDGE_ASSIGN_OR_RETURN(const auto planned, [&] {
    service::RuntimeOptions o = options_;
    o.dry_run = true;
    return service::Runtime::Load(o);
  }());
  first_ = {planned->threads().threads, planned->chunk_tokens()};
  options_.threads = first_.threads;
  chosen_ = first_;
  std::set<int64_t> threads = {first_.threads}, chunks = {first_.chunk};
  const int64_t cpus = std::max<int64_t>(1, static_cast<int64_t>(ReadCpuLimits().allowed.size()));
  for (int64_t n = 1; n < cpus; n = n < 8 ? n + 1 : 2 * n) threads.insert(n);
  threads.insert(cpus);
  for (int64_t n : {32, 64, 128, 256, 512}) {
    if (n < 2 * o_.prompt) chunks.insert(n);
  }
  RIDGE_RETURN_IF_ERROR(Knob("n_threads", "decode", {threads.begin(), threads.end()}, nullptr));
  RIDGE_RETURN_IF_ERROR(Knob("n_ubatch", "prefill", {chunks.begin(), chunks.end()}, &Setting::chunk));
  RIDGE_RETURN_IF_ERROR(Measure());
  quiet_ = lab::Judge(lab::Between(before, lab::ReadCpuTimes()));
  return {};
}

constexpr std::pair<const char*, const char*> kNotSearched[] = {
    {"speculation", "what it gains depends on the text: --spec auto measures that as it runs"},
    {"cache types, flash attention", "they change the bits of answers: ridge lab compares them with their quality"},
    {"format", "that is another file: give each to ridge tune, and hold them against the best with ridge kld"},
};

Json Tuning::Evidence() const {
  Json knobs = Json::array(), left = Json::array();
  for (const Searched& s : searched_) {
    Json values = Json::array();
    const auto& entries = s.elimination.entries();
    for (size_t i = 0; i < entries.size(); i++) {
      const auto& e = entries[i];
      values.push_back({{"value", e.value},
                        {"state", i == s.elimination.present() ? "present" : std::string(lab::Name(e.state))},
                        {"ratio", e.ratios.empty() ? Json(nullptr) : Json(lab::Median(e.ratios))},
                        {"ratio_low", e.interval ? Json(e.interval->low) : Json(nullptr)},
                        {"ratio_high", e.interval ? Json(e.interval->high) : Json(nullptr)},
                        {"confidence", e.interval ? Json(e.interval->confidence) : Json(nullptr)},
                        {"pairs", e.ratios},
                        {"refused", s.refused[i].empty() ? Json(nullptr) : Json(s.refused[i])}});
    }
    knobs.push_back({{"setting", s.knob},
                     {"phase", s.phase},
                     {"present", entries[s.elimination.present()].value},
                     {"chosen", entries[s.elimination.winner()].value},
                     {"values", std::move(values)}});
  }
  for (const auto& [what, why] : kNotSearched) left.push_back({{"setting", what}, {"reason", why}});
  return {{"searched", std::move(knobs)},
          {"not_searched", std::move(left)},
          {"n_prompt", o_.prompt},
          {"prefill_ts", 1 / token_s_},
          {"decode_ts", 1 / step_s_},
          {"ttft_ms", 1e3 * token_s_ * static_cast<double>(o_.prompt)},
          {"slowest_gap_ms", 1e3 * slowest_step_s_},
          {"quiet", quiet_.quiet},
          {"quiet_reasons", quiet_.reasons},
          {"problems", problems_}};
}

std::string Tuning::Text() const {
  std::string text;
  for (const Searched& s : searched_) {
    text += fmt::format("{} ({}):\n", s.knob, s.phase);
    TextTable table({{"value", true}, {"time with / without", true}, {"interval", true}, {"pairs", true}, {"verdict"}});
    const auto& entries = s.elimination.entries();
    for (size_t i = 0; i < entries.size(); i++) {
      const auto& e = entries[i];
      table.Row({e.value, e.ratios.empty() ? "-" : fmt::format("{:.3f}", lab::Median(e.ratios)),
                 e.interval ? fmt::format("{:.3f} to {:.3f}", e.interval->low, e.interval->high) : "-",
                 std::to_string(e.ratios.size()),
                 i == s.elimination.present() ? "present"
                 : !s.refused[i].empty()      ? "refused: " + s.refused[i]
                                              : std::string(lab::Name(e.state))});
    }
    text += table.Text() + "\n";
  }
  text += fmt::format(
      "chosen: -t {} -ub {}{}: prefill {:.1f}, decode {:.1f} tokens/s\n", chosen_.threads, chosen_.chunk,
      chosen_.threads == first_.threads && chosen_.chunk == first_.chunk ? " (as it was: nothing was proved faster)"
                                                                         : "",
      1 / token_s_, 1 / step_s_);
  for (const std::string& r : quiet_.reasons) text += "the machine was not quiet: " + r + "\n";
  for (const auto& [what, why] : kNotSearched) text += fmt::format("not searched: {}: {}\n", what, why);
  return text;
}

Result<AtomicFile> CreateProfile(const std::string& path, bool stored) {
  std::error_code error;
  if (stored) std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error)
    return Fail(Code::kPermissionDenied, "cannot make the folder of stored profiles")
        .Where(path)
        .Found(error.message())
        .Remedy("write the profile elsewhere with -o");
  RIDGE_RETURN_IF_ERROR(CheckReplaces(path, "profile of ridge tune", {"{\n \"kind\": \"ridge profile\","}));
  return AtomicFile::Create(path);
}

Status Tune(const Options& o, Output& out) {
  if (o.prompt < 32 || o.prompt > 65536)
    return Fail(Code::kUsage, "wrong value").Where("-p").Found(std::to_string(o.prompt)).Expected("32 to 65536");
  if (!o.memory.empty()) RIDGE_RETURN_IF_ERROR(ParseBytes("--max-memory", o.memory));
  Interrupt interrupt(out.json);
  RIDGE_ASSIGN_OR_RETURN(service::RuntimeOptions options, o.model.Check({}));
  RIDGE_ASSIGN_OR_RETURN(options.path, ResolveOrPull(o.model.model()));
  RIDGE_ASSIGN_OR_RETURN(const std::shared_ptr<const Profile> taken, o.model.TakeProfile(options.path));
  o.model.Apply(taken.get(), options);
  Profile profile{.fingerprint = lab::Fingerprint(lab::ReadMachine(), ""), .version = BuildName()};
  RIDGE_ASSIGN_OR_RETURN(profile.model, IdentityOf(options.path));
  // Before the search: a file that cannot be written must not cost its time.
  RIDGE_ASSIGN_OR_RETURN(profile.path, o.out.empty() ? Profile::StoredPath(profile.model) : Result<std::string>(o.out));
  RIDGE_ASSIGN_OR_RETURN(AtomicFile file, CreateProfile(profile.path, o.out.empty()));
  Tuning tuning(o, options);
  RIDGE_RETURN_IF_ERROR(tuning.Search());
  profile.threads = tuning.chosen().threads;
  profile.chunk_tokens = tuning.chosen().chunk;
  const Json document = ProfileJson(profile, tuning.Evidence());
  if (!tuning.meets()) {
    if (out.json) RIDGE_RETURN_IF_ERROR(out.Document(document));
    if (!out.json) RIDGE_RETURN_IF_ERROR(out.Write(tuning.Text()));
    return Fail(Code::kOutOfRange, "no settings meet the constraints")
        .Found(tuning.problems()[0])
        .Remedy("a smaller model or format: see ridge plan");
  }
  RIDGE_RETURN_IF_ERROR(file.Write(document.dump(1) + "\n"));
  RIDGE_RETURN_IF_ERROR(file.Commit());
  Note("profile: " + profile.path + (o.out.empty() ? ": run, serve and bench pick it up" : ": for --profile"));
  return out.json ? out.Document(document) : out.Write(tuning.Text());
}

}  // namespace

void AddTune(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<Options>();
  CLI::App* app = AddSubcommand(root, "tune", "the fastest settings of a model here, under constraints, each proved",
                                "ridge tune -m smollm2:135m\n  ridge run -m smollm2:135m -p \"Once\" -n 16\n\n"
                                "Searches threads (by decode speed) and the prompt chunk (by prefill speed), one after "
                                "the other, in interleaved pairs; a value is chosen only where\n"
                                "it is proved faster than what is there (5 % for all comparisons together, and by more "
                                "than 2 %). The bits of answers stay as they are.");
  o->model.Add(app);
  app->add_option("-p,--n-prompt", o->prompt, "tokens of the prompt that is timed, and in the KV when decoding")
      ->capture_default_str();
  app->add_option("--max-memory", o->memory, "refuse settings that take more, such as 2GiB");
  app->add_option("--max-ttft", o->ttft_ms,
                  "milliseconds that a prompt of -p tokens may take: an error where nothing meets it")
      ->check(CLI::PositiveNumber);
  app->add_option("--max-gap", o->gap_ms, "milliseconds that a token may take: the same")->check(CLI::PositiveNumber);
  app->add_option("-o,--output", o->out,
                  "write the profile with its evidence to this file, for --profile (default: store it where run, serve "
                  "and bench pick it up)");
  invocation.Bind(app, [o](Output& out) { return Tune(*o, out); });
}

}  // namespace ridge::app
