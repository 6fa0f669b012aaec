// ridge perplexity: how well a model predicts a text, window by window as llama-perplexity does it, and the reference for ridge kld.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "base/quantity.h"
#include "commands.h"
#include "interrupt.h"
#include "lab/quality/reference.h"
#include "quality_subject.h"
#include "text_input.h"
#include "text_table.h"

namespace ridge::app {
namespace {

struct Options {
  ModelOptions model;
  TextInput input;
  bool whole = false;
  int64_t stride = 0, chunks = 0;
  std::string reference;
  std::optional<int64_t> top, samples;
};

Result<lab::ReferenceShape> ShapeOf(const Options& o, int64_t vocab) {
  lab::ReferenceShape shape = lab::DefaultShape(vocab);
  if (o.top) shape.top = *o.top;
  if (o.samples) shape.samples = *o.samples;
  const auto wrong = [](const char* flag, int64_t value, int64_t low, int64_t high) {
    return Fail(Code::kOutOfRange, "setting is out of range")
        .Where(flag)
        .Found(std::to_string(value))
        .Expected(fmt::format("{} to {}", low, high));
  };
  if (shape.top < 1 || shape.top > vocab) return wrong("--top", shape.top, 1, vocab);
  if (shape.samples < 0 || shape.samples > vocab) return wrong("--tail-samples", shape.samples, 0, vocab);
  return shape;
}

Json ReferenceJson(const Options& o, uint64_t bytes, const lab::ReferenceShape& shape, int64_t vocab, int64_t rows) {
  const uint64_t full = lab::FullLogitsBytes(vocab, rows);
  return {{"path", o.reference},       {"size_bytes", bytes},
          {"full_logits_bytes", full}, {"share", static_cast<double>(bytes) / static_cast<double>(full)},
          {"top", shape.top},          {"tail_samples", shape.samples}};
}

std::string Text(const lab::Perplexity& p, const Json& document) {
  std::string text = fmt::format("perplexity {}\n", PlusMinus(p.all.perplexity, p.all.error, 4));
  text += fmt::format("{} of {} tokens scored in {} of {} ({})", p.all.tokens, document["n_tokens"].get<int64_t>(),
                      Count(p.running.size(), "window"), document["window_tokens"].get<int64_t>(),
                      document["scored"].get<std::string>());
  if (const int64_t rest = document["tokens_left_out"]; rest > 0)
    text += fmt::format("; the last {} fill no window and are left out", rest);
  text += fmt::format("\n{:.1f} s, {:.0f} tokens/s\n", p.seconds, document["tokens_per_second"].get<double>());
  if (p.scripts.size() > 1) {
    TextTable table({{"script"}, {"tokens", true}, {"perplexity", true}});
    for (const lab::ScriptPerplexity& s : p.scripts)
      table.Row({std::string(lab::Name(s.script)), std::to_string(s.value.tokens),
                 PlusMinus(s.value.perplexity, s.value.error, 4)});
    text += "\n" + table.Text();
  }
  if (const Json& r = document["reference"]; !r.is_null())
    text += fmt::format("\nreference {}: {}, {:.2f} % of the 16-bit scores\n", r["path"].get<std::string>(),
                        Count(r["size_bytes"].get<uint64_t>(), "byte"), 100 * r["share"].get<double>());
  return text;
}

Status Measure(const Options& o, Output& out) {
  Interrupt interrupt(out.json);
  if (!o.input.given()) return Fail(Code::kUsage, "give the text: -f FILE or -p TEXT");
  if (o.chunks < 0)
    return Fail(Code::kUsage, "wrong value")
        .Where("--chunks")
        .Found(std::to_string(o.chunks))
        .Expected("0 (all) or more");
  if (o.reference.empty() && (o.top || o.samples))
    return Fail(Code::kUsage, "--top and --tail-samples shape a reference: give --save-reference FILE too");
  RIDGE_ASSIGN_OR_RETURN(const std::string text, o.input.Read());
  RIDGE_ASSIGN_OR_RETURN(QualitySubject subject, LoadQualitySubject(o.model, 512));
  const service::Runtime& runtime = *subject.runtime;
  RIDGE_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, subject.Encode(text));
  const lab::WindowOptions windowing{
      .window_tokens = runtime.context_tokens(), .whole = o.whole, .stride_tokens = o.stride, .max_windows = o.chunks};
  RIDGE_ASSIGN_OR_RETURN(const std::vector<lab::Window> windows,
                         lab::PlanWindows(static_cast<int64_t>(ids.size()), windowing));
  const bool bos_each = subject.scoring.bos.has_value() && o.stride == 0;
  if (!bos_each) subject.scoring.bos.reset();  // with a stride, BOS stands only where the text begins

