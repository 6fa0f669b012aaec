// The memory plan: which values share a buffer, which live in scratch only, and one arena for all.
#include <algorithm>

#include "backend/cpu/program.h"

namespace ridge::cpu {
namespace {

using graph::kNone;
using graph::Op;
using graph::OpKind;
using graph::ValueId;

// May the result replace its first input, if nothing needs that any more?
bool CanOverwrite(const Op& op) {
  switch (op.kind) {
    case OpKind::kRmsNorm:
    case OpKind::kLayerNorm:
    case OpKind::kAct:
    case OpKind::kRope:
    case OpKind::kAdd:
    case OpKind::kGatedAct:
    case OpKind::kScale:
    case OpKind::kSoftcap: return true;
    case OpKind::kEmbed:
    case OpKind::kMatMul:
    case OpKind::kAppendKv:
    case OpKind::kAttention:
    case OpKind::kSelectRows:
    case OpKind::kExperts:
    case OpKind::kSlice:
    case OpKind::kShortConv:
    case OpKind::kDeltaRule: return false;
  }
  return false;
}

size_t Align(size_t n) { return (n + 63) / 64 * 64; }

// Hands out pieces of an arena whose size is still unknown; fills the pointers once it is allocated.
class Layout {
 public:
  template <class T>
  void Add(T** pointer, int64_t count) {
    entries_.push_back({reinterpret_cast<void**>(pointer), size_});
    size_ += Align(static_cast<size_t>(count) * sizeof(T));
  }
  Result<Buffer> Allocate() const {
    RIDGE_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(size_));
    for (const Entry& e : entries_) *e.pointer = buffer.data() + e.offset;
    return buffer;
  }

 private:
  struct Entry {
    void** pointer;
    size_t offset;
  };
  std::vector<Entry> entries_;
  size_t size_ = 0;
};

}  // namespace

std::vector<bool> CpuProgram::Elided() const {
  std::vector<bool> elided(graph_->values().size(), false);
  for (const Call& call : calls_) {
    if (call.pass == graph::Pass::kResidual || call.pass == graph::Pass::kGateUp) {
      for (size_t i = 0; i + 1 < call.ops.size(); i++) elided[static_cast<size_t>(call.ops[i]->out)] = true;
    }
    if (call.pass && !call.floats) elided[static_cast<size_t>(call.value)] = true;
  }
  return elided;
}

// The output, and the values that ops in place turn into it: all of them lie in the caller's logits.
std::vector<bool> CpuProgram::OutputChain(const std::vector<size_t>& last_op) const {
  std::vector<bool> chain(graph_->values().size(), false);
  ValueId id = graph_->output();
  chain[static_cast<size_t>(id)] = true;
  size_t number = 0;
  for (const Call& call : calls_) number += call.ops.size();
  for (size_t c = calls_.size(); c-- > 0;) {
    for (size_t i = calls_[c].ops.size(); i-- > 0; number--) {
      const Op& op = *calls_[c].ops[i];
      if (op.out != id || !CanOverwrite(op) || last_op[static_cast<size_t>(op.in[0])] != number) continue;
      id = op.in[0];
      chain[static_cast<size_t>(id)] = true;
    }
  }
  return chain;
}

