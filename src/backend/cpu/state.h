// KV pages of the CPU backend. Of every layer, K and V are [kv_heads][n_pages][page_tokens / 16] tiles (kernels.h): the pages of one head
// lie side by side, so that a sequence whose pages were taken in order is read as one stream.
#pragma once

#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels/kernels.h"
#include "base/memory.h"

namespace ridge::cpu {

class PagedState : public backend::StateStore {
 public:
  // Errors: kInvalidArgument (page size), kUnsupported (a block type whose block does not divide the head), kResourceExhausted.
  static Result<std::unique_ptr<PagedState>> Create(const graph::Graph& graph, const backend::StateOptions& options,
                                                    int n_threads);

  const backend::StateOptions& options() const override { return options_; }
  size_t size_bytes() const override { return memory_.size_bytes(); }
  void CopyPage(int32_t from, int32_t to) override;

  struct Layer {
    int64_t kv_heads = 0, head_dim = 0;
    uint8_t *k = nullptr, *v = nullptr;  // first page of the first head
    int64_t k_tile_bytes = 0, v_tile_bytes = 0;
    int64_t k_page_bytes = 0, v_page_bytes = 0;  // of one head
    int64_t k_head_bytes = 0, v_head_bytes = 0;  // all pages of one head
  };
  const Layer& layer(int32_t index) const { return layers_[static_cast<size_t>(index)]; }

  // Room for splits that several threads compute, [row of a split][AttentionPartFloats]: enough for one token of every sequence.
  float* parts() const { return parts_.As<float>(); }
  int64_t parts_floats() const { return static_cast<int64_t>(parts_.size_bytes() / sizeof(float)); }
  // Without flash attention: the scores of a worker's tile, [kMaxTileRows][full_stride]; nullptr with it.
  float* full_scores(int worker) const {
    return full_stride_ == 0 ? nullptr : full_.As<float>() + worker * kMaxTileRows * full_stride_;
  }
  int64_t full_stride() const { return full_stride_; }

 private:
  backend::StateOptions options_;
  std::vector<Layer> layers_;
  Buffer memory_, parts_, full_;
  int64_t full_stride_ = 0;
};

KvKind KindOf(backend::KvType type);

}  // namespace ridge::cpu
