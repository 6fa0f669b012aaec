// Groups of ops that run as one: a strip of the gated feed-forward, a row of norms and additions, a head of Q, K and V. Each does for
// every element what the single ops would do, in the same order; only where the values in between live is different.
#include <algorithm>
#include <cstring>

#include "backend/cpu/program.h"

namespace ridge::cpu {
namespace {

using graph::Op;
using graph::OpKind;
using graph::ValueId;

constexpr int64_t kHeadBlock = 32;       // tokens of one unit of work per head
constexpr int64_t kUnitElements = 8192;  // of row operators in one unit of work
constexpr int64_t kFewTokens = 8;        // up to here a region is short, and its units are too

}  // namespace

// Columns [col, col + cols) of one row of call.value, a part of at most kStripRows that starts at a whole block.
void CpuProgram::QuantizeStrip(const Call& call, const float* x, int64_t row, int64_t col, int64_t cols) const {
  const int64_t k = graph_->value(call.value).cols;
  if (call.forms[static_cast<int>(ActKind::kQ8x32)]) {
    constexpr ActKind kAct = ActKind::kQ8x32;
    const Slot& slot = SlotOf(call.value, kAct);
    float d[ActScales(kAct, kStripRows)];
    int32_t sums[ActSums(kAct, kStripRows)];
    QuantizeRow(kAct, x, cols, slot.q + row * k + col, d, sums);
    const int64_t n = cols / 32;
    for (int64_t s = 0; s < ActScales(kAct, 32); s++)
      std::copy_n(d + s * n, n, slot.d + row * ActScales(kAct, k) + s * (k / 32) + col / 32);
    std::copy_n(sums, n, slot.sums + row * ActSums(kAct, k) + col / 32);
  }
  if (call.forms[static_cast<int>(ActKind::kQ8x256)]) {
    constexpr ActKind kAct = ActKind::kQ8x256;
    const Slot& slot = SlotOf(call.value, kAct);
    int32_t sums[ActSums(kAct, kStripRows)];
    QuantizeRow(kAct, x, cols, slot.q + row * k + col, slot.d + row * ActScales(kAct, k) + col / 256, sums);
    int32_t* to = slot.sums + row * ActSums(kAct, k);
    // 16-bit sums of each 16 quants, then of each 32.
    const char* from = reinterpret_cast<const char*>(sums);
    char* bytes = reinterpret_cast<char*>(to);
    std::memcpy(bytes + col / 8, from, static_cast<size_t>(cols / 8));
    std::memcpy(bytes + k / 8 + col / 16, from + cols / 8, static_cast<size_t>(cols / 16));
  }
}

// One unit is a strip of gate and up for a block of tokens: products into a tile, activation, quantization of the strip.
void CpuProgram::RunGateUp(const Call& call) {
  const Op &gate_op = *call.ops[0], &up_op = *call.ops[1], &act = *call.ops[2];
  const bool swapped = act.in[0] != gate_op.out;  // the graph may have written up first
  const Product gate = ProductOf(swapped ? up_op : gate_op, nullptr, nullptr),
                up = ProductOf(swapped ? gate_op : up_op, nullptr, nullptr);
  const GateKind kind = GateOf(act.activation);
  const int64_t n = gate.matrix->n, tokens = gate.n_tokens;
  float* out = call.floats ? Data(act.out) : nullptr;
  const bool wide = tokens > kFewTokens || call.forms[static_cast<int>(ActKind::kQ8x256)];
  const int64_t rows = wide ? kStripRows : kStripRows / 4;
  const int64_t block = TokenBlock(tokens);
  const int64_t strips = (n + rows - 1) / rows, blocks = (tokens + block - 1) / block;
  pool_->ParallelFor(static_cast<size_t>(strips * blocks), 1, [&](size_t begin, size_t end, int worker) {
    float* gates = worker_tile_[static_cast<size_t>(worker)];
    float* ups = gates + kTokenBlock * kStripRows;
    for (int64_t unit = static_cast<int64_t>(begin); unit < static_cast<int64_t>(end); unit++) {
      const int64_t row = unit / blocks * rows, cols = std::min(rows, n - row);
      const int64_t token = unit % blocks * block, last = std::min(token + block, tokens);
      const int64_t panel = row / kPanelRows, panel_end = (row + cols + kPanelRows - 1) / kPanelRows;
      Panels(gate, panel, panel_end, token, last, gates, rows, worker);
      Panels(up, panel, panel_end, token, last, ups, rows, worker);
      for (int64_t t = token; t < last; t++) {
        float* x = gates + (t - token) * rows;
        kernels_->gated_act(x, ups + (t - token) * rows, kind, cols, x);
        QuantizeStrip(call, x, t, row, cols);
        if (out != nullptr) std::copy_n(x, cols, out + t * n + row);
      }
    }
  });
}

// One unit is some whole rows.
void CpuProgram::RunRowChain(const Call& call) {
  const int64_t cols = graph_->value(call.value).cols;
  pool_->ParallelFor(static_cast<size_t>(Rows(call.value)),
                     static_cast<size_t>(std::max<int64_t>(1, kUnitElements / cols)),
                     [&](size_t begin, size_t end, int worker) {
                       for (int64_t r = static_cast<int64_t>(begin); r < static_cast<int64_t>(end); r++) {
                         float* result = nullptr;
                         for (const Op* op : call.ops) {
                           const float* a = Data(op->in[0]) + r * cols;
                           result = op->out == call.value && !call.floats ? worker_tile_[static_cast<size_t>(worker)]
                                                                          : Data(op->out) + r * cols;
                           if (op->kind == OpKind::kAdd)
                             kernels_->add(a, Data(op->in[1]) + r * cols, cols, result);
                           else if (op->kind == OpKind::kScale)
                             kernels_->scale(a, op->scalar, cols, result);
                           else
                             kernels_->rms_norm(a, weights_.vector(op->weights[0]), cols, op->scalar, result);
                         }
                         QuantizeInto(call, result, r);
                       }
                     });
}

namespace {

// What happens to the heads of one value between its product and the KV or attention.
struct HeadWork {
  ValueId from = graph::kNone;
  const Op *norm = nullptr, *rope = nullptr;
};

HeadWork WorkBefore(const std::vector<const Op*>& ops, ValueId id) {
  HeadWork work{.from = id};
  for (size_t i = ops.size(); i-- > 0;) {
    if (ops[i]->out != work.from || ops[i]->out == graph::kNone) continue;
    (ops[i]->kind == OpKind::kRope ? work.rope : work.norm) = ops[i];
    work.from = ops[i]->in[0];
  }
  return work;
}

}  // namespace

// One unit is one head of Q, or one of K and V, for a block of tokens.
void CpuProgram::RunRopeKv(const Call& call) {
  const Op& append = *call.ops.back();
  const PagedState::Layer& layer = state_->layer(append.attention.layer);
  const HeadWork k = WorkBefore(call.ops, append.in[0]), q = WorkBefore(call.ops, call.value);
  const bool has_q = call.value != graph::kNone;
  const int64_t dim = layer.head_dim, k_cols = layer.kv_heads * dim,
                q_cols = has_q ? graph_->value(call.value).cols : 0;
  const int64_t heads = q_cols / dim, jobs = heads + layer.kv_heads;
  const int64_t tokens = static_cast<int64_t>(step_->tokens.size()), blocks = (tokens + kHeadBlock - 1) / kHeadBlock;
  const auto turn = [&](const HeadWork& work, const float* from, int64_t t, float* to) {
    if (work.norm != nullptr)
      kernels_->rms_norm(from, weights_.vector(work.norm->weights[0]), dim, work.norm->scalar, to);
    else if (from != to)
      std::memcpy(to, from, static_cast<size_t>(dim) * sizeof(float));
    if (work.rope == nullptr) return;
    const size_t index = static_cast<size_t>(work.rope->rope);
    const graph::RopeSpec& spec = graph_->ropes()[index];
    const int64_t at = t * (spec.rotary_dims / 2);
    kernels_->rope(to, rope_cos_[index] + at, rope_sin_[index] + at, spec.rotary_dims, spec.interleaved);
  };
  const size_t grain = static_cast<size_t>(std::max<int64_t>(1, kUnitElements / (std::min(tokens, kHeadBlock) * dim)));
  pool_->ParallelFor(static_cast<size_t>(blocks * jobs), grain, [&](size_t begin, size_t end, int worker) {
    float* tile = worker_tile_[static_cast<size_t>(worker)];
    for (int64_t unit = static_cast<int64_t>(begin); unit < static_cast<int64_t>(end); unit++) {
      const int64_t first = unit / jobs * kHeadBlock, last = std::min(first + kHeadBlock, tokens), job = unit % jobs;
      if (job < heads) {
        for (int64_t t = first; t < last; t++) {
          const int64_t at = t * q_cols + job * dim;
          turn(q, Data(q.from) + at, t, Data(call.value) + at);
        }
        continue;
      }
      const int64_t h = job - heads;
      int64_t s = std::ranges::upper_bound(step_->seq_start, first) - step_->seq_start.begin() - 1;
      for (int64_t t = first; t < last; t++) {
        while (t >= step_->seq_start[static_cast<size_t>(s) + 1]) s++;
        const int64_t at = t * k_cols + h * dim;
        const float* row = Data(k.from) + at;
        if (k.rope != nullptr) {
          turn(k, row, t, tile);
          row = tile;
        }
        StoreKv(append.attention.layer, s, t, h, row, Data(append.in[1]) + at);
      }
    }
  });
}

}  // namespace ridge::cpu
