// Config from metadata: every key is read with its type and range checked, and named in the error.
#include <cmath>
#include <string>

#include "base/quantity.h"
#include "model/config.h"

namespace ridge::model {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 31;  // of any dimension: products of two stay inside 64 bits

Result<int64_t> Size(const gguf::Metadata& m, const std::string& key, std::optional<int64_t> fallback = std::nullopt) {
  if (fallback && m.Find(key) == nullptr) return *fallback;
  RIDGE_ASSIGN_OR_RETURN(const uint64_t value, m.Get<uint64_t>(key));
  if (value < 1 || value > static_cast<uint64_t>(kMaxSize)) {
    return Fail(Code::kInvalidData, "metadata value is out of range")
        .Where(key)
        .Found(std::to_string(value))
        .Expected("1 to " + std::to_string(kMaxSize));
  }
  return static_cast<int64_t>(value);
}

Result<std::vector<int64_t>> Sizes(const gguf::Metadata& m, const std::string& key, int64_t layers,
                                   std::optional<uint64_t> fallback, uint64_t least = 1) {
  RIDGE_ASSIGN_OR_RETURN(const std::vector<uint64_t> values,
                         m.GetPerLayer<uint64_t>(key, static_cast<size_t>(layers), fallback));
  std::vector<int64_t> sizes;
  for (uint64_t value : values) {
    if (value < least || value > static_cast<uint64_t>(kMaxSize)) {
      return Fail(Code::kInvalidData, "metadata value is out of range")
          .Where(key)
          .Found(std::to_string(value))
          .Expected(std::to_string(least) + " to " + std::to_string(kMaxSize));
    }
    sizes.push_back(static_cast<int64_t>(value));
  }
  return sizes;
}

Result<double> Positive(const gguf::Metadata& m, const std::string& key, std::optional<double> fallback) {
  if (fallback && m.Find(key) == nullptr) return *fallback;
  RIDGE_ASSIGN_OR_RETURN(const double value, m.Get<double>(key));
  if (!(value > 0) || !std::isfinite(value)) {
    return Fail(Code::kInvalidData, "metadata value is out of range")
        .Where(key)
        .Found(std::to_string(value))
        .Expected("a number above 0");
  }
  return value;
}

}  // namespace

Result<Config> ReadConfig(const gguf::File& file, const std::string& architecture) {
  const gguf::Metadata& m = file.metadata();
  const auto key = [&](const std::string& suffix) { return architecture + "." + suffix; };
  Config c;
  c.architecture = architecture;
  RIDGE_ASSIGN_OR_RETURN(c.name, m.GetOr<std::string>("general.name", ""));
  RIDGE_ASSIGN_OR_RETURN(c.layers, Size(m, key("block_count")));
  if (c.layers > 4096)
    return Fail(Code::kInvalidData, "metadata value is out of range")
        .Where(key("block_count"))
        .Found(std::to_string(c.layers))
        .Expected("1 to 4096");
  RIDGE_ASSIGN_OR_RETURN(c.context_tokens, Size(m, key("context_length")));
  RIDGE_ASSIGN_OR_RETURN(c.width, Size(m, key("embedding_length")));
  RIDGE_ASSIGN_OR_RETURN(c.heads, Sizes(m, key("attention.head_count"), c.layers, std::nullopt));
  c.kv_heads = c.heads;
  if (m.Find(key("attention.head_count_kv")) != nullptr) {
    RIDGE_ASSIGN_OR_RETURN(c.kv_heads, Sizes(m, key("attention.head_count_kv"), c.layers, std::nullopt, 0));
  }
  RIDGE_ASSIGN_OR_RETURN(c.experts, Size(m, key("expert_count"), 0));
  RIDGE_ASSIGN_OR_RETURN(c.experts_used, Size(m, key("expert_used_count"), 0));
  RIDGE_ASSIGN_OR_RETURN(c.ffn_width, Sizes(m, key("feed_forward_length"), c.layers,
                                            c.experts > 0 ? std::optional<uint64_t>(1) : std::nullopt));
  RIDGE_ASSIGN_OR_RETURN(c.expert_width, Size(m, key("expert_feed_forward_length"), c.ffn_width[0]));
  for (int64_t i = 0; i < c.layers; i++) {
    const int64_t heads = c.heads[static_cast<size_t>(i)], kv = c.kv_heads[static_cast<size_t>(i)];
    if (kv > 0 && heads % kv != 0) {
      return Fail(Code::kInvalidData, "heads are not a multiple of KV heads")
          .Where(key("attention.head_count_kv") + " of layer " + std::to_string(i))
          .Found(Count(heads, "head") + ", " + std::to_string(kv) + " KV heads");
    }
  }
  RIDGE_ASSIGN_OR_RETURN(const uint64_t nextn, m.GetOr<uint64_t>(key("nextn_predict_layers"), 0));
  if (nextn >= static_cast<uint64_t>(c.layers)) {
    return Fail(Code::kInvalidData, "metadata value is out of range")
        .Where(key("nextn_predict_layers"))
        .Found(std::to_string(nextn))
        .Expected("fewer than the " + Count(c.layers, "layer") + " of the file");
  }
  c.unused_layers = static_cast<int64_t>(nextn);
  c.layers -= c.unused_layers;
  for (std::vector<int64_t>* sizes : {&c.heads, &c.kv_heads, &c.ffn_width})
    sizes->resize(static_cast<size_t>(c.layers));
  RIDGE_ASSIGN_OR_RETURN(c.head_dim, Size(m, key("attention.key_length"), std::max<int64_t>(1, c.width / c.heads[0])));
  RIDGE_ASSIGN_OR_RETURN(const int64_t value_dim, Size(m, key("attention.value_length"), c.head_dim));
  if (value_dim != c.head_dim) {
    return Fail(Code::kUnsupported, "keys and values of different sizes")
        .Where(key("attention.value_length"))
        .Found(std::to_string(value_dim))
        .Expected(std::to_string(c.head_dim));
  }
  RIDGE_ASSIGN_OR_RETURN(c.rope_dims, Size(m, key("rope.dimension_count"), c.head_dim));
  if (c.rope_dims > c.head_dim || c.rope_dims % 2 != 0) {
    return Fail(Code::kInvalidData, "rotary size does not fit the head")
        .Where(key("rope.dimension_count"))
        .Found(std::to_string(c.rope_dims))
        .Expected("an even number up to " + std::to_string(c.head_dim));
  }
  const bool layer_norm = m.Find(key("attention.layer_norm_epsilon")) != nullptr;
  RIDGE_ASSIGN_OR_RETURN(
      const double eps,
      Positive(m, key(layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"), std::nullopt));
  c.norm_eps = static_cast<float>(eps);
  RIDGE_ASSIGN_OR_RETURN(c.rope_base, Positive(m, key("rope.freq_base"), 10000.0));
  const gguf::TensorInfo* table = file.FindTensor("token_embd.weight");
  if (table == nullptr || table->shape.size() < 2) {
    return Fail(Code::kInvalidData, "tensor is missing")
        .Where("token_embd.weight")
        .Expected("the token table")
        .Remedy("a vocabulary-only file has no weights to run");
  }
  c.vocab = static_cast<int64_t>(table->shape[1]);
  if (c.experts > 0 && (c.experts_used < 1 || c.experts_used > c.experts)) {
    return Fail(Code::kInvalidData, "metadata value is out of range")
        .Where(key("expert_used_count"))
        .Found(std::to_string(c.experts_used))
        .Expected("1 to " + std::to_string(c.experts));
  }
  return c;
}

}  // namespace ridge::model