  RIDGE_ASSIGN_OR_RETURN(const lab::ReferenceShape shape, ShapeOf(o, subject.scoring.vocab));
  std::optional<lab::ReferenceWriter> writer;
  if (!o.reference.empty()) {
    RIDGE_ASSIGN_OR_RETURN(
        writer, lab::ReferenceWriter::Create(
                    o.reference, {.model = runtime.model().file().path(),
                                  .architecture = runtime.model().config().architecture,
                                  .vocab = subject.scoring.vocab,
                                  .vocab_hash = subject.VocabularyHash(),
                                  .tokens = ids,
                                  .windows = windowing,
                                  .bos = subject.scoring.bos,
                                  .rows = lab::CountScored(windows),
                                  .shape = shape,
                                  .config = ConfigJson(runtime).dump(-1, ' ', false, Json::error_handler_t::replace)}));
  }
  const lab::ReferenceSink sink{.writer = writer ? &*writer : nullptr, .shape = shape};
  const auto measured = lab::MeasurePerplexity(subject.scoring, ids, windows, subject.ScriptsOf(ids), *subject.pool,
                                               writer ? &sink : nullptr, QualityProgress());
  EndQualityProgress();
  RIDGE_ASSIGN_OR_RETURN(const lab::Perplexity p, measured);
  if (writer) RIDGE_RETURN_IF_ERROR(writer->Commit());

  Json scripts = Json::object();
  for (const lab::ScriptPerplexity& s : p.scripts) scripts[std::string(lab::Name(s.script))] = PerplexityJson(s.value);
  const Json document = {
      {"perplexity", p.all.perplexity},
      {"perplexity_error", Optional(p.all.error)},
      {"mean_nll", p.all.mean_nll},
      {"n_tokens", ids.size()},
      {"n_scored", p.all.tokens},
      {"n_windows", windows.size()},
      {"window_tokens", windowing.window_tokens},
      {"scored", ScoredName(windowing)},
      {"stride_tokens", o.stride},
      {"bos_per_window", bos_each},
      {"tokens_left_out", static_cast<int64_t>(ids.size()) - windows.back().first_token - windows.back().tokens},
      {"running", p.running},
      {"by_script", std::move(scripts)},
      {"computed_tokens", p.computed_tokens},
      {"total_ms", p.seconds * 1e3},
      {"tokens_per_second", static_cast<double>(p.computed_tokens) / p.seconds},
      {"reference",
       writer ? ReferenceJson(o, writer->size_bytes(), shape, subject.scoring.vocab, p.all.tokens) : Json(nullptr)},
      {"config", ConfigJson(runtime)}};
  if (out.json) return out.Document(document);
  return out.Write(Text(p, document));
}

}  // namespace

void AddPerplexity(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<Options>();
  CLI::App* app = AddSubcommand(root, "perplexity", "how well a model predicts a text, as llama-perplexity measures it",
                                "ridge perplexity -m model.gguf -f text.txt -c 512 --save-reference model.ref");
  o->model.Add(app);
  app->get_option("--ctx-size")->description("tokens of a window (default 512; 0: what the model was trained for)");
  o->input.AddTo(app);
  app->add_flag("--whole", o->whole,
                "score every position of a window; else its second half, so that each has context");
  app->add_option("--stride,--ppl-stride", o->stride,
                  "windows start this many tokens apart and each scores its last so many: slower, more context");
  app->add_option("--chunks", o->chunks, "windows at most (0: all)");
  app->add_option("--save-reference,--kl-divergence-base", o->reference,
                  "write what `ridge kld` holds other models against: log-probabilities of the likeliest tokens and a "
                  "sample of the rest, a fiftieth of all scores");
  app->add_option("--top", o->top,
                  "likeliest tokens that the reference keeps (default: by the size of the vocabulary)");
  app->add_option("--tail-samples", o->samples, "draws from the others (default: half as many)");
  invocation.Bind(app, [o](Output& out) { return Measure(*o, out); });
}

}  // namespace ridge::app
