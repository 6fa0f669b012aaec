// Gemma 3: embeddings times sqrt(width), norms before and after each sublayer, QK norms, tanh-GELU; five layers with a sliding window and
// a RoPE base of their own (10,000, never scaled) to one that sees everything. Source: Gemma 3 technical report 2025.
// The files hold norm weights with the 1 of (1 + w) already added.
#include <cmath>

#include "model/arch/families.h"

namespace ridge::model {
namespace {

// Which layers have a window: the file's per-layer list, or all but every n-th.
std::vector<bool> WindowedLayers(Builder& b, bool any) {
  const Config& c = b.config();
  std::vector<bool> windowed(static_cast<size_t>(c.layers), false);
  if (!any) return windowed;
  const std::string key = "attention.sliding_window_pattern";
  const gguf::Value* value = b.metadata().Find(b.Key(key));
  if (value != nullptr && value->type == gguf::ValueType::kArray) {
    const auto list = b.metadata().Get<std::vector<uint8_t>>(b.Key(key));
    if (!list) {
      b.Note(list.error());
    } else if (list->size() != windowed.size()) {
      b.Note(Fail(Code::kInvalidData, "per-layer list has the wrong length")
                 .Where(b.Key(key))
                 .Found(std::to_string(list->size()))
                 .Expected(std::to_string(windowed.size()))
                 .Take());
    } else {
      for (size_t i = 0; i < windowed.size(); i++) windowed[i] = (*list)[i] != 0;
    }
    return windowed;
  }
  const uint64_t period = b.Value<uint64_t>(key, 6);
  for (size_t i = 0; i < windowed.size(); i++) windowed[i] = period == 0 || i % period != period - 1;
  return windowed;
}

}  // namespace

void WriteGemma3(Builder& b) {
  const Config& c = b.config();
  graph::Graph& g = b.graph();
  const int64_t window = static_cast<int64_t>(b.Value<uint64_t>("attention.sliding_window", 0));
  const std::vector<bool> windowed = WindowedLayers(b, window > 0);
  const int32_t global_rope = g.AddRope(b.Rope(/*interleaved=*/false));
  const int32_t local_rope =
      g.AddRope(b.RopeWith(/*interleaved=*/false, b.Number("rope.freq_base_swa", 10000.0, 0), 1.0));
  // The 27B model scales scores by its width per head, not by the head size.
  const double head = c.layers == 62 ? static_cast<double>(c.width / c.heads[0]) : static_cast<double>(c.head_dim);
  const float scale = static_cast<float>(1.0 / std::sqrt(head));
  graph::ValueId x = g.Embed(b.Require("token_embd.weight", {c.width, c.vocab}),
                             static_cast<float>(std::sqrt(static_cast<double>(c.width))));
  for (int64_t i = 0; i < c.layers; i++) {
    const bool local = windowed[static_cast<size_t>(i)];
    graph::ValueId y = b.SelfAttention(
        b.Norm(x, Block(i, "attn_norm")), i,
        {.rope = local ? local_rope : global_rope, .qk_norm = true, .window = local ? window : 0, .scale = scale});
    y = b.Norm(y, Block(i, "post_attention_norm"));
    x = g.Add(b.LogitRows(x, i), y);
    y = b.GatedFfn(b.Norm(x, Block(i, "ffn_norm")), i, graph::Activation::kGeluTanh);
    x = g.Add(x, b.Norm(y, Block(i, "post_ffw_norm")));
  }
  b.Output(x, static_cast<float>(b.Number("final_logit_softcapping", 0.0, -1e-9)));
}

}  // namespace ridge::model
