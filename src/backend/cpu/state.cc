#include "backend/cpu/state.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace ridge::cpu {
namespace {

Status CheckHead(const char* flag, backend::KvType type, int64_t head_dim) {
  const bool blocks = type == backend::KvType::kQ8_0 || type == backend::KvType::kQ4_0;
  if (!blocks || head_dim % 32 == 0) return {};
  return Fail(Code::kUnsupported, "the model's heads are no multiple of this KV type's block")
      .Where(flag)
      .Found(std::string(backend::Name(type)) + " with heads of " + std::to_string(head_dim) + " channels")
      .Expected("a multiple of 32 channels")
      .Remedy(std::string("give ") + flag + " f16");
}

int64_t GroupsOf(int64_t pages, int64_t all) { return (all + pages - 1) / pages; }

}  // namespace

KvKind KindOf(backend::KvType type) {
  switch (type) {
    case backend::KvType::kF16: return KvKind::kF16;
    case backend::KvType::kBF16: return KvKind::kBF16;
    case backend::KvType::kF32: return KvKind::kF32;
    case backend::KvType::kQ8_0: return KvKind::kQ8_0;
    case backend::KvType::kQ4_0: return KvKind::kQ4_0;
  }
  return KvKind::kF16;
}

Result<std::unique_ptr<PagedState>> PagedState::Create(const graph::Graph& graph, const backend::StateOptions& options,
                                                       int n_threads) {
  constexpr int64_t kMaxPageTokens = 512;
  if (options.page_tokens < kKvTile || options.page_tokens > kMaxPageTokens ||
      kMaxPageTokens % options.page_tokens != 0) {
    return Fail(Code::kInvalidArgument, "KV page size does not fit the attention kernels")
        .Where("--kv-page")
        .Found(std::to_string(options.page_tokens))
        .Expected("16, 32, 64, 128, 256 or 512 tokens");
  }
  if (options.n_pages < 1)
    return Fail(Code::kInvalidArgument, "KV needs at least one page").Found(std::to_string(options.n_pages));
  auto state = std::make_unique<PagedState>();
  state->options_ = options;
  const int64_t tiles = options.page_tokens / kKvTile;
  PageGroups& groups = state->groups_;
  // The last group may have more room than pages: at most an eighth of them all.
  constexpr int64_t kMostSpare = 8;
  for (int64_t pages = 2; pages * options.page_tokens <= kKvSplit; pages *= 2) {
    if (kMostSpare * (GroupsOf(pages, options.n_pages) * pages - options.n_pages) > options.n_pages) break;
    groups.shift++;
  }
  const int64_t group_pages = int64_t{1} << groups.shift;
  for (const graph::KvLayer& spec : graph.kv_layers()) {
    RIDGE_RETURN_IF_ERROR(CheckHead("-ctk", options.k_type, spec.head_dim));
    RIDGE_RETURN_IF_ERROR(CheckHead("-ctv", options.v_type, spec.head_dim));
    Layer layer;
    layer.kv_heads = spec.kv_heads;
    layer.head_dim = spec.head_dim;
    layer.k_tile_bytes = KvTileBytes(KindOf(options.k_type), spec.head_dim);
    layer.v_tile_bytes = KvTileBytes(KindOf(options.v_type), spec.head_dim);
    layer.k_page_bytes = tiles * layer.k_tile_bytes;
    layer.v_page_bytes = tiles * layer.v_tile_bytes;
    layer.k_head_bytes = group_pages * layer.k_page_bytes;
    layer.v_head_bytes = group_pages * layer.v_page_bytes;
    groups.bytes += spec.kv_heads * (layer.k_head_bytes + layer.v_head_bytes);
    state->layers_.push_back(layer);
  }
  int64_t part_floats = 0, kv_tokens = options.n_pages * options.page_tokens;
  for (const graph::Op& op : graph.ops()) {
    if (op.kind == graph::OpKind::kAttention)
      part_floats = std::max(part_floats, op.attention.heads * AttentionPartFloats(op.attention.head_dim));
  }
  if (n_threads > 1) {
    // The last, partly filled split of so many sequences, or a chunk of a prompt of which all rows have parts.
    constexpr int64_t kMoreSplits = 512;
    RIDGE_ASSIGN_OR_RETURN(
        state->parts_,
        Buffer::Allocate(static_cast<size_t>((kv_tokens / kKvSplit + kMoreSplits) * part_floats) * sizeof(float)));
  }
  if (!options.flash_attention) {
    state->full_stride_ = kv_tokens + kKvTile;
    RIDGE_ASSIGN_OR_RETURN(
        state->full_,
        Buffer::Allocate(static_cast<size_t>(n_threads * kMaxTileRows * state->full_stride_) * sizeof(float)));
  }
  RIDGE_ASSIGN_OR_RETURN(state->memory_,
                         Buffer::Allocate(static_cast<size_t>(GroupsOf(group_pages, options.n_pages) * groups.bytes)));
  uint8_t* at = state->memory_.As<uint8_t>();
  for (Layer& layer : state->layers_) {
    layer.k = at;
    at += layer.kv_heads * layer.k_head_bytes;
    layer.v = at;
    at += layer.kv_heads * layer.v_head_bytes;
  }
  RIDGE_RETURN_IF_ERROR(state->CreateSlots(graph));
  if (options.resident) {
    for (const Buffer* buffer : {&state->memory_, &state->parts_, &state->slots_})
      RIDGE_RETURN_IF_ERROR(buffer->Populate());
  }
  return state;
}