Status CpuProgram::PlanMemory() {
  const auto& values = graph_->values();
  const std::vector<bool> elided = Elided();
  // When each value is read for the last time: by which call, and by which op of all calls.
  std::vector<size_t> last_call(values.size(), 0), last_op(values.size(), 0);
  size_t n_ops = 0;
  for (size_t c = 0; c < calls_.size(); c++) {
    if (calls_[c].ops.empty()) last_call[static_cast<size_t>(calls_[c].value)] = c;
    for (const Op* op : calls_[c].ops) {
      n_ops++;
      for (ValueId in : op->in) last_call[static_cast<size_t>(in)] = c, last_op[static_cast<size_t>(in)] = n_ops;
    }
  }
  last_call[static_cast<size_t>(graph_->output())] = calls_.size();

  // Buffers are shared by values whose lives do not overlap; kOutput stands for the caller's logits. Calls, not ops, delimit lives: the
  // ops of a fused group run row by row or strip by strip, all at once.
  constexpr int kNothing = -2, kOutput = -1;
  std::vector<int> buffer_of(values.size(), kNothing);
  std::vector<int64_t> buffer_floats;
  std::vector<int> free_buffers;
  const auto floats = [&](ValueId id) {
    const graph::Value& v = graph_->value(id);
    return v.cols * (v.rows == graph::Rows::kTokens ? options_.max_tokens : options_.max_logit_rows);
  };
  const auto take = [&](int64_t need) {
    auto best = free_buffers.end();  // the smallest that is large enough, else the largest
    for (auto it = free_buffers.begin(); it != free_buffers.end(); ++it) {
      const int64_t size = buffer_floats[static_cast<size_t>(*it)];
      if (best == free_buffers.end()) {
        best = it;
        continue;
      }
      const int64_t have = buffer_floats[static_cast<size_t>(*best)];
      if (size >= need ? have < need || size < have : have < need && size > have) best = it;
    }
    int chosen = static_cast<int>(buffer_floats.size());
    if (best != free_buffers.end()) {
      chosen = *best;
      free_buffers.erase(best);
    } else {
      buffer_floats.push_back(0);
    }
    buffer_floats[static_cast<size_t>(chosen)] = std::max(buffer_floats[static_cast<size_t>(chosen)], need);
    return chosen;
  };
  const std::vector<bool> is_output = OutputChain(last_op);
  size_t op_number = 0;
  for (size_t c = 0; c < calls_.size(); c++) {
    const Call& call = calls_[c];
    for (const Op* op : call.ops) {
      op_number++;
      if (op->out == kNone || elided[static_cast<size_t>(op->out)]) continue;
      int& chosen = buffer_of[static_cast<size_t>(op->out)];
      const size_t first = op->in.empty() ? 0 : static_cast<size_t>(op->in[0]);
      const bool in_place = CanOverwrite(*op) && last_op[first] == op_number && buffer_of[first] >= 0 &&
                            (call.ops[0]->in.empty() || op == call.ops[0] || call.pass != graph::Pass::kResidual ||
                             call.ops[0]->in[0] != op->in[0]);
      if (is_output[static_cast<size_t>(op->out)]) {
        chosen = kOutput;
      } else if (in_place) {
        chosen = buffer_of[first];
        last_call[first] = calls_.size() + 1;  // handed over, not freed below
      } else {
        chosen = take(floats(op->out));
      }
    }
    // What was read or made for the last time here is free from the next call on.
    std::vector<ValueId> touched;
    if (call.ops.empty()) touched.push_back(call.value);
    for (const Op* op : call.ops) {
      touched.insert(touched.end(), op->in.begin(), op->in.end());
      if (op->out != kNone) touched.push_back(op->out);
    }
    std::ranges::sort(touched);
    const auto repeated = std::ranges::unique(touched);
    touched.erase(repeated.begin(), repeated.end());
    for (ValueId id : touched) {
      if (last_call[static_cast<size_t>(id)] == c && buffer_of[static_cast<size_t>(id)] >= 0)
        free_buffers.push_back(buffer_of[static_cast<size_t>(id)]);
    }
  }

  Layout layout;
  std::vector<float*> buffers(buffer_floats.size());
  for (size_t i = 0; i < buffers.size(); i++) layout.Add(&buffers[i], buffer_floats[i]);

  int64_t panel_k = 0, head_dim = 16, tile = 0;
  size_t products = 1;
  const Op* experts = nullptr;
  for (const Call& call : calls_) {
    for (int act = 1; act < static_cast<int>(ActKind::kCount); act++) {
      if (!call.forms[act]) continue;
      Slot& slot = slots_[act][second_slot_[static_cast<size_t>(call.value)] ? 1 : 0];
      const graph::Value& v = graph_->value(call.value);
      slot.max_k = std::max(slot.max_k, v.cols);
      slot.max_rows =
          std::max(slot.max_rows, v.rows == graph::Rows::kTokens ? options_.max_tokens : options_.max_logit_rows);
    }
    if (call.pass == graph::Pass::kGateUp) tile = std::max(tile, 2 * kTokenBlock * kStripRows);
    if (call.pass == graph::Pass::kNormQuantize) tile = std::max(tile, graph_->value(call.value).cols);
    products = std::max(products, call.ops.size());
    for (const Op* op : call.ops) {
      for (graph::WeightId w : op->weights) panel_k = std::max(panel_k, weights_.matrix(w).k);
      if (op->kind == OpKind::kAttention) head_dim = std::max(head_dim, op->attention.head_dim);
      if (op->kind == OpKind::kDeltaRule)
        tile = std::max(tile, DeltaScratchFloats(graph_->state_layers()[static_cast<size_t>(op->state)].key_dim));
      if (op->kind != OpKind::kExperts) continue;
      experts = op;
      products = std::max(products, 2 * static_cast<size_t>(op->experts.experts));
    }
  }
  products_.reserve(products);
  cuts_.reserve(products);
  for (int act = 1; act < static_cast<int>(ActKind::kCount); act++) {
    for (Slot& slot : slots_[act]) {
      if (slot.max_k == 0) continue;
      layout.Add(&slot.q, slot.max_rows * slot.max_k);
      layout.Add(&slot.d, slot.max_rows * ActScales(static_cast<ActKind>(act), slot.max_k));
      layout.Add(&slot.sums, slot.max_rows * ActSums(static_cast<ActKind>(act), slot.max_k));
    }
  }
  rope_cos_.resize(graph_->ropes().size());
  rope_sin_.resize(graph_->ropes().size());
  for (size_t i = 0; i < rope_cos_.size(); i++) {
    layout.Add(&rope_cos_[i], options_.max_tokens * graph_->ropes()[i].rotary_dims / 2);
    layout.Add(&rope_sin_[i], options_.max_tokens * graph_->ropes()[i].rotary_dims / 2);
  }
  worker_scratch_.resize(static_cast<size_t>(pool_->size()));
  for (float*& scratch : worker_scratch_)
    layout.Add(&scratch, std::max(AttentionScratchFloats(head_dim), panel_k * (kPanelRows + 1)));
  worker_tile_.resize(static_cast<size_t>(pool_->size()));
  for (float*& scratch : worker_tile_) layout.Add(&scratch, std::max(tile, head_dim));
  if (experts != nullptr) {
    const int64_t n = experts->experts.experts, rows = options_.max_tokens * experts->experts.used;
    const int64_t hidden = weights_.matrix(experts->weights[0]).n, width = weights_.matrix(experts->weights[2]).n;
    const ActKind act = weights_.matrix(experts->weights[2]).act();
    layout.Add(&expert_.probs, options_.max_tokens * n);
    for (int32_t** ids : {&expert_.expert_of, &expert_.row_of, &expert_.order}) layout.Add(ids, rows);
    layout.Add(&expert_.starts, n + 1);
    layout.Add(&expert_.weight, rows);
    layout.Add(&expert_.gate, rows * hidden);
    layout.Add(&expert_.up, rows * hidden);
    layout.Add(&expert_.out, rows * width);
    layout.Add(&expert_.q, rows * hidden);
    layout.Add(&expert_.d, rows * ActScales(act, hidden));
    layout.Add(&expert_.sums, rows * ActSums(act, hidden));
  }
  RIDGE_ASSIGN_OR_RETURN(workspace_, layout.Allocate());
  value_data_.resize(values.size(), nullptr);
  for (size_t i = 0; i < values.size(); i++) {
    if (buffer_of[i] >= 0) value_data_[i] = buffers[static_cast<size_t>(buffer_of[i])];
  }
  return {};
}

}  // namespace ridge::cpu
