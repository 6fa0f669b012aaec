// KV pages of the CPU backend. Of every layer, page p of K is [kv_heads][head_dim][page_tokens] and of V [kv_heads][page_tokens][head_dim]:
// tokens lie along the lanes of K, channels along the lanes of V.
#pragma once

#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels/kernels.h"
#include "base/memory.h"

namespace ridge::cpu {

class PagedState : public backend::StateStore {
 public:
  static Result<std::unique_ptr<PagedState>> Create(const graph::Graph& graph, const backend::StateOptions& options);

  const backend::StateOptions& options() const override { return options_; }
  size_t size_bytes() const override { return memory_.size_bytes(); }

  struct Layer {
    int64_t kv_heads = 0, head_dim = 0;
    uint8_t *k = nullptr, *v = nullptr;  // first page
    int64_t k_page_bytes = 0, v_page_bytes = 0;
    int64_t k_head_bytes = 0, v_head_bytes = 0;  // of one head inside a page
  };
  const Layer& layer(int32_t index) const { return layers_[static_cast<size_t>(index)]; }

 private:
  backend::StateOptions options_;
  std::vector<Layer> layers_;
  Buffer memory_;
};

KvKind KindOf(backend::KvType type);

}  // namespace ridge::cpu
