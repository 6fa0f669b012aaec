#include "graph/graph.h"

#include <algorithm>
#include <utility>

#include "base/result.h"

namespace ridge::graph {

std::string_view Name(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbed: return "embed";
    case OpKind::kRmsNorm: return "rms_norm";
    case OpKind::kLayerNorm: return "layer_norm";
    case OpKind::kAct: return "act";
    case OpKind::kMatMul: return "matmul";
    case OpKind::kRope: return "rope";
    case OpKind::kAppendKv: return "append_kv";
    case OpKind::kAttention: return "attention";
    case OpKind::kAdd: return "add";
    case OpKind::kGatedAct: return "gated_act";
    case OpKind::kSelectRows: return "select_rows";
    case OpKind::kExperts: return "experts";
    case OpKind::kScale: return "scale";
    case OpKind::kSoftcap: return "softcap";
    case OpKind::kSlice: return "slice";
    case OpKind::kShortConv: return "short_conv";
    case OpKind::kDeltaRule: return "delta_rule";
  }
  return "?";
}

WeightId Graph::AddWeight(Weight weight) {
  weights_.push_back(std::move(weight));
  return static_cast<WeightId>(weights_.size() - 1);
}

int32_t Graph::AddRope(RopeSpec spec) {
  RIDGE_CHECK(static_cast<int64_t>(spec.inv_freq.size()) * 2 == spec.rotary_dims);
  ropes_.push_back(std::move(spec));
  return static_cast<int32_t>(ropes_.size() - 1);
}

int32_t Graph::AddKvLayer(KvLayer layer) {
  kv_layers_.push_back(layer);
  return static_cast<int32_t>(kv_layers_.size() - 1);
}

int32_t Graph::AddStateLayer(StateLayer layer) {
  state_layers_.push_back(layer);
  return static_cast<int32_t>(state_layers_.size() - 1);
}

ValueId Graph::Append(Op op, Rows rows, int64_t cols) {
  for (ValueId in : op.in) RIDGE_CHECK(in >= 0 && static_cast<size_t>(in) < values_.size());
  for (WeightId w : op.weights) RIDGE_CHECK(w >= 0 && static_cast<size_t>(w) < weights_.size());
  op.label = label_;
  if (!op.weights.empty()) {
    op.label = weight(op.weights[0]).name;
    if (op.label.ends_with(".weight")) op.label.resize(op.label.size() - 7);
  }
  if (cols > 0) {
    values_.push_back({rows, cols});
    op.out = static_cast<ValueId>(values_.size() - 1);
  }
  ops_.push_back(std::move(op));
  return ops_.back().out;
}

ValueId Graph::Embed(WeightId table, float scale, EmbedBy by) {
  Op op{.kind = OpKind::kEmbed};
  op.by = by;
  op.weights = {table};
  op.scalar = scale;
  return Append(std::move(op), Rows::kTokens, weight(table).k());
}

ValueId Graph::RmsNorm(ValueId x, WeightId norm, float eps, int64_t groups) {
  RIDGE_CHECK(weight(norm).k() * groups == value(x).cols);
  Op op{.kind = OpKind::kRmsNorm};
  op.in = {x};
  op.weights = {norm};
  op.scalar = eps;
  op.groups = groups;
  return Append(std::move(op), value(x).rows, value(x).cols);
}

ValueId Graph::LayerNorm(ValueId x, WeightId norm, WeightId bias, float eps) {
  RIDGE_CHECK(weight(norm).k() == value(x).cols && weight(bias).k() == value(x).cols);
  Op op{.kind = OpKind::kLayerNorm};
  op.in = {x};
  op.weights = {norm};
  op.bias = bias;
  op.scalar = eps;
  return Append(std::move(op), value(x).rows, value(x).cols);
}

ValueId Graph::Act(ValueId x, Activation activation) {
  Op op{.kind = OpKind::kAct};
  op.in = {x};
  op.activation = activation;
  return Append(std::move(op), value(x).rows, value(x).cols);
}

ValueId Graph::MatMul(ValueId x, WeightId matrix, WeightId bias) {
  RIDGE_CHECK(weight(matrix).k() == value(x).cols);
  Op op{.kind = OpKind::kMatMul};
  op.in = {x};
  op.weights = {matrix};
  op.bias = bias;
  return Append(std::move(op), value(x).rows, weight(matrix).n());
}

