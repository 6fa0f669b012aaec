#include "model/builder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/math.h"
#include "quant/quant.h"

namespace ridge::model {
namespace {

using graph::kNone;
using graph::ValueId;
using graph::WeightId;

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (int64_t d : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(d);
  return text + "]";
}

// Trailing dimensions of 1 do not count: [64] and [64, 1] are one shape.
std::vector<int64_t> Trim(std::vector<int64_t> shape) {
  while (shape.size() > 1 && shape.back() == 1) shape.pop_back();
  return shape;
}

}  // namespace

std::string Block(int64_t layer, const std::string& name) { return "blk." + std::to_string(layer) + "." + name; }

WeightId Builder::Add(const std::string& name, const gguf::TensorInfo* tensor, const std::vector<int64_t>& shape) {
  for (size_t i = 0; i < graph_.weights().size(); i++) {
    if (graph_.weights()[i].name == name) return static_cast<WeightId>(i);  // tied: one tensor, one weight
  }
  graph::Weight weight{.name = name, .type = quant::TypeId::kF32, .shape = shape, .data = {}};
  if (tensor != nullptr) {
    used_.insert(name);
    const std::vector<int64_t> found(tensor->shape.begin(), tensor->shape.end());
    if (Trim(found) != Trim(shape)) {
      Note(Fail(Code::kInvalidData, "tensor has the wrong shape")
               .Where(name)
               .Found(ShapeText(found))
               .Expected(ShapeText(shape))
               .Remedy("the file does not fit its own metadata; get it again or convert it again")
               .Take());
    } else if (tensor->type == nullptr || tensor->type->decode == nullptr) {
      Note(Fail(Code::kUnsupported, "tensor type is not one that this build can run")
               .Where(name)
               .Found(tensor->type == nullptr ? "type id " + std::to_string(tensor->type_id)
                                              : std::string(tensor->type->name))
               .Take());
    } else {
      weight.type = tensor->type->id;
      weight.data = file_.Data(*tensor);
    }
  }
  return graph_.AddWeight(std::move(weight));
}

double Builder::Number(const std::string& suffix, double fallback, double above) {
  if (metadata().Find(Key(suffix)) == nullptr) return fallback;
  const double value = Value<double>(suffix, fallback);
  if (std::isfinite(value) && value > above) return value;
  Note(Fail(Code::kInvalidData, "metadata value is out of range")
           .Where(Key(suffix))
           .Found(std::to_string(value))
           .Expected("a number above " + std::to_string(above))
           .Take());
  return fallback;
}

WeightId Builder::Require(const std::string& name, const std::vector<int64_t>& shape) {
  const gguf::TensorInfo* tensor = file_.FindTensor(name);
  if (tensor == nullptr) {
    Note(Fail(Code::kInvalidData, "tensor is missing")
             .Where(name)
             .Expected("shape " + ShapeText(shape))
             .Remedy("the file is incomplete; get it again")
             .Take());
  }
  return Add(name, tensor, shape);
}

std::optional<WeightId> Builder::Find(const std::string& name, const std::vector<int64_t>& shape) {
  const gguf::TensorInfo* tensor = file_.FindTensor(name);
  if (tensor == nullptr) return std::nullopt;
  return Add(name, tensor, shape);
}

std::vector<float> Builder::Floats(const std::string& name, int64_t n) {
  const graph::Weight weight = graph_.weight(Require(name, {n}));
  std::vector<float> values(static_cast<size_t>(n), 1.0f);
  const quant::Type& type = quant::Get(weight.type);
  if (!weight.data.empty())
    type.decode(weight.data.data(), values.data(), static_cast<size_t>(n) / type.block_elements);
  return values;
}

ValueId Builder::Linear(ValueId x, const std::string& name, int64_t n) {
  const WeightId weight = Require(name + ".weight", {graph_.value(x).cols, n});
  const std::optional<WeightId> bias = Find(name + ".bias", {n});
  if (!Has(name + ".scale")) return graph_.MatMul(x, weight, bias.value_or(kNone));
  if (bias) Note(Fail(Code::kUnsupported, "a matrix with both a scale and a bias").Where(name).Take());
  return graph_.Scale(graph_.MatMul(x, weight), Floats(name + ".scale", 1)[0]);
}

ValueId Builder::Norm(ValueId x, const std::string& name, int64_t groups) {
  return graph_.RmsNorm(x, Require(name + ".weight", {graph_.value(x).cols / groups}), config_.norm_eps, groups);
}

ValueId Builder::LayerNorm(ValueId x, const std::string& name) {
  const int64_t n = graph_.value(x).cols;
  const WeightId weight = Require(name + ".weight", {n});
  return graph_.LayerNorm(x, weight, Require(name + ".bias", {n}), config_.norm_eps);
}

graph::RopeSpec Builder::RopeWith(bool interleaved, double base, double linear_factor) {
  graph::RopeSpec spec;
  spec.interleaved = interleaved;
  spec.rotary_dims = config_.rope_dims;
  for (int64_t i = 0; i < config_.rope_dims / 2; i++) {
    spec.inv_freq.push_back(Pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(config_.rope_dims)) /
                            linear_factor);
  }
  return spec;
}

