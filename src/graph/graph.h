// The typed op list of one model: what is computed, in order, over a symbolic number of rows. Families in model/arch write it as
// straight-line code; a backend compiles it into kernel calls.
//
//   Graph g; ValueId x = g.Embed(table, 1.0f); x = g.MatMul(g.RmsNorm(x, norm, 1e-5f), weight);
//   Cost per_token = CostOf(g, {.tokens = 1, .logits = 1, .context = 512, .kv_bytes_per_value = 2});
//
// Guarantees: every value is defined before it is used, once; shapes are checked when an op is added (a mismatch is our own fault:
// shapes that come from a file are compared with the config by `model` before). Knows nothing of how an op is computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quant/quant.h"

namespace ridge::graph {

using ValueId = int32_t;
using WeightId = int32_t;
inline constexpr int32_t kNone = -1;

// Symbolic row count of a value: all tokens of the step, or only the rows whose logits are asked for.
enum class Rows { kTokens, kLogits };

struct Value {
  Rows rows;
  int64_t cols;
};

// A tensor of the model file, borrowed. shape is fastest first: [k, n] for a matrix of n rows, [k, n, experts] for a bank.
struct Weight {
  std::string name;
  quant::TypeId type;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
  int64_t k() const { return shape[0]; }
  int64_t n() const { return shape.size() > 1 ? shape[1] : 1; }
  int64_t experts() const { return shape.size() > 2 ? shape[2] : 1; }
};

enum class OpKind {
  kEmbed,
  kRmsNorm,
  kLayerNorm,
  kMatMul,
  kRope,
  kAppendKv,
  kAttention,
  kAdd,
  kAct,
  kGatedAct,
  kSelectRows,
  kExperts,
  kScale,
  kSoftcap,
  kSlice,
  kShortConv,
  kDeltaRule
};
std::string_view Name(OpKind kind);

enum class Activation { kSilu, kGeluTanh, kSigmoid };

// Rotary position embedding of one kind of layer. angle(pos, i) = pos * inv_freq[i]; cos and sin are multiplied by `magnitude`.
struct RopeSpec {
  bool interleaved = false;      // true: pairs (2i, 2i+1), Llama's order; false: pairs (i, i + n/2), NeoX's
  int64_t rotary_dims = 0;       // of each head; the rest passes through
  std::vector<double> inv_freq;  // [rotary_dims / 2], radians per token, scaling applied
  double magnitude = 1.0;
};

// Which row of its table an embedding takes.
enum class EmbedBy { kToken, kPosition, kFirst };

struct AttentionSpec {
  int32_t layer = 0;  // whose KV
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;     // scores are multiplied by it
  int64_t window = 0;  // a token sees this many tokens back, itself included; 0: all
  bool causal = true;  // off, an encoder: a token sees all tokens of its sequence, which one step has to hold
};

struct ExpertSpec {
  int64_t experts = 0, used = 0;
  Activation activation = Activation::kSilu;
  bool normalize = true;  // selected probabilities are divided by their sum
  float scale = 1;        // and multiplied by this
};

struct Op {
  OpKind kind = OpKind::kEmbed;
  std::vector<ValueId> in;
  ValueId out = kNone;  // kNone for kAppendKv
  std::vector<WeightId> weights;
  WeightId bias = kNone;
  float scalar = 0;       // eps, scale or cap
  int64_t groups = 1;     // kRmsNorm, kRope, kSlice: heads that are treated one by one; kDeltaRule: heads of q and of k
  int64_t first = 0;      // kSlice: column of each group
  int32_t state = kNone;  // kShortConv, kDeltaRule: index into state_layers()
  EmbedBy by = EmbedBy::kToken;
  Activation activation = Activation::kSilu;
  int32_t rope = kNone;  // index into ropes()
  AttentionSpec attention;
  ExpertSpec experts;
  std::string label;  // "blk.3.attn_q", for plans and traces
};

// One layer's KV as the state store needs it.
struct KvLayer {
  int64_t kv_heads, head_dim, window;
};

// What one recurrent layer keeps of a sequence, however long: the latest inputs of its convolution, and of each head a matrix. Float32.
struct StateLayer {
  int64_t taps = 0, channels = 0;                 // of the convolution, which keeps the latest taps - 1 tokens
  int64_t heads = 0, key_dim = 0, value_dim = 0;  // of the matrices
  int64_t conv_floats() const { return (taps - 1) * channels; }
  int64_t matrix_floats() const { return heads * key_dim * value_dim; }
};

class Graph {
 public:
  WeightId AddWeight(Weight weight);
  int32_t AddRope(RopeSpec spec);
  int32_t AddKvLayer(KvLayer layer);
  int32_t AddStateLayer(StateLayer layer);