ValueId Graph::Rope(ValueId x, int32_t rope, int64_t heads) {
  RIDGE_CHECK(value(x).cols % heads == 0 && ropes_[static_cast<size_t>(rope)].rotary_dims <= value(x).cols / heads);
  Op op{.kind = OpKind::kRope};
  op.in = {x};
  op.groups = heads;
  op.rope = rope;
  return Append(std::move(op), value(x).rows, value(x).cols);
}

void Graph::AppendKv(ValueId k, ValueId v, int32_t layer) {
  Op op{.kind = OpKind::kAppendKv};
  op.in = {k, v};
  op.attention.layer = layer;
  Append(std::move(op), Rows::kTokens, 0);
}

ValueId Graph::Attention(ValueId q, const AttentionSpec& spec) {
  RIDGE_CHECK(value(q).cols == spec.heads * spec.head_dim && spec.heads % spec.kv_heads == 0);
  Op op{.kind = OpKind::kAttention};
  op.in = {q};
  op.attention = spec;
  return Append(std::move(op), value(q).rows, value(q).cols);
}

ValueId Graph::Add(ValueId a, ValueId b) {
  RIDGE_CHECK(value(a).cols == value(b).cols && value(a).rows == value(b).rows);
  Op op{.kind = OpKind::kAdd};
  op.in = {a, b};
  return Append(std::move(op), value(a).rows, value(a).cols);
}

ValueId Graph::GatedAct(ValueId gate, ValueId up, Activation activation) {
  RIDGE_CHECK(value(gate).cols == value(up).cols);
  Op op{.kind = OpKind::kGatedAct};
  op.in = {gate, up};
  op.activation = activation;
  return Append(std::move(op), value(gate).rows, value(gate).cols);
}

ValueId Graph::SelectRows(ValueId x) {
  Op op{.kind = OpKind::kSelectRows};
  op.in = {x};
  return Append(std::move(op), Rows::kLogits, value(x).cols);
}

ValueId Graph::Experts(ValueId x, ValueId router_logits, WeightId gate, WeightId up, WeightId down,
                       const ExpertSpec& spec) {
  RIDGE_CHECK(value(router_logits).cols == spec.experts);
  RIDGE_CHECK(weight(down).n() == value(x).cols && weight(gate).k() == value(x).cols &&
              weight(up).k() == value(x).cols);
  Op op{.kind = OpKind::kExperts};
  op.in = {x, router_logits};
  op.weights = {gate, up, down};
  op.experts = spec;
  return Append(std::move(op), value(x).rows, value(x).cols);
}

ValueId Graph::Scale(ValueId x, float factor) {
  Op op{.kind = OpKind::kScale};
  op.in = {x};
  op.scalar = factor;
  return Append(std::move(op), value(x).rows, value(x).cols);
}

ValueId Graph::Softcap(ValueId x, float cap) {
  Op op{.kind = OpKind::kSoftcap};
  op.in = {x};
  op.scalar = cap;
  return Append(std::move(op), value(x).rows, value(x).cols);
}

ValueId Graph::Slice(ValueId x, int64_t groups, int64_t first, int64_t cols) {
  RIDGE_CHECK(value(x).cols % groups == 0 && first >= 0 && cols > 0 && first + cols <= value(x).cols / groups);
  Op op{.kind = OpKind::kSlice};
  op.in = {x};
  op.groups = groups;
  op.first = first;
  return Append(std::move(op), value(x).rows, groups * cols);
}

ValueId Graph::ShortConv(ValueId x, WeightId taps, int32_t state) {
  const StateLayer& layer = state_layers_[static_cast<size_t>(state)];
  RIDGE_CHECK(value(x).rows == Rows::kTokens && value(x).cols == layer.channels);
  RIDGE_CHECK(weight(taps).k() == layer.taps && weight(taps).n() == layer.channels);
  Op op{.kind = OpKind::kShortConv};
  op.in = {x};
  op.weights = {taps};
  op.state = state;
  return Append(std::move(op), Rows::kTokens, layer.channels);
}

