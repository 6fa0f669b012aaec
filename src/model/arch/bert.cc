// BERT encoders that give embeddings (all-MiniLM, BGE, E5): learned positions, norms after each sum, every token sees every other.
// Source: Devlin et al. 2018; names of tensors and keys as llama.cpp's converter writes them.
#include "model/arch/families.h"

namespace ridge::model {

void WriteBert(Builder& b) {
  const Config& c = b.config();
  graph::Graph& g = b.graph();
  if (b.Value<bool>("attention.causal", false)) {
    b.Note(Fail(Code::kUnsupported, "a causal encoder").Where(b.Key("attention.causal")).Found("true").Take());
    return;
  }
  auto types = b.metadata().GetOr<uint64_t>("tokenizer.ggml.token_type_count", 2);
  if (!types) return b.Note(std::move(types).error());
  graph::ValueId x = g.Embed(b.Require("token_embd.weight", {c.width, c.vocab}), 1.0f);
  if (b.Has("token_types.weight"))
    x = g.Add(x, g.Embed(b.Require("token_types.weight", {c.width, static_cast<int64_t>(*types)}), 1.0f,
                         graph::EmbedBy::kFirst));
  x = g.Add(x,
            g.Embed(b.Require("position_embd.weight", {c.width, c.context_tokens}), 1.0f, graph::EmbedBy::kPosition));
  x = b.LayerNorm(x, "token_embd_norm");
  for (int64_t i = 0; i < c.layers; i++) {
    const graph::ValueId y = b.SelfAttention(x, i, {.causal = false});
    x = b.LayerNorm(g.Add(b.LogitRows(x, i), y), Block(i, "attn_output_norm"));
    const graph::ValueId hidden = b.Linear(x, Block(i, "ffn_up"), c.ffn_width[static_cast<size_t>(i)]);
    const graph::ValueId z = b.Linear(g.Act(hidden, graph::Activation::kGeluTanh), Block(i, "ffn_down"), c.width);
    x = b.LayerNorm(g.Add(x, z), Block(i, "layer_output_norm"));
  }
  g.SetOutput(x);
}

}  // namespace ridge::model
