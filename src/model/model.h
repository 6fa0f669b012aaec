// A model: the GGUF file, its config as read from the metadata, and the graph that its family wrote over the file's weights.
//
//   RIDGE_ASSIGN_OR_RETURN(gguf::File file, gguf::File::Open(path));
//   RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, Model::Load(std::move(file)));
//   RIDGE_ASSIGN_OR_RETURN(auto program, backend->Compile(model->graph(), options));
//
// Guarantees: after Load every weight that the graph names exists with the shape that the config asks for; errors name the key or tensor,
// what was found and what was expected. Tensors that the graph does not ask for are listed in unused(). Immutable, thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/gguf.h"
#include "graph/graph.h"

namespace ridge::model {

// What families have in common. Sizes in elements unless the name says otherwise.
struct Config {
  std::string architecture;    // "llama", "qwen2", ...
  std::string name;            // general.name, may be empty
  int64_t layers = 0;          // that are run
  int64_t unused_layers = 0;   // behind them in the file: they predict further tokens (nextn)
  int64_t context_tokens = 0;  // that the model was trained for
  int64_t width = 0;           // embedding length
  int64_t vocab = 0;
  std::vector<int64_t> heads, kv_heads, ffn_width;  // per layer; no KV heads: a recurrent layer
  int64_t head_dim = 0;                             // of K, and here of V too
  float norm_eps = 0;
  double rope_base = 10000;
  int64_t rope_dims = 0;
  int64_t experts = 0, experts_used = 0, expert_width = 0;
};

// What the graph ends in: [vocab] logits, or [width] values after the final norm. An encoder gives embeddings whatever was asked for.
enum class ModelOutput { kLogits, kEmbeddings };

class Model {
 public:
  // first_layers: only so many of the layers are run, for measuring what a layer costs; the logits mean nothing then. 0: all.
  static Result<std::unique_ptr<Model>> Load(gguf::File file, ModelOutput output = ModelOutput::kLogits,
                                             int64_t first_layers = 0);

  const Config& config() const { return config_; }
  const graph::Graph& graph() const { return graph_; }
  const gguf::File& file() const { return file_; }
  ModelOutput output() const { return output_; }
  bool encoder() const { return encoder_; }
  const std::vector<std::string>& unused() const { return unused_; }
  int64_t parameters() const;
  // Bytes that the KV of one token takes at the given bytes per value, over all layers.
  double KvBytesPerToken(double k_value_bytes, double v_value_bytes) const;
  // Bytes that recurrent layers keep of one sequence, however long it is; 0 where there are none.
  int64_t StateBytes() const;

 private:
  explicit Model(gguf::File file) : file_(std::move(file)) {}
  gguf::File file_;
  Config config_;
  graph::Graph graph_;
  std::vector<std::string> unused_;
  ModelOutput output_ = ModelOutput::kLogits;
  bool encoder_ = false;
};

// Families that this build knows, by general.architecture.
std::vector<std::string> Architectures();

}  // namespace ridge::model
