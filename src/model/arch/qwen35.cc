// Qwen 3.5 and 3.6, dense: three layers of gated delta rule with a short convolution (Yang et al. 2024) to one of attention whose result is gated.
// RoPE turns a quarter of each head. Its sections (M-RoPE) tell time, height and width of an image apart; in a text all three are the position, so
// the rotation is the ordinary one. The files hold norm weights with the 1 of (1 + w) added (but for ssm_norm), -exp(A_log) as ssm_a, and heads of
// values in the order in which head h goes with the key head h mod key_heads. Layers for predicting several tokens (nextn) are not read.
#include <optional>
#include <string>
#include <vector>

#include "base/quantity.h"
#include "model/arch/families.h"

namespace ridge::model {
namespace {

struct Sizes {
  graph::StateLayer state;
  int64_t key_heads = 0;
};

// nullopt: noted.
std::optional<Sizes> ReadSizes(Builder& b) {
  constexpr uint64_t kMost = 1 << 20;
  bool good = true;
  const auto size = [&](const char* suffix) -> int64_t {
    const auto value = b.metadata().Get<uint64_t>(b.Key(suffix));
    if (!value) {
      b.Note(value.error());
    } else if (*value < 1 || *value > kMost) {
      b.Note(Fail(Code::kInvalidData, "metadata value is out of range")
                 .Where(b.Key(suffix))
                 .Found(std::to_string(*value))
                 .Expected("1 to " + std::to_string(kMost))
                 .Take());
    } else {
      return static_cast<int64_t>(*value);
    }
    good = false;
    return 1;
  };
  Sizes s;
  s.state.taps = size("ssm.conv_kernel");
  s.state.heads = size("ssm.time_step_rank");
  s.state.key_dim = size("ssm.state_size");
  s.key_heads = size("ssm.group_count");
  const int64_t inner = size("ssm.inner_size");
  if (!good) return std::nullopt;
  if (inner % s.state.heads != 0 || s.state.heads % s.key_heads != 0) {
    b.Note(Fail(Code::kInvalidData, "heads of the recurrent layers do not divide")
               .Where(b.Key("ssm.*"))
               .Found(Count(inner, "column") + ", " + Count(s.state.heads, "head") + ", " +
                      std::to_string(s.key_heads) + " key heads")
               .Take());
    return std::nullopt;
  }
  s.state.value_dim = inner / s.state.heads;
  s.state.channels = 2 * s.key_heads * s.state.key_dim + inner;
  return s;
}

// The file's per-layer list, or all but every n-th.
std::vector<bool> RecurrentLayers(Builder& b) {
  const Config& c = b.config();
  std::vector<bool> recurrent(static_cast<size_t>(c.layers), false);
  const std::string key = b.Key("attention.recurrent_layers");
  if (b.metadata().Find(key) != nullptr) {
    const auto list = b.metadata().GetPerLayer<bool>(key, static_cast<size_t>(c.layers + c.unused_layers));
    if (!list) b.Note(list.error());
    for (size_t i = 0; list && i < recurrent.size(); i++) recurrent[i] = (*list)[i];
    return recurrent;
  }
  const uint64_t period = b.Value<uint64_t>("full_attention_interval", 4);
  if (period == 0) {
    b.Note(Fail(Code::kInvalidData, "metadata value is out of range")
               .Where(b.Key("full_attention_interval"))
               .Found("0")
               .Expected("at least 1")
               .Take());
    return recurrent;
  }
  for (size_t i = 0; i < recurrent.size(); i++) recurrent[i] = (i + 1) % period != 0;
  return recurrent;
}

graph::ValueId DeltaLayer(Builder& b, graph::ValueId x, int64_t layer, const Sizes& sizes) {
  graph::Graph& g = b.graph();
  const graph::StateLayer& s = sizes.state;
  g.SetLabel(Block(layer, "ssm"));
  const graph::ValueId qkv = b.Linear(x, Block(layer, "attn_qkv"), s.channels);
  const graph::ValueId z = b.Linear(x, Block(layer, "attn_gate"), s.heads * s.value_dim);
  const graph::ValueId alpha = b.Linear(x, Block(layer, "ssm_alpha"), s.heads);
  const graph::ValueId beta = b.Linear(x, Block(layer, "ssm_beta"), s.heads);
  const int32_t state = g.AddStateLayer(s);
  const graph::ValueId mixed =
      g.ShortConv(qkv, b.Require(Block(layer, "ssm_conv1d.weight"), {s.taps, s.channels}), state);
  const graph::WeightId a = b.Require(Block(layer, "ssm_a"), {s.heads});
  const graph::WeightId dt = b.Require(Block(layer, "ssm_dt.bias"), {s.heads});
  graph::ValueId y = g.DeltaRule(mixed, alpha, beta, a, dt, sizes.key_heads, b.config().norm_eps, state);
  y = g.GatedAct(z, b.Norm(y, Block(layer, "ssm_norm"), s.heads), graph::Activation::kSilu);
  return b.Linear(b.LogitRows(y, layer), Block(layer, "ssm_out"), b.config().width);
}

}  // namespace

void WriteQwen35(Builder& b) {
  const Config& c = b.config();
  graph::Graph& g = b.graph();
  const std::vector<bool> recurrent = RecurrentLayers(b);
  const std::optional<Sizes> sizes = ReadSizes(b);
  if (!sizes) return;
  const int32_t rope = g.AddRope(b.Rope(/*interleaved=*/false));
  graph::ValueId x = g.Embed(b.Require("token_embd.weight", {c.width, c.vocab}), 1.0f);
  for (int64_t i = 0; i < c.layers; i++) {
    const graph::ValueId normed = b.Norm(x, Block(i, "attn_norm"));
    const graph::ValueId y = recurrent[static_cast<size_t>(i)]
                                 ? DeltaLayer(b, normed, i, *sizes)
                                 : b.SelfAttention(normed, i, {.rope = rope, .qk_norm = true, .output_gate = true});
    x = g.Add(b.LogitRows(x, i), y);
    x = g.Add(x, b.GatedFfn(b.Norm(x, Block(i, "post_attention_norm")), i, graph::Activation::kSilu));
  }
  b.Output(x);
}

}  // namespace ridge::model
