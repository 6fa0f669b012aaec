#include "model/model.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "model/builder.h"
#include "model/config.h"

namespace ridge::model {

namespace {

// The block of "blk.12.attn_q.weight"; none for other names.
std::optional<int64_t> BlockOf(std::string_view name) {
  if (!name.starts_with("blk.")) return std::nullopt;
  int64_t block = -1;
  const auto [end, error] = std::from_chars(name.data() + 4, name.data() + name.size(), block);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.' || block < 0) return std::nullopt;
  return block;
}

// Blocks that the graph leaves out are those that predict further tokens (MTP), and nothing else: a block of the model itself that is passed over
// would change every answer. Where the count of blocks and the tensors tell different things, one of them is wrong.
Status CheckBlocks(const gguf::File& file, const Config& config) {
  const int64_t all = config.layers + config.unused_layers;
  std::set<int64_t> predict;
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    const std::optional<int64_t> block = BlockOf(tensor.name);
    if (block && tensor.name.find(".nextn.") != std::string::npos) predict.insert(*block);
  }
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    const std::optional<int64_t> block = BlockOf(tensor.name);
    if (!block || *block < config.layers || predict.contains(*block)) continue;
    const bool beyond = *block >= all;
    return Fail(Code::kInvalidData, beyond ? "a block beyond the count of blocks"
                                           : "a block that is to predict further tokens has no tensor for that")
        .Where(tensor.name)
        .Found(config.architecture + (beyond ? ".block_count " + std::to_string(all)
                                             : ".nextn_predict_layers " + std::to_string(config.unused_layers)))
        .Expected(beyond ? "at least " + std::to_string(*block + 1) : "blk." + std::to_string(*block) + ".nextn.*")
        .Remedy("the file does not fit its own metadata; get it again or convert it again");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> Model::Load(gguf::File file, ModelOutput output, int64_t first_layers) {
  std::unique_ptr<Model> model(new Model(std::move(file)));
  RIDGE_ASSIGN_OR_RETURN(const std::string architecture,
                         model->file_.metadata().Get<std::string>("general.architecture"));
  const Family* family = FindFamily(architecture);
  if (family == nullptr) {
    std::string known;
    for (const std::string& name : FamilyNames()) known += (known.empty() ? "" : " ") + name;
    return Fail(Code::kUnsupported, "unknown model architecture")
        .Where("general.architecture")
        .Found(architecture)
        .Expected("one of: " + known);
  }
  RIDGE_ASSIGN_OR_RETURN(model->config_, ReadConfig(model->file_, architecture));
  RIDGE_RETURN_IF_ERROR(CheckBlocks(model->file_, model->config_));
  if (Config& c = model->config_; first_layers > 0 && first_layers < c.layers) {
    c.unused_layers += c.layers - first_layers;
    c.layers = first_layers;
    for (std::vector<int64_t>* sizes : {&c.heads, &c.kv_heads, &c.ffn_width})
      sizes->resize(static_cast<size_t>(c.layers));
  }
  model->encoder_ = family->encoder;
  model->output_ = family->encoder ? ModelOutput::kEmbeddings : output;
  Builder builder(model->file_, model->config_, model->graph_, model->output_);
  family->write(builder);
  if (builder.error()) return std::unexpected(*builder.error());
  for (const gguf::TensorInfo& tensor : model->file_.tensors()) {
    if (!builder.used().contains(tensor.name)) model->unused_.push_back(tensor.name);
  }
  return model;
}

int64_t Model::parameters() const {
  int64_t n = 0;
  for (const gguf::TensorInfo& tensor : file_.tensors()) n += static_cast<int64_t>(tensor.elements());
  return n;
}

double Model::KvBytesPerToken(double k_value_bytes, double v_value_bytes) const {
  double bytes = 0;
  for (const graph::KvLayer& layer : graph_.kv_layers())
    bytes += static_cast<double>(layer.kv_heads * layer.head_dim) * (k_value_bytes + v_value_bytes);
  return bytes;
}

int64_t Model::StateBytes() const {
  int64_t floats = 0;
  for (const graph::StateLayer& layer : graph_.state_layers()) floats += layer.conv_floats() + layer.matrix_floats();
  return floats * static_cast<int64_t>(sizeof(float));
}

std::vector<std::string> Architectures() { return FamilyNames(); }

}  // namespace ridge::model
