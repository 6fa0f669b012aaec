// ridge kld: how far a model's predictions are from those that a reference recorded.
#include <fmt/format.h>

#include <array>
#include <memory>

#include "base/json_text.h"
#include "base/quantity.h"
#include "commands.h"
#include "interrupt.h"
#include "lab/quality/reference.h"
#include "lab/statistics.h"
#include "quality_subject.h"
#include "text_input.h"
#include "text_table.h"

namespace ridge::app {
namespace {

struct Options {
  ModelOptions model;
  TextInput input;
  std::string reference;
};

struct Point {
  const char* name;
  double q;
};
constexpr std::array<Point, 13> kPoints = {{{"min", 0},
                                            {"p0_1", 0.001},
                                            {"p1", 0.01},
                                            {"p5", 0.05},
                                            {"p10", 0.1},
                                            {"p25", 0.25},
                                            {"p50", 0.5},
                                            {"p75", 0.75},
                                            {"p90", 0.9},
                                            {"p95", 0.95},
                                            {"p99", 0.99},
                                            {"p99_9", 0.999},
                                            {"max", 1}}};

Json Percentiles(const std::vector<double>& values) {
  Json out = Json::object();
  for (const Point& p : kPoints) out[p.name] = lab::Quantile(values, p.q);
  return out;
}

Json ValueJson(const lab::KldValue& v) {
  return {{"n_tokens", v.tokens},
          {"mean_kld", v.mean},
          {"mean_kld_error", Optional(v.error)},
          {"kld_sampling_error", v.sampling_error},
          {"same_top", v.same_top},
          {"same_top_error", Optional(v.same_top_error)},
          {"mean_delta_p", v.delta_p_mean},
          {"rms_delta_p", v.delta_p_rms},
          {"perplexity", v.model.perplexity},
          {"perplexity_error", Optional(v.model.error)},
          {"reference_perplexity", v.reference.perplexity},
          {"reference_perplexity_error", Optional(v.reference.error)},
          {"ln_perplexity_ratio", v.log_ratio},
          {"ln_perplexity_ratio_error", Optional(v.log_ratio_error)}};
}

Status CheckSame(const lab::Reference& reference, const QualitySubject& subject, const Options& o) {
  const lab::ReferenceAbout& about = reference.about();
  const auto refuse = [&](const char* what, std::string found, std::string expected) {
    return Fail(Code::kInvalidArgument, what).Where(o.reference).Found(std::move(found)).Expected(std::move(expected));
  };
  if (subject.scoring.vocab != about.vocab || subject.VocabularyHash() != about.vocab_hash) {
    return refuse("the model has another vocabulary than the reference",
                  fmt::format("{}, hash {}", Count(subject.scoring.vocab, "token"), subject.VocabularyHash()),
                  fmt::format("{}, hash {}, of {}", Count(about.vocab, "token"), about.vocab_hash, about.model));
  }
  if (subject.runtime->context_tokens() != about.windows.window_tokens) {
    return refuse("-c differs from the window of the reference", std::to_string(subject.runtime->context_tokens()),
                  std::to_string(about.windows.window_tokens));
  }
  if (!o.input.given()) return {};
  RIDGE_ASSIGN_OR_RETURN(const std::string text, o.input.Read());
  RIDGE_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, subject.Encode(text));
  if (ids == about.tokens) return {};
  return refuse("the text differs from that of the reference",
                fmt::format("{}, hash {}", Count(ids.size(), "token"), lab::TokensHash(ids)),
                fmt::format("{}, hash {}", Count(about.tokens.size(), "token"), lab::TokensHash(about.tokens)));
}

std::string Text(const lab::Kld& k, const lab::ReferenceAbout& about) {
  std::string text = fmt::format("reference  {}: {} scored, windows of {} ({})\n", about.model,
                                 Count(k.all.tokens, "token"), about.windows.window_tokens, ScoredName(about.windows));
  TextTable table({{"script"},
                   {"tokens", true},
                   {"mean KLD", true},
                   {"same top", true},
                   {"RMS Δp", true},
                   {"perplexity", true},
                   {"reference's", true},
                   {"ln ratio", true}});
  const auto row = [&](std::string name, const lab::KldValue& v) {
    std::optional<double> top_error;
    if (v.same_top_error) top_error = *v.same_top_error * 100;
    table.Row({std::move(name), std::to_string(v.tokens), PlusMinus(v.mean, v.error, 6),
               PlusMinus(v.same_top * 100, top_error, 2) + " %", fmt::format("{:.3f} %", v.delta_p_rms * 100),
               fmt::format("{:.4f}", v.model.perplexity), fmt::format("{:.4f}", v.reference.perplexity),
               PlusMinus(v.log_ratio, v.log_ratio_error, 5)});
  };
  row("all", k.all);
  if (k.scripts.size() > 1) {
    for (const lab::ScriptKld& s : k.scripts) row(std::string(lab::Name(s.script)), s.value);
  }
  text += table.Text() + "\n";
  TextTable points({{"percentile"}, {"KLD", true}, {"Δp %", true}});
  for (const Point& p : kPoints)
    points.Row({p.name, fmt::format("{:.6f}", lab::Quantile(k.kld, p.q)),
                fmt::format("{:.3f}", 100 * lab::Quantile(k.delta_p, p.q))});
  text += points.Text();
  text += fmt::format("\nthe sampled tail makes the mean uncertain by {:.2g}; {:.1f} s, {:.0f} tokens/s\n",
                      k.all.sampling_error, k.seconds, static_cast<double>(k.computed_tokens) / k.seconds);
  return text;
}

Status Measure(const Options& o, Output& out) {
  Interrupt interrupt(out.json);
  RIDGE_ASSIGN_OR_RETURN(const lab::Reference reference, lab::Reference::Open(o.reference));
  RIDGE_ASSIGN_OR_RETURN(QualitySubject subject, LoadQualitySubject(o.model, reference.about().windows.window_tokens));
  RIDGE_RETURN_IF_ERROR(CheckSame(reference, subject, o));
  const lab::ReferenceAbout& about = reference.about();
  const auto measured =
      lab::MeasureKld(subject.scoring, reference, subject.ScriptsOf(about.tokens), *subject.pool, QualityProgress());
  EndQualityProgress();
  RIDGE_ASSIGN_OR_RETURN(const lab::Kld k, measured);
  if (!out.json) return out.Write(Text(k, about));
  Json document = ValueJson(k.all);
  document["kld"] = Percentiles(k.kld);
  document["delta_p"] = Percentiles(k.delta_p);
  Json scripts = Json::object();
  for (const lab::ScriptKld& s : k.scripts) scripts[std::string(lab::Name(s.script))] = ValueJson(s.value);
  document["by_script"] = std::move(scripts);
  document["computed_tokens"] = k.computed_tokens;
  document["total_ms"] = k.seconds * 1e3;
  document["tokens_per_second"] = static_cast<double>(k.computed_tokens) / k.seconds;
  document["reference"] = {{"path", o.reference},
                           {"model", about.model},
                           {"window_tokens", about.windows.window_tokens},
                           {"scored", ScoredName(about.windows)},
                           {"stride_tokens", about.windows.stride_tokens},
                           {"top", about.shape.top},
                           {"tail_samples", about.shape.samples},
                           {"size_bytes", reference.size_bytes()},
                           {"config", ParseJsonText<Json>(about.config)}};
  document["config"] = ConfigJson(*subject.runtime);
  return out.Document(document);
}

}  // namespace

void AddKld(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<Options>();
  CLI::App* app = AddSubcommand(root, "kld", "how far a model's predictions are from those of a reference",
                                "ridge kld -m model-q4.gguf --reference model-f16.ref");
  o->model.Add(app);
  app->get_option("--ctx-size")->description("tokens of a window: that of the reference, where it is not given");
  o->input.AddTo(app);
  app->add_option(
         "--reference", o->reference,
         "what `ridge perplexity --save-reference` wrote; its text is used, and -f or -p, where given, must be it")
      ->required();
  invocation.Bind(app, [o](Output& out) { return Measure(*o, out); });
}

}  // namespace ridge::app