  ValueId Embed(WeightId table, float scale, EmbedBy by = EmbedBy::kToken);
  ValueId RmsNorm(ValueId x, WeightId weight, float eps, int64_t groups = 1);
  ValueId LayerNorm(ValueId x, WeightId weight, WeightId bias, float eps);
  ValueId MatMul(ValueId x, WeightId weight, WeightId bias = kNone);
  ValueId Rope(ValueId x, int32_t rope, int64_t heads);
  void AppendKv(ValueId k, ValueId v, int32_t layer);
  ValueId Attention(ValueId q, const AttentionSpec& spec);
  ValueId Add(ValueId a, ValueId b);
  ValueId Act(ValueId x, Activation activation);
  ValueId GatedAct(ValueId gate, ValueId up, Activation activation);
  ValueId SelectRows(ValueId x);
  ValueId Experts(ValueId x, ValueId router_logits, WeightId gate, WeightId up, WeightId down, const ExpertSpec& spec);
  ValueId Scale(ValueId x, float factor);
  ValueId Softcap(ValueId x, float cap);
  // Columns [first, first + cols) of each of `groups` equal parts of x.
  ValueId Slice(ValueId x, int64_t groups, int64_t first, int64_t cols);
  // silu(sum over tap j of weight[j] * x of the token taps - 1 - j before), channel by channel; before the first token x is 0. weight [taps, channels].
  ValueId ShortConv(ValueId x, WeightId weight, int32_t state);
  // The gated delta rule (Yang et al. 2024), per head with the matrix S [key_dim, value_dim], zero at first, and for each token
  //   q, k: those of head h mod key_heads, scaled to length 1 (x / sqrt(sum x^2 + eps)); q also divided by sqrt(key_dim)
  //   decay = exp(a * softplus(alpha + dt_bias)), beta' = 1 / (1 + exp(-beta)); a [heads] is negative
  //   S = decay * S;  S += k (beta' * (v - k S))^T;  out = q S
  // qkv: [2 * key_heads * key_dim + heads * value_dim], in that order; alpha, beta: [heads]. Result [heads * value_dim].
  ValueId DeltaRule(ValueId qkv, ValueId alpha, ValueId beta, WeightId a, WeightId dt_bias, int64_t key_heads,
                    float eps, int32_t state);
  void SetOutput(ValueId logits) { output_ = logits; }
  void SetLabel(std::string label) { label_ = std::move(label); }  // of the ops added from here on that have no weight

  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Weight>& weights() const { return weights_; }
  const std::vector<RopeSpec>& ropes() const { return ropes_; }
  const std::vector<KvLayer>& kv_layers() const { return kv_layers_; }
  const std::vector<StateLayer>& state_layers() const { return state_layers_; }
  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id)]; }
  const Weight& weight(WeightId id) const { return weights_[static_cast<size_t>(id)]; }
  ValueId output() const { return output_; }
  int64_t vocab() const { return value(output_).cols; }

 private:
  ValueId Append(Op op, Rows rows, int64_t cols);

  std::vector<Op> ops_;
  std::vector<Value> values_;
  std::vector<Weight> weights_;
  std::vector<RopeSpec> ropes_;
  std::vector<KvLayer> kv_layers_;
  std::vector<StateLayer> state_layers_;
  ValueId output_ = kNone;
  std::string label_;
};

// What must be moved and computed for a step of `tokens` rows, `logits` of which give logits, each seeing `context` tokens of KV.
// Weight bytes count once a step (of an expert bank, the experts touched at most), the embedding table by the rows read, the state of
// recurrent layers once for each of `sequences`.
struct Load {
  double tokens = 1, logits = 1, context = 0, kv_bytes_per_value = 2, sequences = 1;
};
struct Cost {
  double bytes_read = 0, bytes_written = 0, flops = 0;
  Cost& operator+=(const Cost& other);
};
Cost CostOf(const Graph& graph, const Op& op, const Load& load);
Cost CostOf(const Graph& graph, const Load& load);

}  // namespace ridge::graph
