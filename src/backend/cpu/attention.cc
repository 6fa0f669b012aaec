// Attention ops of a program: what is computed together, and by whom. Neither changes a bit of the result.
#include <algorithm>
#include <cstring>

#include "backend/cpu/program.h"

namespace ridge::cpu {
namespace {

using graph::Op;

constexpr int64_t kUnitsPerThread =
    8;  // pieces of work to aim at, so that a thread that is held up delays nobody for long
constexpr int64_t kAppendBlock = 64;    // tokens of one unit of KV append
constexpr int64_t kAppendGrain = 8192;  // values of one claim of it

}  // namespace

void CpuProgram::StoreKv(int32_t layer_id, int64_t sequence, int64_t token, int64_t head, const float* k,
                         const float* v) {
  const PagedState::Layer& layer = state_->layer(layer_id);
  const backend::StateOptions& o = state_->options();
  const int64_t table = static_cast<int64_t>(step_->page_table.size() / (step_->seq_start.size() - 1));
  const int64_t position = step_->positions[static_cast<size_t>(token)], slot = position % o.page_tokens,
                tile = slot / kKvTile;
  const int64_t page = step_->page_table[static_cast<size_t>(sequence * table + position / o.page_tokens)];
  kernels_->store_k[static_cast<int>(KindOf(o.k_type))](
      k, layer.head_dim,
      layer.k + head * layer.k_head_bytes + state_->groups().At(page, layer.k_page_bytes) + tile * layer.k_tile_bytes,
      slot % kKvTile);
  kernels_->store_v[static_cast<int>(KindOf(o.v_type))](
      v, layer.head_dim,
      layer.v + head * layer.v_head_bytes + state_->groups().At(page, layer.v_page_bytes) + tile * layer.v_tile_bytes,
      slot % kKvTile);
}

void CpuProgram::RunAppendKv(const Op& op) {
  const PagedState::Layer& layer = state_->layer(op.attention.layer);
  const float *k = Data(op.in[0]), *v = Data(op.in[1]);
  const int64_t tokens = static_cast<int64_t>(step_->tokens.size()),
                blocks = (tokens + kAppendBlock - 1) / kAppendBlock;
  const int64_t unit_values = 2 * std::min(tokens, kAppendBlock) * layer.head_dim;
  pool_->ParallelFor(static_cast<size_t>(layer.kv_heads * blocks),
                     static_cast<size_t>(std::max<int64_t>(1, kAppendGrain / unit_values)),
                     [&](size_t begin, size_t end, int) {
                       for (int64_t unit = static_cast<int64_t>(begin); unit < static_cast<int64_t>(end); unit++) {
                         const int64_t h = unit / blocks, first = unit % blocks * kAppendBlock,
                                       last = std::min(first + kAppendBlock, tokens);
                         int64_t s = std::upper_bound(step_->seq_start.begin(), step_->seq_start.end(), first) -
                                     step_->seq_start.begin() - 1;
                         for (int64_t t = first; t < last; t++) {
                           while (t >= step_->seq_start[static_cast<size_t>(s) + 1]) s++;
                           const int64_t from = (t * layer.kv_heads + h) * layer.head_dim;
                           StoreKv(op.attention.layer, s, t, h, k + from, v + from);
                         }
                       }
                     });
}

// Tokens of a tile. The more, the more rows share each read of K and V; the fewer, the more tiles there are for the threads, unless tiles
// are cut into splits, which takes room for the parts of all rows.
int64_t CpuProgram::TileTokens(const graph::AttentionSpec& spec, int64_t heads, int64_t wanted) const {
  const int64_t most = kMaxQueryRows / heads, tokens = static_cast<int64_t>(step_->tokens.size());
  if (pool_->size() == 1 || tokens * spec.kv_heads >= wanted * most) return most;
  int64_t parts = 0, longest = 0;
  for (size_t s = 0; s + 1 < step_->seq_start.size(); s++) {
    const int64_t first = step_->seq_start[s], last = step_->seq_start[s + 1] - 1;
    const int64_t highest = step_->positions[static_cast<size_t>(last)];
    const int64_t lowest = spec.window > 0 ? step_->positions[static_cast<size_t>(first)] + 1 - spec.window : 0;
    const int64_t splits = highest / kKvSplit - std::max<int64_t>(0, lowest) / kKvSplit + 1;
    parts += (last + 1 - first) * spec.heads * splits;
    longest = std::max(longest, splits);
  }
  const bool room = state_->full_stride() == 0 && parts * AttentionPartFloats(spec.head_dim) <= state_->parts_floats();
  if (room && longest >= 2 * pool_->size()) return most;
  const int64_t fewest = std::min(most, std::max<int64_t>(1, kMaxTileRows / heads));
  return std::clamp(tokens * spec.kv_heads / wanted, fewest, most);
}

// Cuts the step's query rows into tiles, and tiles that would take more than their share of the time into units of some splits.
void CpuProgram::PlanAttention(const graph::AttentionSpec& spec) {
  tiles_.clear();
  units_.clear();
  combined_.clear();
  const int64_t group = spec.heads / spec.kv_heads, heads = std::min<int64_t>(group, kMaxQueryRows);
  const int64_t wanted = kUnitsPerThread * pool_->size(), tile_tokens = TileTokens(spec, heads, wanted);
  double total = 0;  // cost: tokens seen times rows
  const auto cost = [](const QueryTile& t) { return static_cast<double>((t.split_end - t.split_begin) * t.rows()); };
  for (size_t s = 0; s + 1 < step_->seq_start.size(); s++) {
    const int64_t first = step_->seq_start[s], n = step_->seq_start[s + 1] - first;
    const int64_t count = (n + tile_tokens - 1) / tile_tokens;  // as equal as they can be
    // The longest first: what is claimed last is short.
    for (int64_t tile = count - 1; tile >= 0; tile--) {
      QueryTile t{.seq = s, .token_begin = first + tile * n / count, .token_end = first + (tile + 1) * n / count};
      const int64_t lowest = step_->positions[static_cast<size_t>(t.token_begin)],
                    highest = step_->positions[static_cast<size_t>(t.token_end - 1)];
      t.split_begin = spec.window > 0 ? std::max<int64_t>(0, lowest + 1 - spec.window) / kKvSplit : 0;
      const int64_t last = step_->positions[static_cast<size_t>(step_->seq_start[s + 1] - 1)];
      t.split_end = (spec.causal ? highest : last) / kKvSplit + 1;
      for (t.kv_head = 0; t.kv_head < spec.kv_heads; t.kv_head++) {
        for (t.head_begin = 0; t.head_begin < group; t.head_begin += heads) {
          t.head_end = std::min(group, t.head_begin + heads);
          tiles_.push_back(t);
          total += cost(t);
        }
      }
    }
  }
  const double share = total / static_cast<double>(wanted);
  int64_t room = state_->full_stride() > 0 ? 0 : state_->parts_floats();
  float* parts = state_->parts();
  for (size_t i = 0; i < tiles_.size(); i++) {
    QueryTile& t = tiles_[i];
    const int64_t splits = t.split_end - t.split_begin, need = splits * t.rows() * AttentionPartFloats(spec.head_dim);
    if (pool_->size() == 1 || splits < 2 || cost(t) <= share || need > room) {
      units_.push_back({i, t.split_begin, t.split_end});
      continue;
    }
    t.parts = parts;
    parts += need;
    room -= need;
    const int64_t pieces = std::min(splits, static_cast<int64_t>(cost(t) / share) + 1);
    for (int64_t p = 0; p < pieces; p++)
      units_.push_back({i, t.split_begin + p * splits / pieces, t.split_begin + (p + 1) * splits / pieces});
    for (int64_t r = 0; r < t.rows(); r++) combined_.emplace_back(i, r);
  }
}

void CpuProgram::AttendUnit(const Op& op, const AttentionUnit& unit, int worker) {
  const graph::AttentionSpec& spec = op.attention;
  const PagedState::Layer& layer = state_->layer(spec.layer);
  const backend::StateOptions& o = state_->options();
  const QueryTile& tile = tiles_[unit.tile];
  const float* q = Data(op.in[0]);
  float* out = Data(op.out);
  const int64_t group = spec.heads / spec.kv_heads, cols = spec.heads * spec.head_dim;
  const float* rows[kMaxQueryRows];
  float* outs[kMaxQueryRows];
  int64_t lo[kMaxQueryRows], hi[kMaxQueryRows], count = 0;
  const int64_t length = step_->positions[static_cast<size_t>(step_->seq_start[tile.seq + 1] - 1)] + 1;
  for (int64_t t = tile.token_begin; t < tile.token_end; t++) {
    const int64_t position = step_->positions[static_cast<size_t>(t)];
    for (int64_t h = tile.head_begin; h < tile.head_end; h++, count++) {
      const int64_t offset = t * cols + (tile.kv_head * group + h) * spec.head_dim;
      rows[count] = q + offset;
      outs[count] = out + offset;
      hi[count] = spec.causal ? position + 1 : length;
      lo[count] = spec.window > 0 ? std::max<int64_t>(0, position + 1 - spec.window) : 0;
    }
  }
  const size_t table = step_->page_table.size() / (step_->seq_start.size() - 1);
  AttentionArgs args{.n_rows = count,
                     .q = rows,
                     .out = outs,
                     .lo = lo,
                     .hi = hi,
                     .k_kind = KindOf(o.k_type),
                     .v_kind = KindOf(o.v_type),
                     .k = layer.k + tile.kv_head * layer.k_head_bytes,
                     .v = layer.v + tile.kv_head * layer.v_head_bytes,
                     .k_page_bytes = layer.k_page_bytes,
                     .v_page_bytes = layer.v_page_bytes,
                     .groups = state_->groups(),
                     .pages = step_->page_table.data() + tile.seq * table,
                     .page_tokens = o.page_tokens,
                     .head_dim = spec.head_dim,
                     .scale = spec.scale,
                     .scratch = worker_scratch_[static_cast<size_t>(worker)],
                     .full = state_->full_scores(worker),
                     .full_stride = state_->full_stride()};
  if (tile.parts != nullptr) {
    args.parts = tile.parts + (unit.split_begin - tile.split_begin) * count * AttentionPartFloats(spec.head_dim);
    args.split_begin = unit.split_begin;
    args.split_end = unit.split_end;
  }
  kernels_->attention(args);
}

void CpuProgram::CombineTile(const Op& op, const QueryTile& tile, int64_t row) {
  const graph::AttentionSpec& spec = op.attention;
  const int64_t heads = tile.head_end - tile.head_begin, part = AttentionPartFloats(spec.head_dim);
  const int64_t token = tile.token_begin + row / heads,
                head = tile.kv_head * (spec.heads / spec.kv_heads) + tile.head_begin + row % heads;
  kernels_->combine_attention(tile.parts + row * part, tile.split_end - tile.split_begin, tile.rows() * part,
                              spec.head_dim, Data(op.out) + (token * spec.heads + head) * spec.head_dim);
}

void CpuProgram::RunAttention(const Op& op) {
  PlanAttention(op.attention);
  pool_->ParallelFor(units_.size(), 1, [&](size_t begin, size_t end, int worker) {
    for (size_t i = begin; i < end; i++) AttendUnit(op, units_[i], worker);
  });
  pool_->ParallelFor(combined_.size(), 4, [&](size_t begin, size_t end, int) {
    for (size_t i = begin; i < end; i++) CombineTile(op, tiles_[combined_[i].first], combined_[i].second);
  });
}

}  // namespace ridge::cpu