template <class Piece>
void PagedState::ForEachPiece(int32_t page, Piece piece) const {
  RIDGE_CHECK(page >= 0 && page < options_.n_pages);
  for (const Layer& layer : layers_) {
    for (int64_t head = 0; head < layer.kv_heads; head++)
      piece(layer.k + head * layer.k_head_bytes + groups_.At(page, layer.k_page_bytes),
            static_cast<size_t>(layer.k_page_bytes));
    for (int64_t head = 0; head < layer.kv_heads; head++)
      piece(layer.v + head * layer.v_head_bytes + groups_.At(page, layer.v_page_bytes),
            static_cast<size_t>(layer.v_page_bytes));
  }
}

size_t PagedState::page_bytes() const {
  size_t bytes = 0;
  for (const Layer& layer : layers_)
    bytes += static_cast<size_t>(layer.kv_heads * (layer.k_page_bytes + layer.v_page_bytes));
  return bytes;
}

void PagedState::ReadPage(int32_t page, std::span<std::byte> bytes) const {
  RIDGE_CHECK(bytes.size() == page_bytes());
  std::byte* to = bytes.data();
  ForEachPiece(page, [&](const uint8_t* from, size_t n) {
    std::memcpy(to, from, n);
    to += n;
  });
}

void PagedState::WritePage(int32_t page, std::span<const std::byte> bytes) {
  RIDGE_CHECK(bytes.size() == page_bytes());
  const std::byte* from = bytes.data();
  ForEachPiece(page, [&](uint8_t* to, size_t n) {
    std::memcpy(to, from, n);
    from += n;
  });
}

void PagedState::ReadSlot(int32_t slot, std::span<std::byte> bytes) const {
  RIDGE_CHECK(slot >= 0 && slot < n_slots() && bytes.size() == slot_bytes());
  std::memcpy(bytes.data(), slots_.As<float>() + slot * slot_floats_, slot_bytes());
}

void PagedState::WriteSlot(int32_t slot, int64_t tokens, std::span<const std::byte> bytes) {
  RIDGE_CHECK(slot >= 0 && slot < n_slots() && bytes.size() == slot_bytes());
  std::memcpy(slots_.As<float>() + slot * slot_floats_, bytes.data(), slot_bytes());
  slot_tokens_[static_cast<size_t>(slot)] = tokens;
}

void PagedState::CopyPage(int32_t from, int32_t to) {
  RIDGE_CHECK(from >= 0 && from < options_.n_pages && to >= 0 && to < options_.n_pages);
  if (from == to) return;
  for (const Layer& layer : layers_) {
    for (int64_t head = 0; head < layer.kv_heads; head++) {
      uint8_t* k = layer.k + head * layer.k_head_bytes;
      std::memcpy(k + groups_.At(to, layer.k_page_bytes), k + groups_.At(from, layer.k_page_bytes),
                  static_cast<size_t>(layer.k_page_bytes));
      uint8_t* v = layer.v + head * layer.v_head_bytes;
      std::memcpy(v + groups_.At(to, layer.v_page_bytes), v + groups_.At(from, layer.v_page_bytes),
                  static_cast<size_t>(layer.v_page_bytes));
    }
  }
}

Status PagedState::CreateSlots(const graph::Graph& graph) {
  if (graph.state_layers().empty()) return {};
  constexpr int64_t kMaxSlots = 1 << 20;
  if (options_.n_slots < 1 || options_.n_slots > kMaxSlots) {
    return Fail(Code::kInvalidArgument, "number of state slots makes no sense")
        .Found(std::to_string(options_.n_slots))
        .Expected("1 to " + std::to_string(kMaxSlots));
  }
  constexpr int64_t kLine = 16;  // floats of a cache line
  for (const graph::StateLayer& spec : graph.state_layers()) {
    StateOffsets offsets;
    offsets.conv = slot_floats_;
    slot_floats_ += (spec.conv_floats() + kLine - 1) / kLine * kLine;
    offsets.matrices = slot_floats_;
    slot_floats_ += (spec.matrix_floats() + kLine - 1) / kLine * kLine;
    state_offsets_.push_back(offsets);
  }
  slot_tokens_.assign(static_cast<size_t>(options_.n_slots), 0);
  RIDGE_ASSIGN_OR_RETURN(slots_, Buffer::Allocate(static_cast<size_t>(options_.n_slots) * slot_bytes()));
  return {};
}

void PagedState::ClearSlot(int32_t slot) {
  RIDGE_CHECK(slot >= 0 && slot < n_slots());
  slot_tokens_[static_cast<size_t>(slot)] = 0;  // the kernels begin anew at position 0, whatever lies there
}

void PagedState::CopySlot(int32_t from, int32_t to) {
  RIDGE_CHECK(from >= 0 && from < n_slots() && to >= 0 && to < n_slots());
  if (from == to) return;
  float* slots = slots_.As<float>();
  std::memcpy(slots + to * slot_floats_, slots + from * slot_floats_, slot_bytes());
  slot_tokens_[static_cast<size_t>(to)] = slot_tokens_[static_cast<size_t>(from)];
}

}  // namespace ridge::cpu
