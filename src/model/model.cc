#include "model/model.h"

#include <algorithm>
#include <utility>

#include "model/builder.h"
#include "model/config.h"

namespace ridge::model {

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
