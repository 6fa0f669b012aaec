// ridge tune: the fastest settings of a model on this machine, under constraints, with proof.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/atomic_file.h"
#include "base/read_file.h"
#include "ceilings.h"
#include "commands.h"
#include "interrupt.h"
#include "lab/machine.h"
#include "model_options.h"
#include "profile.h"
#include "pull_progress.h"
#include "tune_search.h"

namespace ridge::app {
namespace {

struct Options {
  ModelOptions model;
  std::vector<std::string> formats, search;
  std::string memory, out;
  int64_t prompt = 256;
  std::optional<double> ttft_ms, gap_ms, quality;
};

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

Result<TuneConstraints> ConstraintsOf(const Options& o) {
  if (o.prompt < 32 || o.prompt > 65536)
    return Fail(Code::kUsage, "wrong value").Where("-p").Found(std::to_string(o.prompt)).Expected("32 to 65536");
  TuneConstraints c{
      .ttft_ms = o.ttft_ms, .gap_ms = o.gap_ms, .quality = o.quality, .prompt = o.prompt, .search = o.search};
  if (!o.memory.empty()) {
    RIDGE_ASSIGN_OR_RETURN(c.memory_bytes, ParseBytes("--max-memory", o.memory));
  }
  if (!o.formats.empty() && !o.quality)
    return Fail(Code::kUsage, "formats differ in quality: say how much may be lost")
        .Where("--formats")
        .Expected("--min-quality beside it, such as 0.95");
  for (const char* knob : {"cache", "flash", "format"}) {
    if (std::ranges::find(o.search, knob) == o.search.end()) continue;
    if (!o.quality)
      return Fail(Code::kUsage, fmt::format("{} changes answers: say how much may be lost", knob))
          .Where("--search")
          .Expected("--min-quality beside it, such as 0.95");
    if (knob == std::string("format") && o.formats.empty())
      return Fail(Code::kUsage, "one format only is there").Where("--search").Expected("--formats beside it");
  }
  if (!o.formats.empty() && !o.search.empty() && std::ranges::find(o.search, "format") == o.search.end())
    return Fail(Code::kUsage, "--search leaves the format out").Where("--formats").Expected("--search with format");
  return c;
}

// What was found, as settings of the chosen file. Those that are the commands' own defaults are left to them.
Status Fill(Tuning& tuning, Profile& profile) {
  const TuneSetting &s = tuning.chosen(), &first = tuning.first();
  profile.threads = s.threads;
  profile.chunk_tokens = s.chunk;
  if (s.k != first.k || s.v != first.v) {
    profile.k_type = backend::Name(s.k);
    profile.v_type = backend::Name(s.v);
  }
  if (s.flash != first.flash) profile.flash_attention = s.flash ? "on" : "off";
  if (s.speculation != engine::Speculation::kOff) profile.speculation = engine::Name(s.speculation);
  RIDGE_ASSIGN_OR_RETURN(const auto quality, tuning.Quality());
  if (quality) profile.same_top = quality->same_top.share;
  return {};
}

Status Tune(const Options& o, Output& out) {
  RIDGE_ASSIGN_OR_RETURN(const TuneConstraints constraints, ConstraintsOf(o));
  Interrupt interrupt(out.json);
  RIDGE_ASSIGN_OR_RETURN(service::RuntimeOptions options, o.model.Check({}));
  RIDGE_ASSIGN_OR_RETURN(options.path, ResolveOrPull(o.model.model()));
  RIDGE_ASSIGN_OR_RETURN(const std::shared_ptr<const Profile> taken, o.model.TakeProfile(options.path));
  o.model.Apply(taken.get(), options);
  std::vector<std::string> files = {options.path};
  for (const std::string& format : o.formats) {
    RIDGE_ASSIGN_OR_RETURN(files.emplace_back(), ResolveOrPull(format));
  }
  Profile profile{.fingerprint = lab::Fingerprint(lab::ReadMachine(), ""), .version = BuildName()};
  RIDGE_ASSIGN_OR_RETURN(profile.model, IdentityOf(options.path));
  const auto path_of = [&](const ModelIdentity& model) {
    return o.out.empty() ? Profile::StoredPath(model) : Result<std::string>(o.out);
  };
  // Before the search: a file that cannot be written must not cost its time.
  RIDGE_ASSIGN_OR_RETURN(profile.path, path_of(profile.model));
  RIDGE_RETURN_IF_ERROR(CreateProfile(profile.path, o.out.empty()));
  Tuning tuning(constraints, options, files);
  RIDGE_RETURN_IF_ERROR(tuning.Search());
  RIDGE_RETURN_IF_ERROR(Fill(tuning, profile));
  RIDGE_ASSIGN_OR_RETURN(profile.model, IdentityOf(tuning.chosen_file()));
  RIDGE_ASSIGN_OR_RETURN(profile.path, path_of(profile.model));
  Json evidence = tuning.Evidence();
  evidence["model"] = tuning.chosen_file();
  const Json document = ProfileJson(profile, std::move(evidence));
  if (!tuning.problems().empty()) {
    if (out.json) RIDGE_RETURN_IF_ERROR(out.Document(document));
    if (!out.json) RIDGE_RETURN_IF_ERROR(out.Write(tuning.Text()));
    return Fail(Code::kOutOfRange, "no settings meet the constraints")
        .Found(tuning.problems()[0])
        .Remedy("a smaller model or format: see ridge plan");
  }
  RIDGE_ASSIGN_OR_RETURN(AtomicFile file, CreateProfile(profile.path, o.out.empty()));
  RIDGE_RETURN_IF_ERROR(file.Write(document.dump(1) + "\n"));
  RIDGE_RETURN_IF_ERROR(file.Commit());
  const std::string what = files.size() > 1 ? " of " + tuning.chosen_file() : "";
  Note("profile" + what + ": " + profile.path +
       (o.out.empty() ? ": run, serve and bench pick it up" : ": for --profile"));
  return out.json ? out.Document(document) : out.Write(tuning.Text());
}

}  // namespace

void AddTune(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<Options>();
  CLI::App* app = AddSubcommand(
      root, "tune", "the fastest settings of a model here, under constraints, each proved",
      "ridge tune -m smollm2:135m\n  ridge run -m smollm2:135m -p \"Once\" -n 16\n"
      "  ridge tune -m model-q8_0.gguf --formats model-q4_k_m.gguf model-q5_k_m.gguf --min-quality 0.9\n\n"
      "Searches format, threads (by decode speed), prompt chunk (by prefill speed), cache types, flash attention and "
      "speculation, one after the other, in interleaved\n"
      "pairs; a value is chosen only where it is proved faster than what is there (5 % for all comparisons together, "
      "and by more than 2 %), or where it meets a limit\n"
      "that what is there does not. Without --min-quality the bits of answers stay as they are, and what would change "
      "them is not searched.");
  o->model.Add(app);
  app->add_option("--formats", o->formats, "the same model in other formats: files, or names as with -m");
  app->add_option("-p,--n-prompt", o->prompt, "tokens of the prompt that is timed, and in the KV when decoding")
      ->capture_default_str();
  app->add_option("--max-memory", o->memory, "refuse settings that take more, such as 2GiB");
  app->add_option("--max-ttft", o->ttft_ms,
                  "milliseconds that a prompt of -p tokens may take: an error where nothing meets it")
      ->check(CLI::PositiveNumber);
  app->add_option("--max-gap", o->gap_ms, "milliseconds that a token may take: the same")->check(CLI::PositiveNumber);
  app->add_option("--min-quality", o->quality,
                  "search formats, cache types and flash attention too, and refuse what is not proved (95 %) to find "
                  "the same next token likeliest in at least this share of positions as the largest file with f16 KV "
                  "does, on the lab's fixed prompts in English and Chinese and that file's own answers")
      ->check(CLI::Range(0.0, 1.0));
  std::vector<std::string> knobs(std::begin(kTuneKnobs), std::end(kTuneKnobs));
  app->add_option("--search", o->search,
                  "these alone, with commas between: " + fmt::format("{}", fmt::join(knobs, ", ")))
      ->delimiter(',')
      ->check(CLI::IsMember(knobs));
  app->add_option("-o,--output", o->out,
                  "write the profile with its evidence to this file, for --profile (default: store it where run, serve "
                  "and bench pick it up)");
  invocation.Bind(app, [o](Output& out) { return Tune(*o, out); });
}

}  // namespace ridge::app