ValueId Graph::DeltaRule(ValueId qkv, ValueId alpha, ValueId beta, WeightId a, WeightId dt_bias, int64_t key_heads,
                         float eps, int32_t state) {
  const StateLayer& layer = state_layers_[static_cast<size_t>(state)];
  RIDGE_CHECK(value(qkv).rows == Rows::kTokens && layer.heads % key_heads == 0);
  RIDGE_CHECK(value(qkv).cols == 2 * key_heads * layer.key_dim + layer.heads * layer.value_dim);
  RIDGE_CHECK(value(alpha).cols == layer.heads && value(beta).cols == layer.heads);
  RIDGE_CHECK(weight(a).k() == layer.heads && weight(dt_bias).k() == layer.heads);
  Op op{.kind = OpKind::kDeltaRule};
  op.in = {qkv, alpha, beta};
  op.weights = {a, dt_bias};
  op.groups = key_heads;
  op.scalar = eps;
  op.state = state;
  return Append(std::move(op), Rows::kTokens, layer.heads * layer.value_dim);
}

Cost& Cost::operator+=(const Cost& other) {
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  flops += other.flops;
  return *this;
}

Cost CostOf(const Graph& graph, const Op& op, const Load& load) {
  Cost cost;
  const auto weight = [&](size_t i) -> const Weight& { return graph.weight(op.weights[i]); };
  const auto bytes = [](const Weight& w) { return static_cast<double>(w.data.size()); };
  const auto mul_add = [](const Weight& w) { return 2.0 * static_cast<double>(w.k()) * static_cast<double>(w.n()); };
  const double rows = op.out != kNone && graph.value(op.out).rows == Rows::kLogits ? load.logits : load.tokens;
  if (rows == 0) return cost;
  switch (op.kind) {
    case OpKind::kEmbed: cost.bytes_read = rows * bytes(weight(0)) / static_cast<double>(weight(0).n()); break;
    case OpKind::kMatMul:
      cost.bytes_read = bytes(weight(0));
      cost.flops = rows * mul_add(weight(0));
      break;
    case OpKind::kAttention: {
      const AttentionSpec& a = op.attention;
      const double seen = a.window > 0 ? std::min(load.context, static_cast<double>(a.window)) : load.context;
      cost.bytes_read = 2 * seen * static_cast<double>(a.kv_heads * a.head_dim) * load.kv_bytes_per_value;
      cost.flops = 4 * rows * seen * static_cast<double>(a.heads * a.head_dim);
      break;
    }
    case OpKind::kAppendKv:
      cost.bytes_written = 2 * rows * static_cast<double>(graph.value(op.in[0]).cols) * load.kv_bytes_per_value;
      break;
    case OpKind::kExperts: {
      const double used = static_cast<double>(op.experts.used), all = static_cast<double>(op.experts.experts);
      for (size_t i = 0; i < 3; i++) {
        cost.bytes_read += std::min(all, rows * used) / all * bytes(weight(i));
        cost.flops += rows * used * mul_add(weight(i));
      }
      break;
    }
    case OpKind::kShortConv: {
      const StateLayer& s = graph.state_layers()[static_cast<size_t>(op.state)];
      cost.bytes_read = bytes(weight(0)) + load.sequences * 4.0 * static_cast<double>(s.conv_floats());
      cost.bytes_written = load.sequences * 4.0 * static_cast<double>(s.conv_floats());
      cost.flops = rows * 2.0 * static_cast<double>(s.taps * s.channels);
      break;
    }
    case OpKind::kDeltaRule: {
      const StateLayer& s = graph.state_layers()[static_cast<size_t>(op.state)];
      cost.bytes_read = cost.bytes_written = load.sequences * 4.0 * static_cast<double>(s.matrix_floats());
      cost.flops = rows * 7.0 * static_cast<double>(s.matrix_floats());  // k S; decay, += and q S
      break;
    }
    case OpKind::kRmsNorm:
    case OpKind::kLayerNorm:
    case OpKind::kAct:
    case OpKind::kRope:
    case OpKind::kAdd:
    case OpKind::kGatedAct:
    case OpKind::kSelectRows:
    case OpKind::kScale:
    case OpKind::kSoftcap:
    case OpKind::kSlice:
      cost.flops = rows * static_cast<double>(graph.value(op.out).cols);  // in cache: no memory traffic is charged
      break;
  }
  return cost;
}

Cost CostOf(const Graph& graph, const Load& load) {
  Cost total;
  for (const Op& op : graph.ops()) total += CostOf(graph, op, load);
  return total;
}

}  // namespace ridge::graph
