// KV pages and state slots of the CPU backend. Pages lie in groups of a split of attention (256 tokens): of every layer K, then V, each
// [kv_heads][pages of the group][page_tokens / 16] tiles (kernels.h). So memory is touched as tokens come, and a sequence whose pages were taken in
// order is read in long streams. A slot is one piece: of every recurrent layer the rows of its convolution [taps - 1][channels], oldest first, then
// the matrices [heads][value_dim / 16][key_dim][16].
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
  size_t size_bytes() const override { return pages_bytes() + slots_.size_bytes(); }
  size_t scratch_bytes() const override {  // with the spare room of the last group of pages
    return parts_.size_bytes() + full_.size_bytes() + memory_.size_bytes() - pages_bytes();
  }
  void CopyPage(int32_t from, int32_t to) override;
  // Raise it when bytes of a tile or of a slot change their meaning: pages saved before are then refused.
  uint32_t bytes_version() const override { return 1; }
  size_t page_bytes() const override;
  void ReadPage(int32_t page, std::span<std::byte> bytes) const override;
  void WritePage(int32_t page, std::span<const std::byte> bytes) override;
  size_t slot_bytes() const override { return static_cast<size_t>(slot_floats_) * sizeof(float); }
  int64_t slot_tokens(int32_t slot) const override { return slot_tokens_[static_cast<size_t>(slot)]; }
  void ClearSlot(int32_t slot) override;
  void CopySlot(int32_t from, int32_t to) override;
  void ReadSlot(int32_t slot, std::span<std::byte> bytes) const override;
  void WriteSlot(int32_t slot, int64_t tokens, std::span<const std::byte> bytes) override;

  int64_t n_slots() const { return static_cast<int64_t>(slot_tokens_.size()); }
  void SetSlotTokens(int32_t slot, int64_t tokens) { slot_tokens_[static_cast<size_t>(slot)] = tokens; }
  float* conv(int32_t slot, int32_t layer) const {
    return slots_.As<float>() + slot * slot_floats_ + state_offsets_[static_cast<size_t>(layer)].conv;
  }
  float* matrices(int32_t slot, int32_t layer) const {
    return slots_.As<float>() + slot * slot_floats_ + state_offsets_[static_cast<size_t>(layer)].matrices;
  }

  struct Layer {
    int64_t kv_heads = 0, head_dim = 0;
    uint8_t *k = nullptr, *v = nullptr;  // page 0 of the first head
    int64_t k_tile_bytes = 0, v_tile_bytes = 0;
    int64_t k_page_bytes = 0, v_page_bytes = 0;  // of one head
    int64_t k_head_bytes = 0, v_head_bytes = 0;  // of one head, all pages of a group
  };
  const Layer& layer(int32_t index) const { return layers_[static_cast<size_t>(index)]; }
  const PageGroups& groups() const { return groups_; }

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
  PageGroups groups_;
  struct StateOffsets {
    int64_t conv = 0, matrices = 0;  // floats from the start of a slot
  };
  Status CreateSlots(const graph::Graph& graph);
  size_t pages_bytes() const { return static_cast<size_t>(options_.n_pages) * page_bytes(); }
  template <class Piece>
  void ForEachPiece(int32_t page, Piece piece) const;  // piece(its first byte, its bytes), in the order of page_bytes

  std::vector<StateOffsets> state_offsets_;  // by recurrent layer
  int64_t slot_floats_ = 0;
  std::vector<int64_t> slot_tokens_;  // by slot
  Buffer memory_, parts_, full_, slots_;
  int64_t full_stride_ = 0;
};

KvKind KindOf(backend::KvType type);

}  // namespace ridge::cpu
