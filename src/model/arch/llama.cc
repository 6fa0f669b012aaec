// Llama 2 and 3, Mistral, SmolLM2, and Mixtral (experts): pre-norm blocks, interleaved RoPE, SiLU-gated FFN.
// Source: Touvron et al. 2023; Llama 3.1's stretched low frequencies come as the tensor rope_freqs.weight.
#include "model/arch/families.h"

namespace ridge::model {

void WriteLlama(Builder& b) {
  const Config& c = b.config();
  graph::Graph& g = b.graph();
  const int32_t rope = g.AddRope(b.Rope(/*interleaved=*/true));
  graph::ValueId x = g.Embed(b.Require("token_embd.weight", {c.width, c.vocab}), 1.0f);
  for (int64_t i = 0; i < c.layers; i++) {
    graph::ValueId y = b.SelfAttention(b.Norm(x, Block(i, "attn_norm")), i, {.rope = rope});
    x = g.Add(b.LogitRows(x, i), y);
    y = b.Norm(x, Block(i, "ffn_norm"));
    x = g.Add(x,
              c.experts > 0 ? b.ExpertFfn(y, i, graph::Activation::kSilu) : b.GatedFfn(y, i, graph::Activation::kSilu));
  }
  b.Output(x);
}

}  // namespace ridge::model
