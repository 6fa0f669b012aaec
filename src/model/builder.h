// What a family file writes its graph with: weights by name, checked against the shapes that the config asks for, and the few blocks that
// most families share.
//
//   ValueId q = b.Linear(x, "blk.0.attn_q", n);      // takes blk.0.attn_q.weight [k, n], and .bias and .scale where the file has them
//   b.Require("blk.0.attn_norm.weight", {width});
//
// A missing or misshapen tensor is remembered (the first one wins) and stands in as an empty weight of the right shape, so that the family
// file stays straight-line code; Model::Load returns the error.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/model.h"

namespace ridge::model {

class Builder {
 public:
  Builder(const gguf::File& file, const Config& config, graph::Graph& graph, ModelOutput output)
      : file_(file), config_(config), graph_(graph), output_(output) {}

  const Config& config() const { return config_; }
  const gguf::Metadata& metadata() const { return file_.metadata(); }
  graph::Graph& graph() { return graph_; }
  std::string Key(const std::string& suffix) const {
    return config_.architecture + "." + suffix;
  }  // "llama.rope.freq_base"

  // Reads a key of this architecture into the first error; the fallback when the key is missing.
  template <class T>
  T Value(const std::string& suffix, T fallback) {
    Result<T> value = metadata().GetOr<T>(Key(suffix), std::move(fallback));
    if (!value) {
      Note(std::move(value).error());
      return T{};
    }
    return *std::move(value);
  }

  // A number above `above`, or the fallback when the key is missing; anything else, NaN and infinity too, is the first error.
  double Number(const std::string& suffix, double fallback, double above);

  graph::WeightId Require(const std::string& name, const std::vector<int64_t>& shape);
  std::optional<graph::WeightId> Find(const std::string& name,
                                      const std::vector<int64_t>& shape);  // nullopt when the file has none
  bool Has(const std::string& name) const { return file_.FindTensor(name) != nullptr; }
  std::vector<float> Floats(const std::string& name, int64_t n);  // a small tensor's values

  // name.weight [cols of x, n], with name.bias [n] and name.scale [1] where present.
  graph::ValueId Linear(graph::ValueId x, const std::string& name, int64_t n);
  graph::ValueId Norm(graph::ValueId x, const std::string& name, int64_t groups = 1);
  graph::ValueId LayerNorm(graph::ValueId x, const std::string& name);  // with name.bias

  // The default rotary embedding of this file: base and scaling from the metadata (none, linear, yarn), rope_freqs.weight applied.
  graph::RopeSpec Rope(bool interleaved);
  graph::RopeSpec RopeWith(bool interleaved, double base, double linear_factor);

  struct AttentionOptions {
    int32_t rope = graph::kNone;
    bool qk_norm = false;
    int64_t window = 0;
    float scale = 0;  // 0: 1 / sqrt(head_dim)
    bool causal = true;
    // attn_q has a gate behind each head's query; the result of attention is multiplied by the gate's sigmoid.
    bool output_gate = false;
  };
  // Past the attention of the last layer only the rows that give logits are needed: those of x there, x itself in any other layer.
  graph::ValueId LogitRows(graph::ValueId x, int64_t layer);
  // Q, K and V projections, QK norms, RoPE, KV append, attention, output projection: x [width] -> [width], of LogitRows.
  graph::ValueId SelfAttention(graph::ValueId x, int64_t layer, const AttentionOptions& options);
  // down(act(gate(x)) * up(x))
  graph::ValueId GatedFfn(graph::ValueId x, int64_t layer, graph::Activation activation);
  graph::ValueId ExpertFfn(graph::ValueId x, int64_t layer, graph::Activation activation);
  // Final norm and output matrix (the token table where the file has no output.weight), capped where cap > 0: the graph's output. Where
  // embeddings are asked for, the final norm alone.
  void Output(graph::ValueId x, float cap = 0);

  void Note(Error error) {
    if (!error_) error_ = std::move(error);
  }
  const std::optional<Error>& error() const { return error_; }
  const std::set<std::string>& used() const { return used_; }

 private:
  graph::WeightId Add(const std::string& name, const gguf::TensorInfo* tensor, const std::vector<int64_t>& shape);

  const gguf::File& file_;
  const Config& config_;
  graph::Graph& graph_;
  ModelOutput output_;
  std::set<std::string> used_;
  std::optional<Error> error_;
};

std::string Block(int64_t layer, const std::string& name);  // "blk.3.attn_q"

// One line per family (arch/registry.cc); each writes its graph into the builder.
struct Family {
  const char* architecture;
  void (*write)(Builder& b);
  bool encoder = false;  // gives embeddings only; positions and pooling of its own
};
const Family* FindFamily(const std::string& architecture);
std::vector<std::string> FamilyNames();

}  // namespace ridge::model
