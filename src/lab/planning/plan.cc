#include "lab/planning/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "quant/quant.h"

namespace ridge::lab {
namespace {

// Prompt kernels reach about these shares of the arithmetic ceiling: a rough figure (docs/planning.md). Decoding is what was measured of its parts: the
// kernels' bandwidth matrix after matrix, attention from memory, and a dispatch for each op that is run (two norms, q-k-v, rope and append, two of attention,
// its output, gate and up, a quantization, down: of the llama family with its fusions).
constexpr double kPrefillShare = 0.55, kPrefillLow = 0.35, kPrefillHigh = 0.85, kDecodeError = 0.15;
constexpr double kOpsPerLayer = 10;
constexpr double kGib = 1 << 30;

double Q(const Shape& s) { return static_cast<double>(s.width * s.heads * s.head_dim); }
double Kv(const Shape& s) { return static_cast<double>(s.width * s.kv_heads * s.head_dim); }
double Layers(const Shape& s) { return static_cast<double>(s.layers); }
double Table(const Shape& s) { return static_cast<double>(s.vocab * s.width); }

// Elements of one layer's feed-forward, of one of its three matrices; `used`: of a token's experts only.
double Ffn(const Shape& s, bool used) {
  if (s.experts == 0) return static_cast<double>(s.width * s.ffn);
  return static_cast<double>(s.width * s.expert_ffn * (used ? s.experts_used : s.experts));
}

double BytesOf(std::string_view name, double elements) {
  const quant::Type* type = quant::Find(name);
  RIDGE_CHECK(type != nullptr);  // the mixes are a table of ours
  return elements * static_cast<double>(type->block_bytes) / static_cast<double>(type->block_elements);
}

// Weights by type; used: what a token reads (of experts only those).
Work Weights(const Shape& s, const Mix& m, bool used) {
  Work work;
  const auto add = [&](std::string_view type, double elements) {
    if (elements <= 0) return;
    Work::Weights& w = work.matmul[std::string(type)];
    w.bytes += BytesOf(type, elements);
    w.flops += 2 * elements;
  };
  const auto mixed = [&](bool more, double elements) {
    add(m.more, more ? m.more_share * elements : 0);
    add(m.body, more ? (1 - m.more_share) * elements : elements);
  };
  const double layers = Layers(s), ffn = Ffn(s, used);
  mixed(false, layers * (Q(s) + Kv(s)));  // q, k
  mixed(true, layers * Kv(s));            // v
  mixed(m.more_output, layers * Q(s));
  mixed(false, layers * 2 * ffn);
  mixed(true, layers * ffn);
  if (s.experts > 0) add("F32", layers * static_cast<double>(s.width * s.experts));
  add(m.output, Table(s));
  return work;
}

// Tokens of KV that layer by layer are seen at a context, summed over the layers.
double SeenTokens(const Shape& s, double context) {
  if (s.window == 0) return Layers(s) * context;
  const double full = std::floor(Layers(s) / static_cast<double>(s.windowed_of));
  return full * context + (Layers(s) - full) * std::min(context, static_cast<double>(s.window));
}

void AddAttention(const Shape& s, double tokens, double seen, double kv_value_bytes, Work& work) {
  const double row = static_cast<double>(s.kv_heads * s.head_dim);
  work.other_bytes += seen * 2 * row * kv_value_bytes;
  work.other_flops += tokens * 4 * static_cast<double>(s.heads * s.head_dim) * seen;
}

std::string WhyNot(const Candidate& c, const TaskRule& task, const Use& use, const Budget& budget) {
  const auto at = [](std::string_view name) {
    for (size_t i = 0; i < KnownMixes().size(); i++) {
      if (KnownMixes()[i].name == name) return i;
    }
    return KnownMixes().size();
  };
  if (!c.fits) return fmt::format("takes {:.1f} GB of {:.1f}", c.footprint.total() / 1e9, budget.usable() / 1e9);
  if (at(c.mix->name) > at(task.least_format))
    return fmt::format("{} asks for {} or more", task.task, task.least_format);
  if (use.context > c.shape->context) return fmt::format("was trained for {} tokens", c.shape->context);
  if (task.most_billions > 0 && c.shape->published_billions > 1.1 * task.most_billions)
    return fmt::format("{} asks for at most {:.0f} billion parameters", task.task, task.most_billions);
  return "";
}

}  // namespace

double Parameters(const Shape& s) {
  const double router = s.experts > 0 ? Layers(s) * static_cast<double>(s.width * s.experts) : 0;
  return Layers(s) * (2 * Q(s) + 2 * Kv(s) + 3 * Ffn(s, false)) + router + Table(s) * (s.tied ? 1 : 2);
}

double BitsPerWeight(const Shape& s, const Mix& m) {
  double bytes = s.tied ? 0 : BytesOf(m.embedding, Table(s));
  for (const auto& [type, w] : Weights(s, m, false).matmul) bytes += w.bytes;
  return 8 * bytes / Parameters(s);
}

Footprint FootprintOf(const Shape& s, const Mix& m, const Use& use) {
  Footprint f;
  f.weights_bytes = LayoutBytes(Weights(s, m, false)) + (s.tied ? 0 : BytesOf(m.embedding, Table(s)));
  f.kv_bytes_per_token = Layers(s) * 2 * static_cast<double>(s.kv_heads * s.head_dim) * use.kv_value_bytes;
  f.kv_bytes = f.kv_bytes_per_token * static_cast<double>(use.context * use.concurrency);
  // Activations of a chunk in float32, and one row of logits for each request.
  const double ffn = static_cast<double>(s.experts > 0 ? s.expert_ffn * s.experts_used : s.ffn);
  f.workspace_bytes = 4 * (static_cast<double>(use.chunk) * (6 * static_cast<double>(s.width) + 3 * ffn) +
                           static_cast<double>(use.concurrency * s.vocab));
  f.other_bytes = (24 << 20) + 240 * static_cast<double>(s.vocab);  // as loading plans it: vocabulary, threads, program
  return f;
}

Work DecodeWork(const Shape& s, const Mix& m, double context, double kv_value_bytes) {
  Work work = Weights(s, m, true);
  AddAttention(s, 1, SeenTokens(s, context), kv_value_bytes, work);
  return work;
}

Work PrefillWork(const Shape& s, const Mix& m, double tokens, int64_t chunk, double kv_value_bytes) {
  const double steps = std::ceil(tokens / static_cast<double>(chunk));
  Work work = Weights(s, m, true);
  const double head = 2 * Table(s);
  for (auto& [type, w] : work.matmul) w.bytes *= steps / tokens;
  Work::Weights& output = work.matmul[std::string(m.output)];
  output.flops -= head * (1 - 1 / tokens);  // logits of the last token only
  AddAttention(s, 1, SeenTokens(s, tokens / 2), kv_value_bytes, work);
  work.other_bytes *= steps / tokens;  // keys and values are read once a chunk, not once a token
  return work;
}

std::vector<AttentionLoad> DecodeAttention(const Shape& s, double context, const std::string& kv_type) {
  return {{kv_type, s.head_dim, static_cast<double>(s.heads) / static_cast<double>(s.kv_heads),
           static_cast<double>(s.kv_heads) * SeenTokens(s, context)}};
}

std::vector<AttentionLoad> DecodeAttention(const graph::Graph& graph, double context, const std::string& kv_type) {
  std::vector<AttentionLoad> loads;
  for (const graph::Op& op : graph.ops()) {
    if (op.kind != graph::OpKind::kAttention) continue;
    const graph::AttentionSpec& a = op.attention;
    const double seen = a.window > 0 ? std::min(context, static_cast<double>(a.window)) : context;
    loads.push_back({kv_type, a.head_dim, static_cast<double>(a.heads) / static_cast<double>(a.kv_heads),
                     static_cast<double>(a.kv_heads) * seen});
  }
  return loads;
}

Speed SpeedOf(const Work& decode, const std::vector<AttentionLoad>& attention, const Work& prefill, double layers,
              const Roofline& roofline, const Circumstances& at) {
  Speed speed;
  Circumstances step = at;
  step.decode = true;
  const Floors d = FloorsOf(decode, roofline, step);
  // All threads were measured; fewer take longer.
  const double fewer = static_cast<double>(roofline.threads) / std::min(at.threads, roofline.threads);
  std::optional<double> attention_s = 0;
  for (const AttentionLoad& load : attention) {
    const auto head_s = roofline.AttentionSeconds(load.kv_type, load.head_dim, load.group);
    attention_s =
        head_s && attention_s ? std::optional(*attention_s + fewer * load.head_tokens * *head_s) : std::nullopt;
  }
  // Of fewer threads, or another ISA, no rate of the kernels was measured: the largest floor.
  std::optional<double> weights_s = d.largest();
  bool measured = true;
  if (at.threads >= roofline.threads && at.isa == roofline.isa) {
    weights_s = 0;
    for (const auto& [type, w] : decode.matmul) {
      const FormatRow* format = roofline.Format(type);
      measured = measured && (format == nullptr || format->gbps_decode > 0);
      if (format == nullptr || format->gbps_decode <= 0)
        weights_s.reset();
      else if (weights_s)
        *weights_s += w.bytes * format->layout_ratio / (format->gbps_decode * 1e9);
    }
  }
  if (!attention_s || roofline.dispatch_us <= 0 || !measured) {
    speed.reason =
        "the roofline has no rates of attention and of decoding: measure it with this version (ridge roofline)";
  } else if (!weights_s || *weights_s <= 0) {
    speed.reason = "a type has no kernel of its own, so no rate is known";
  } else {
    // Keys and values, which attention reads, are among the other bytes; what it does not read counts for little.
    const std::optional<double> read = roofline.ReadGbps(at.threads);
    const double other_s = read ? decode.other_bytes / (*read * 1e9) : 0;
    const double expected_s =
        *weights_s + std::max(other_s, *attention_s) + layers * kOpsPerLayer * roofline.dispatch_us * 1e-6;
    speed.decode = Estimate{1 / expected_s, (1 - kDecodeError) / expected_s, (1 + kDecodeError) / expected_s};
  }
  step.decode = false;
  const Floors p = FloorsOf(prefill, roofline, step);
  if (p.memory_s && p.arithmetic_s) {
    const auto rate = [&](double share) { return 1 / std::max(*p.memory_s, *p.arithmetic_s / share); };
    speed.prefill = Estimate{rate(kPrefillShare), rate(kPrefillLow), rate(kPrefillHigh)};
  }
  return speed;
}

Budget BudgetOf(double device_bytes, bool is_limit) {
  if (is_limit) return {device_bytes, 0.05 * device_bytes};
  return {device_bytes, std::min(4 * kGib, std::max(0.5 * kGib, 0.1 * device_bytes))};
}

std::string_view ScenarioOf(std::string_view task, int64_t concurrency, double usable_bytes) {
  if (task == "agent") return "agents";
  if (concurrency > 2) return "concurrent";
  if (task == "edge" || usable_bytes < 6 * kGib) return "edge";
  return "single";
}

std::vector<Candidate> Candidates(const TaskRule& task, const Use& use, const Budget& budget, const Roofline* roofline,
                                  int threads) {
  std::vector<Candidate> all;
  for (const Shape& s : KnownShapes()) {
    for (const Mix& m : KnownMixes()) {
      Candidate c{.shape = &s, .mix = &m, .footprint = FootprintOf(s, m, use)};
      c.fits = c.footprint.total() <= budget.usable();
      c.why_not = WhyNot(c, task, use, budget);
      if (roofline != nullptr) {
        const double context = static_cast<double>(use.context);
        c.speed =
            SpeedOf(DecodeWork(s, m, context / 2, use.kv_value_bytes), DecodeAttention(s, context / 2, use.kv_type),
                    PrefillWork(s, m, std::max(1.0, context / 2), use.chunk, use.kv_value_bytes), Layers(s), *roofline,
                    {.threads = threads, .isa = roofline->isa, .decode = true});
      } else {
        c.speed.reason = "no roofline of this device";
      }
      all.push_back(std::move(c));
    }
  }
  std::ranges::stable_sort(all, [](const Candidate& a, const Candidate& b) {
    if (a.why_not.empty() != b.why_not.empty()) return a.why_not.empty();
    if (a.shape != b.shape) return a.shape->published_billions > b.shape->published_billions;
    return a.footprint.weights_bytes > b.footprint.weights_bytes;
  });
  return all;
}

}  // namespace ridge::lab
