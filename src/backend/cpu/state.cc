#include "backend/cpu/state.h"

#include <string>

namespace ridge::cpu {

KvKind KindOf(backend::KvType type) {
  switch (type) {
    case backend::KvType::kF16: return KvKind::kF16;
    case backend::KvType::kBF16: return KvKind::kBF16;
    case backend::KvType::kF32: return KvKind::kF32;
  }
  return KvKind::kF16;
}

Result<std::unique_ptr<PagedState>> PagedState::Create(const graph::Graph& graph,
                                                       const backend::StateOptions& options) {
  if (options.page_tokens < 16 || options.page_tokens % 16 != 0 || options.page_tokens > kKvSplit ||
      kKvSplit % options.page_tokens != 0) {
    return Fail(Code::kInvalidArgument, "KV page size does not fit the attention kernels")
        .Where("--kv-page")
        .Found(std::to_string(options.page_tokens))
        .Expected("16, 32, 64, 128, 256 or 512 tokens");
  }
  if (options.n_pages < 1)
    return Fail(Code::kInvalidArgument, "KV needs at least one page").Found(std::to_string(options.n_pages));
  auto state = std::make_unique<PagedState>();
  state->options_ = options;
  const int64_t k_value = static_cast<int64_t>(backend::ValueBytes(options.k_type)),
                v_value = static_cast<int64_t>(backend::ValueBytes(options.v_type));
  size_t total = 0;
  for (const graph::KvLayer& spec : graph.kv_layers()) {
    Layer layer;
    layer.kv_heads = spec.kv_heads;
    layer.head_dim = spec.head_dim;
    layer.k_head_bytes = spec.head_dim * options.page_tokens * k_value;
    layer.v_head_bytes = spec.head_dim * options.page_tokens * v_value;
    layer.k_page_bytes = spec.kv_heads * layer.k_head_bytes;
    layer.v_page_bytes = spec.kv_heads * layer.v_head_bytes;
    total += static_cast<size_t>(options.n_pages * (layer.k_page_bytes + layer.v_page_bytes));
    state->layers_.push_back(layer);
  }
  RIDGE_ASSIGN_OR_RETURN(state->memory_, Buffer::Allocate(total));
  uint8_t* at = state->memory_.As<uint8_t>();
  for (Layer& layer : state->layers_) {
    layer.k = at;
    at += options.n_pages * layer.k_page_bytes;
    layer.v = at;
    at += options.n_pages * layer.v_page_bytes;
  }
  return state;
}

}  // namespace ridge::cpu
