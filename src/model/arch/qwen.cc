// Qwen 2 and 2.5 (biases on Q, K, V), Qwen 3 (norms on Q and K instead), Qwen 3 MoE (experts in every layer).
// NeoX RoPE, SiLU-gated FFN. Source: Qwen technical reports 2024, 2025.
#include "model/arch/families.h"

namespace ridge::model {
namespace {

void Write(Builder& b, bool qk_norm, bool experts) {
  const Config& c = b.config();
  graph::Graph& g = b.graph();
  if (experts && c.experts == 0) {
    b.Note(Fail(Code::kInvalidData, "an expert model without experts")
               .Where(b.Key("expert_count"))
               .Found("0 or no value")
               .Expected("at least 1")
               .Take());
    return;
  }
  const int32_t rope = g.AddRope(b.Rope(/*interleaved=*/false));
  graph::ValueId x = g.Embed(b.Require("token_embd.weight", {c.width, c.vocab}), 1.0f);
  for (int64_t i = 0; i < c.layers; i++) {
    graph::ValueId y = b.SelfAttention(b.Norm(x, Block(i, "attn_norm")), i, {.rope = rope, .qk_norm = qk_norm});
    x = g.Add(b.LogitRows(x, i), y);
    y = b.Norm(x, Block(i, "ffn_norm"));
    x = g.Add(x, experts ? b.ExpertFfn(y, i, graph::Activation::kSilu) : b.GatedFfn(y, i, graph::Activation::kSilu));
  }
  b.Output(x);
}

}  // namespace

void WriteQwen2(Builder& b) { Write(b, /*qk_norm=*/false, /*experts=*/false); }
void WriteQwen3(Builder& b) { Write(b, /*qk_norm=*/true, /*experts=*/false); }
void WriteQwen3Moe(Builder& b) { Write(b, /*qk_norm=*/true, /*experts=*/true); }

}  // namespace ridge::model