graph::RopeSpec Builder::Rope(bool interleaved) {
  const std::string type = Value<std::string>("rope.scaling.type", "linear");
  double factor = Value<double>("rope.scaling.factor", 0.0);
  if (factor == 0) factor = Value<double>("rope.scale_linear", 0.0);
  if (factor == 0) factor = 1;
  if (!(factor >= 1e-3 && factor <= 1e6)) {
    Note(Fail(Code::kInvalidData, "RoPE scaling factor makes no sense")
             .Where(Key("rope.scaling.factor"))
             .Found(std::to_string(factor))
             .Expected("0.001 to 1000000")
             .Take());
    factor = 1;
  }
  const bool yarn = type == "yarn";
  if (type != "none" && type != "linear" && !yarn) {
    Note(Fail(Code::kUnsupported, "unknown RoPE scaling")
             .Where(Key("rope.scaling.type"))
             .Found(type)
             .Expected("none, linear or yarn")
             .Take());
  }
  graph::RopeSpec spec = RopeWith(interleaved, config_.rope_base, type == "none" || yarn ? 1.0 : factor);
  spec.magnitude = Number("rope.scaling.attn_factor", 1.0, 0);
  if (yarn) {
    // YaRN (Peng et al. 2023): dimensions that turn often keep their frequency, slow ones are interpolated, with a ramp between;
    // the magnitude grows with the logarithm of the factor. Boundaries as the reference implementation rounds them.
    const double original = static_cast<double>(
        Number("rope.scaling.original_context_length", static_cast<double>(config_.context_tokens), 0));
    const double fast = Number("rope.scaling.yarn_beta_fast", 32.0, 0),
                 slow = Number("rope.scaling.yarn_beta_slow", 1.0, 0);
    const double extrapolation = Number("rope.scaling.yarn_ext_factor", 1.0, -1e-9);
    const double dims = static_cast<double>(config_.rope_dims);
    const auto boundary = [&](double turns) {
      return dims * Log(original / (turns * 6.283185307179586)) / (2 * Log(config_.rope_base));
    };
    const double low = std::max(0.0, std::floor(boundary(fast))), high = std::min(dims - 1, std::ceil(boundary(slow)));
    for (size_t i = 0; i < spec.inv_freq.size(); i++) {
      const double ramp = std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
      const double keep = (1 - ramp) * extrapolation;
      spec.inv_freq[i] *= (1 - keep) / factor + keep;
    }
    const auto mscale = [&](double m) { return factor <= 1 ? 1.0 : 0.1 * m * Log(factor) + 1.0; };
    const double all_dims = Number("rope.scaling.yarn_log_multiplier", 0.0, -1e-9);
    spec.magnitude *= all_dims == 0 ? mscale(1) : mscale(1) / mscale(all_dims);
  }
  if (Has("rope_freqs.weight")) {
    const std::vector<float> factors = Floats("rope_freqs.weight", config_.rope_dims / 2);
    for (size_t i = 0; i < factors.size(); i++) spec.inv_freq[i] /= static_cast<double>(factors[i]);
  }
  return spec;
}

ValueId Builder::LogitRows(ValueId x, int64_t layer) { return layer + 1 == config_.layers ? graph_.SelectRows(x) : x; }

