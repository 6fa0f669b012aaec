// ridge roofline: the ceilings of this machine, measured once and cached; with a model, how fast it can run here at best.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/atomic_file.h"
#include "base/quantity.h"
#include "base/read_file.h"
#include "base/topology.h"
#include "ceilings.h"
#include "commands.h"
#include "gguf/gguf.h"
#include "interrupt.h"
#include "lab/roofline/plot.h"
#include "lab/roofline/roofline_cache.h"
#include "lab/roofline/roofline_json.h"
#include "model/model.h"
#include "model_options.h"
#include "option_help.h"
#include "pull_progress.h"
#include "text_table.h"

namespace ridge::app {
namespace {

using lab::Roofline;

constexpr double kF16Bytes = 2;  // of a cached key or value, where -ctk and -ctv are not given

struct Options {
  std::string model, svg;
  int64_t context = 512, chunk = 512;
  std::optional<int> threads;
  bool fresh = false, is_short = false;
};

// At best, on this machine: every figure follows from bytes, operations and the roofline.
struct Prediction {
  int threads = 1;
  lab::Work step, prompt;
  lab::Floors decode, prefill;
};

double Rate(double tokens, const std::optional<double>& seconds) { return seconds ? tokens / *seconds : 0; }

Prediction Predict(const graph::Graph& graph, const Roofline& roofline, const Options& o) {
  Prediction p;
  p.threads = ResolveThreads(o.threads).threads;
  const double context = static_cast<double>(o.context);
  p.step = lab::WorkOf(graph, {.tokens = 1, .logits = 1, .context = context, .kv_bytes_per_value = kF16Bytes});
  for (int64_t begin = 0; begin < o.context; begin += o.chunk) {
    const double n = static_cast<double>(std::min(o.chunk, o.context - begin));
    p.prompt.Add(lab::WorkOf(graph, {.tokens = n,
                                     .logits = begin + o.chunk >= o.context ? 1.0 : 0.0,
                                     .context = static_cast<double>(begin) + n / 2,
                                     .kv_bytes_per_value = kF16Bytes}));
  }
  p.decode = lab::FloorsOf(p.step, roofline, {.threads = p.threads, .isa = roofline.isa, .decode = true});
  p.prefill = lab::FloorsOf(p.prompt, roofline, {.threads = p.threads, .isa = roofline.isa, .decode = false});
  return p;
}

// Tokens a second where the phase takes as long as its largest floor.
Json PhaseJson(const lab::Work& work, const lab::Floors& floors, double tokens) {
  const auto rate = [&](const std::optional<double>& s) { return s && *s > 0 ? Json(tokens / *s) : Json(nullptr); };
  const std::optional<lab::Bound> bound = floors.largest() ? lab::BoundOf(floors, *floors.largest()) : std::nullopt;
  return {{"ceiling_ts", rate(floors.largest())},
          {"bound", bound ? Json(std::string(lab::Name(bound->limit))) : Json(nullptr)},
          {"memory_ts", rate(floors.memory_s)},
          {"unpack_ts", rate(floors.unpack_s)},
          {"arithmetic_ts", rate(floors.arithmetic_s)},
          {"kernels_ts", rate(floors.kernels_s)},
          {"bytes_read", floors.bytes},
          {"flops", lab::Flops(work)}};
}

Json PredictionJson(const Prediction& p, const Options& o) {
  return {{"model", o.model},
          {"n_threads", p.threads},
          {"n_context", o.context},
          {"n_ubatch", o.chunk},
          {"decode", PhaseJson(p.step, p.decode, 1)},
          {"prefill", PhaseJson(p.prompt, p.prefill, static_cast<double>(o.context))}};
}

std::string PredictionText(const Prediction& p, const Options& o) {
  const auto line = [&](const char* phase, const lab::Floors& f, double tokens) {
    const std::optional<double> largest = f.largest();
    if (!largest) return fmt::format("{:<8} unknown: a type of the file has no kernel of its own\n", phase);
    return fmt::format("{:<8} at most {:.1f} tokens/s, bound by {} (memory {:.1f}, unpack {}, arithmetic {:.1f})\n",
                       phase, Rate(tokens, largest), lab::Name(lab::BoundOf(f, *largest)->limit),
                       Rate(tokens, f.memory_s), *f.unpack_s > 0 ? fmt::format("{:.1f}", tokens / *f.unpack_s) : "-",
                       Rate(tokens, f.arithmetic_s));
  };
  std::string out =
      fmt::format("\n{} with {}, {} of context:\n", o.model, Count(p.threads, "thread"), Count(o.context, "token"));
  out += line("prefill", p.prefill, static_cast<double>(o.context));
  out += line("decode", p.decode, 1);
  if (p.decode.kernels_s)
    out += fmt::format("{:<8} the kernels alone, reading from memory: {:.1f} tokens/s\n", "", 1 / *p.decode.kernels_s);
  return out;
}

std::vector<lab::PlotPoint> Points(const Roofline& roofline, const std::optional<Prediction>& p, const Options& o) {
  if (!p) return lab::FormatPoints(roofline);
  std::vector<lab::PlotPoint> points;
  for (const auto& [name, work, floors] :
       {std::tuple{"decode", &p->step, &p->decode}, std::tuple{"prefill", &p->prompt, &p->prefill}}) {
    if (!floors->largest() || floors->bytes <= 0) continue;
    points.push_back({fmt::format("{} {}", Printable(o.model.substr(o.model.rfind('/') + 1), 30), name),
                      lab::Flops(*work) / floors->bytes, lab::Flops(*work) / *floors->largest() / 1e9});
  }
  return points;
}

// Three digits: scalar code does fractions of what vectors do.
std::string Cell(const std::optional<double>& value) {
  if (!value) return "-";
  return *value < 100 ? fmt::format("{:.3g}", *value) : fmt::format("{:.0f}", *value);
}

std::string RooflineText(const Roofline& r) {
  std::string out =
      fmt::format("{}, {}, fingerprint {}\n\n", r.machine.cpu, Count(r.machine.cpus, "CPU"), r.fingerprint);
  TextTable read({{"threads", true}, {"read GB/s", true}, {"fastest pattern"}});
  for (const lab::ReadRow& row : r.read)
    read.Row({std::to_string(row.threads), fmt::format("{:.1f}", row.gbps), row.pattern});
  TextTable peaks({{"ISA"}, {"int8 GOPS", true}, {"bf16 GFLOPS", true}, {"fp32 GFLOPS", true}});
  for (const lab::PeakRow& row : r.peaks)
    peaks.Row({row.isa, Cell(row.int8_gops), Cell(row.bf16_gflops), Cell(row.fp32_gflops)});
  TextTable formats({{"type"}, {"kernel"}, {"memory GB/s", true}, {"of read", true}, {"L2 GB/s", true}});
  const double gbps = r.ReadGbps(r.threads).value_or(0);
  for (const lab::FormatRow& row : r.formats) {
    formats.Row({row.type, row.kernel, fmt::format("{:.1f}", row.gbps_memory),
                 gbps > 0 ? fmt::format("{:.0f} %", 100 * row.gbps_memory / gbps) : "-",
                 fmt::format("{:.1f}", row.gbps_l2)});
  }
  out += read.Text() + fmt::format("\nPeaks, {}:\n", Count(r.threads, "thread")) + peaks.Text();
  const auto unmeasured = [](const lab::PeakRow& row) {
    return !row.int8_gops || !row.bf16_gflops || !row.fp32_gflops;
  };
  if (std::ranges::any_of(r.peaks, unmeasured)) out += "-: not measured, the ISA has no such instruction\n";
  out +=
      fmt::format("\nDecode kernels, {}, {}, one token:\n", r.isa, Count(r.threads, "thread")) + formats.Text() + "\n";
  if (r.attention.empty()) return out;
  TextTable attention({{"KV type"}, {"channels", true}, {"heads that share", true}, {"million tokens/s", true}});
  for (const lab::AttentionRow& row : r.attention)
    attention.Row({row.kv_type, std::to_string(row.head_dim), std::to_string(row.group),
                   fmt::format("{:.1f}", row.tokens_per_s / 1e6)});
  out += fmt::format("Attention of one token, tokens seen of one KV head, {}:\n", Count(r.threads, "thread")) +
         attention.Text();
  out +=
      fmt::format("\nHanding work to {} and waiting for it: {:.1f} us\n\n", Count(r.threads, "thread"), r.dispatch_us);
  return out;
}

// A bar of text where stderr is a terminal, wiped at the end.
std::function<void(double)> Progress() {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [](double share) {
    if (share >= 1)
      std::fputs("\r\x1b[K", stderr);
    else
      std::fprintf(stderr, "\rmeasuring this machine: %2.0f %% at least ", 100 * share);
    std::fflush(stderr);
  };
}

Result<Roofline> Measure(const Options& o, const Result<lab::RooflineCache>& cache) {
  RIDGE_ASSIGN_OR_RETURN(Roofline roofline,
                         lab::MeasureRoofline({.build = BuildName(), .is_short = o.is_short, .progress = Progress()}));
  for (const std::string& reason : roofline.verdict.reasons) Note("the machine is not quiet: " + reason);
  if (!roofline.verdict.quiet) {
    Note("these figures are too low, and are not kept; close other programs and run it again");
  } else if (!o.is_short && cache) {
    if (const Status kept = cache->Store(roofline); !kept) Note("not kept: " + kept.error().Message());
  }
  return roofline;
}

Status RooflineCommand(const Options& o, Output& out) {
  const auto usage = [](const char* flag, int64_t found) -> Status {
    return Fail(Code::kUsage, "wrong value").Where(flag).Found(std::to_string(found)).Expected("at least 1");
  };
  if (o.context < 1) return usage("-c", o.context);
  if (o.chunk < 1) return usage("-ub", o.chunk);
  Interrupt interrupt(out.json);
  std::unique_ptr<model::Model> model;  // before the measurement: a wrong name must not cost its time
  if (!o.model.empty()) {
    RIDGE_ASSIGN_OR_RETURN(const std::string path, ResolveOrPull(o.model));
    RIDGE_ASSIGN_OR_RETURN(gguf::File file, gguf::File::Open(path));
    RIDGE_ASSIGN_OR_RETURN(model, model::Model::Load(std::move(file)));
  }
  const Result<lab::RooflineCache> cache = lab::RooflineCache::Default();
  if (!cache) Note("not kept: " + cache.error().Message());
  std::optional<Roofline> roofline;
  if (cache && !o.fresh && !o.is_short) {
    auto known = cache->Load(lab::Fingerprint(lab::ReadMachine(), BuildName()));
    if (known)
      roofline = std::move(*known);
    else
      Note(known.error().Message() + "; measuring again");
  }
  const bool cached = roofline.has_value();
  if (!roofline) {
    RIDGE_ASSIGN_OR_RETURN(roofline, Measure(o, cache));
  }
  std::optional<Prediction> prediction;
  if (model) prediction = Predict(model->graph(), *roofline, o);
  const std::vector<lab::PlotPoint> points = Points(*roofline, prediction, o);
  if (!o.svg.empty()) {
    RIDGE_RETURN_IF_ERROR(CheckReplaces(o.svg, "SVG", {"<svg"}));
    RIDGE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(o.svg));
    RIDGE_RETURN_IF_ERROR(file.Write(lab::SvgPlot(*roofline, points)));
    RIDGE_RETURN_IF_ERROR(file.Commit());
  }
  if (out.json) {
    Json document = lab::ToJson(*roofline);
    document["cached"] = cached;
    document["prediction"] = prediction ? PredictionJson(*prediction, o) : Json(nullptr);
    return out.Document(document);
  }
  std::string text = RooflineText(*roofline) + lab::TerminalPlot(*roofline, points);
  if (prediction) text += PredictionText(*prediction, o);
  text += fmt::format("\n{} {} in {:.0f} s{}; {}\n", cached ? "Kept since" : "Measured", roofline->measured_at,
                      roofline->seconds, roofline->is_short ? ", short" : "",
                      roofline->verdict.quiet ? "the machine was quiet" : "the machine was NOT quiet");
  return out.Write(text);
}

}  // namespace