ValueId Builder::SelfAttention(ValueId x, int64_t layer, const AttentionOptions& options) {
  const int64_t heads = config_.heads[static_cast<size_t>(layer)], dim = config_.head_dim;
  int64_t kv_heads = config_.kv_heads[static_cast<size_t>(layer)];
  if (kv_heads == 0) {
    Note(Fail(Code::kInvalidData, "a layer of attention has no KV heads")
             .Where(Key("attention.head_count_kv") + " of layer " + std::to_string(layer))
             .Found("0")
             .Expected("at least 1")
             .Take());
    kv_heads = heads;
  }
  graph_.SetLabel(Block(layer, "attn"));
  ValueId q = Linear(x, Block(layer, "attn_q"), heads * dim * (options.output_gate ? 2 : 1));
  ValueId gate = kNone;
  if (options.output_gate) {
    gate = graph_.Slice(q, heads, dim, dim);
    q = graph_.Slice(q, heads, 0, dim);
  }
  ValueId k = Linear(x, Block(layer, "attn_k"), kv_heads * dim);
  const ValueId v = Linear(x, Block(layer, "attn_v"), kv_heads * dim);
  if (options.qk_norm) {
    q = Norm(q, Block(layer, "attn_q_norm"), heads);
    k = Norm(k, Block(layer, "attn_k_norm"), kv_heads);
  }
  if (options.rope != kNone) {
    q = graph_.Rope(q, options.rope, heads);
    k = graph_.Rope(k, options.rope, kv_heads);
  }
  const int32_t kv = graph_.AddKvLayer({kv_heads, dim, options.window});
  graph_.AppendKv(k, v, kv);
  const float scale =
      options.scale != 0 ? options.scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  ValueId y = graph_.Attention(q, {.layer = kv,
                                   .heads = heads,
                                   .kv_heads = kv_heads,
                                   .head_dim = dim,
                                   .scale = scale,
                                   .window = options.window,
                                   .causal = options.causal});
  if (options.output_gate) y = graph_.GatedAct(gate, y, graph::Activation::kSigmoid);
  return Linear(LogitRows(y, layer), Block(layer, "attn_output"), config_.width);
}

ValueId Builder::GatedFfn(ValueId x, int64_t layer, graph::Activation activation) {
  const int64_t n = config_.ffn_width[static_cast<size_t>(layer)];
  graph_.SetLabel(Block(layer, "ffn"));
  const ValueId gate = Linear(x, Block(layer, "ffn_gate"), n);
  const ValueId up = Linear(x, Block(layer, "ffn_up"), n);
  return Linear(graph_.GatedAct(gate, up, activation), Block(layer, "ffn_down"), config_.width);
}

ValueId Builder::ExpertFfn(ValueId x, int64_t layer, graph::Activation activation) {
  const int64_t width = config_.width, n = config_.expert_width, experts = config_.experts;
  graph_.SetLabel(Block(layer, "ffn"));
  for (const char* scale : {"ffn_gate_exps.scale", "ffn_up_exps.scale", "ffn_down_exps.scale"}) {
    if (Has(Block(layer, scale)))
      Note(Fail(Code::kUnsupported, "per-expert scales are not supported by this build")
               .Where(Block(layer, scale))
               .Take());
  }
  const ValueId router = Linear(x, Block(layer, "ffn_gate_inp"), experts);
  const WeightId gate = Require(Block(layer, "ffn_gate_exps.weight"), {width, n, experts});
  const WeightId up = Require(Block(layer, "ffn_up_exps.weight"), {width, n, experts});
  const WeightId down = Require(Block(layer, "ffn_down_exps.weight"), {n, width, experts});
  const double scale = Number("expert_weights_scale", 0.0, -1e-9);
  return graph_.Experts(x, router, gate, up, down,
                        {.experts = experts,
                         .used = config_.experts_used,
                         .activation = activation,
                         .normalize = true,
                         .scale = scale == 0 ? 1.0f : static_cast<float>(scale)});
}

void Builder::Output(ValueId x, float cap) {
  graph_.SetLabel("output");
  const ValueId rows = Norm(x, "output_norm");
  if (output_ == ModelOutput::kEmbeddings) return graph_.SetOutput(rows);
  const ValueId logits = Has("output.weight")
                             ? Linear(rows, "output", config_.vocab)
                             : graph_.MatMul(rows, Require("token_embd.weight", {config_.width, config_.vocab}));
  graph_.SetOutput(cap > 0 ? graph_.Softcap(logits, cap) : logits);
}

}  // namespace ridge::model