void AddRoofline(CLI::App& root, Invocation& invocation) {
  auto o = std::make_shared<Options>();
  CLI::App* app =
      AddSubcommand(root, "roofline", "measure this machine's ceilings: read bandwidth, arithmetic peaks, kernels",
                    "ridge roofline\n  ridge roofline -m smollm2:135m -c 2048 --svg roofline.svg\n\n"
                    "Takes about 15 seconds and is kept under XDG_CACHE_HOME (or ~/.cache) for this machine and build, "
                    "so that run and "
                    "bench can say\nhow near they came. Measured beside other work it says so, and nothing is kept.");
  app->add_option("-m,--model", o->model,
                  "predict the ceilings of this model too: a file, a name in the store, a reference");
  app->add_option("-c,--ctx-size", o->context, "tokens of prompt, and of context when decoding, for -m")
      ->capture_default_str();
  app->add_option("--ub,--ubatch-size", o->chunk, help::kChunk)->capture_default_str();
  app->add_option("-t,--threads", o->threads, help::kThreads);
  app->add_option("--svg", o->svg, "write the plot to this file");
  app->add_flag("--fresh", o->fresh, "measure again, whatever is kept");
  app->add_flag("--short", o->is_short, "measure for a few seconds only, good to some percent; never kept");
  invocation.Bind(app, [o](Output& out) { return RooflineCommand(*o, out); });
}

}  // namespace ridge::app
