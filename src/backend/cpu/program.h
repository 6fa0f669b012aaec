// A graph compiled for the CPU: weights in panels, a workspace sized once, and a straight list of kernel calls.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/blas.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/state.h"
#include "backend/cpu/step_trace.h"
#include "backend/cpu/weights.h"
#include "base/thread_pool.h"

namespace ridge::cpu {

// One call of the program: the ops of a group, or the quantization of a value that is inserted by the compiler where a product needs
// its input in another form than float.
struct Call {
  std::optional<graph::Pass> pass;      // nullopt: one op, or none and a quantization
  std::vector<const graph::Op*> ops;    // in order
  graph::ValueId value = graph::kNone;  // whose 8-bit forms this call writes
  bool forms[static_cast<int>(ActKind::kCount)] = {};
  bool floats = true;  // a fused group: its last result is also kept as float
};

// A product of one region: out[t, r] for all rows r of the matrix (of one expert) and n_tokens tokens.
struct Product {
  const Matrix* matrix = nullptr;
  int64_t expert = 0;
  ActView x;
  const int32_t* in_rows = nullptr;  // [n_tokens] rows of x; nullptr: all in order
  int64_t n_tokens = 0;
  const float *bias = nullptr, *residual = nullptr;  // as in MatMulArgs
  float* out = nullptr;
  int64_t out_stride = 0;
};

constexpr GateKind GateOf(graph::Activation activation) {
  switch (activation) {
    case graph::Activation::kSilu: return GateKind::kSilu;
    case graph::Activation::kGeluTanh: return GateKind::kGeluTanh;
    case graph::Activation::kSigmoid: return GateKind::kSigmoid;
  }
  return GateKind::kSilu;
}

constexpr int64_t kTokenBlock = 64;  // tokens of one unit of matmul work, at most
// Tokens of each unit but the last. Blocks are about equal, in whole tiles, where a few tokens would be left over: weights are unpacked for each block.
constexpr int64_t TokenBlock(int64_t tokens) {
  constexpr int64_t kFew = 16, kTile = 8;
  const int64_t left = tokens % kTokenBlock, blocks = tokens / kTokenBlock + 1;
  if (tokens < kTokenBlock || left == 0 || left > kFew) return kTokenBlock;
  return ((tokens + blocks - 1) / blocks + kTile - 1) / kTile * kTile;
}
constexpr int64_t kStripRows =
    256;  // rows of gate and of up in one unit of work at most: a whole block of the widest 8-bit form

class CpuProgram : public backend::Program {
 public:
  static Result<std::unique_ptr<CpuProgram>> Compile(const graph::Graph& graph, const backend::CompileOptions& options);

  Result<std::unique_ptr<backend::StateStore>> NewState(const backend::StateOptions& options) override;
  Status Run(const backend::Step& step, backend::StateStore& state, std::span<float> logits) override;
  const std::vector<backend::PlanEntry>& plan() const override { return plan_; }
  backend::LoadReport load_report() const override { return weights_.report(); }
  size_t weight_bytes() const override { return weights_.size_bytes(); }
  size_t workspace_bytes() const override { return workspace_.size_bytes(); }
  std::string isa() const override { return kernels_->isa; }
  int n_threads() const override { return pool_->size(); }
  void ForEach(size_t n, const std::function<void(size_t)>& fn) override {
    pool_->ParallelFor(n, 1, [&](size_t begin, size_t end, int) {
      for (size_t i = begin; i < end; i++) fn(i);
    });
  }
  void TraceOps(bool on) override;
  std::vector<backend::OpTime> op_times() const override;
  void TraceSteps(int64_t every) override;
  void TraceNextSteps() override { step_trace_.TakeNext(); }
  backend::OpTrace op_trace() const override { return step_trace_.trace(); }

 private:
  // Quantized form of one value. Each 8-bit form has two slots, so that a group can read one value and write another.
  struct Slot {
    int8_t* q = nullptr;
    float* d = nullptr;
    int32_t* sums = nullptr;
    int64_t max_k = 0, max_rows = 0;
  };
  // Scratch of the expert op, sized for max_tokens * used rows.
  struct ExpertScratch {
    int32_t *expert_of = nullptr, *row_of = nullptr, *order = nullptr, *starts = nullptr;
    float *weight = nullptr, *gate = nullptr, *up = nullptr, *out = nullptr, *probs = nullptr;
    int8_t* q = nullptr;
    float* d = nullptr;
    int32_t* sums = nullptr;
  };

  // Query rows of one KV head and neighbouring tokens that share their reads of K and V; attention.cc.
  struct QueryTile {
    size_t seq = 0;
    int64_t token_begin = 0, token_end = 0;             // rows of the step
    int64_t kv_head = 0, head_begin = 0, head_end = 0;  // heads inside the KV head's group
    int64_t split_begin = 0, split_end = 0;             // what its rows see
    float* parts = nullptr;                             // not null: its splits are spread over units
    int64_t rows() const { return (token_end - token_begin) * (head_end - head_begin); }
  };
  struct AttentionUnit {
    size_t tile = 0;
    int64_t split_begin = 0, split_end = 0;
  };

  Status CheckStep(const backend::Step& step, const PagedState& state, size_t n_logits) const;
  Status CheckSlots(const backend::Step& step, const PagedState& state) const;
  void PlanCalls(const graph::Schedule& schedule);
  std::vector<bool> Elided() const;  // by ValueId: lives inside one group only, in scratch
  std::vector<bool> OutputChain(const std::vector<size_t>& last_op) const;
  Status PlanMemory();
  void DescribePlan(const graph::Schedule& schedule);

  int64_t Rows(graph::ValueId id) const;
  float* Data(graph::ValueId id) const;
  ActView View(graph::ValueId id, ActKind act) const;

  const Slot& SlotOf(graph::ValueId id, ActKind act) const {
    return slots_[static_cast<int>(act)][second_slot_[static_cast<size_t>(id)] ? 1 : 0];
  }

  void QuantizeRow(ActKind act, const float* x, int64_t k, int8_t* q, float* d, int32_t* sums) const;
  void QuantizeInto(const Call& call, const float* x, int64_t row) const;  // one row of call.value, all forms
  void Quantize(const Call& call);

  // Products (products.cc).
  Product ProductOf(const graph::Op& op, float* out, const float* residual) const;
  void Panels(const Product& p, int64_t panel_begin, int64_t panel_end, int64_t token_begin, int64_t token_end,
              float* out, int64_t out_stride, int worker);
  void RunProducts();  // products_ in one region
  void RunBlas(const Product& p);
  void RunMatMuls(std::span<const graph::Op* const> ops);
  void RunResidual(const Call& call);
  void RunGateUp(const Call& call);

  void QuantizeStrip(const Call& call, const float* x, int64_t row, int64_t col, int64_t cols) const;
  void RunRowChain(const Call& call);
  void RunRopeKv(const Call& call);
  void RunEmbed(const graph::Op& op);
  void RunRmsNorm(const graph::Op& op);
  void RunLayerNorm(const graph::Op& op);
  void RunRope(const graph::Op& op);
  void StoreKv(int32_t layer, int64_t sequence, int64_t token, int64_t head, const float* k, const float* v);
  void RunAppendKv(const graph::Op& op);
  void RunAttention(const graph::Op& op);
  int64_t TileTokens(const graph::AttentionSpec& spec, int64_t heads, int64_t wanted) const;
  void PlanAttention(const graph::AttentionSpec& spec);
  void AttendUnit(const graph::Op& op, const AttentionUnit& unit, int worker);
  void CombineTile(const graph::Op& op, const QueryTile& tile, int64_t row);
  void RunGatedAct(const graph::Op& op);
  void RunExperts(const graph::Op& op);
  void RunElementwise(const graph::Op& op);
  void RunSlice(const graph::Op& op);
  // Recurrent layers (recurrent.cc).
  void RunShortConv(const graph::Op& op);
  void RunDeltaRule(const graph::Op& op);
  void NoteSlots();
  void PrepareRope();
  void RunCall(const Call& call);
  Status RunTraced(bool decode);
  void RunOp(const graph::Op& op);

  const graph::Graph* graph_ = nullptr;
  backend::CompileOptions options_;
  const Kernels* kernels_ = nullptr;
  std::unique_ptr<ThreadPool> pool_;
  Weights weights_;
  std::vector<Call> calls_;
  std::vector<backend::PlanEntry> plan_;

  Buffer workspace_;
  std::vector<float*> value_data_;  // by ValueId; nullptr: part of the caller's logits
  Slot slots_[static_cast<int>(ActKind::kCount)][2];
  std::vector<bool> second_slot_;            // by ValueId: its quantized forms are in the second slot
  std::vector<float*> rope_cos_, rope_sin_;  // by rope: [max_tokens, rotary_dims / 2]
  std::vector<float*> worker_scratch_;       // attention scores, decoded panels
  std::vector<float*> worker_tile_;          // a tile of a fused group: one row, or 2 * kTokenBlock * kStripRows
  ExpertScratch expert_;
  std::vector<Product> products_;  // of the region to run; capacity is reserved
  // How a product is cut into units of work: strips of panels times blocks of tokens.
  struct Cut {
    int64_t first_unit, strip, blocks, tokens;  // of one block
  };
  std::vector<Cut> cuts_;

  std::optional<Blas> blas_;
  Buffer blas_rows_, blas_out_;  // decoded rows [kBlasBlockRows, k], their products [tokens, kBlasBlockRows]

  // Tracing: what each call took in decode and in prefill steps.
  struct CallTime {
    double ns[2] = {};
    int64_t calls[2] = {};
  };
  bool trace_ = false;
  std::vector<CallTime> call_times_;
  int64_t traced_steps_[2] = {};
  StepTrace step_trace_;

  // The attention op being run; the capacity stays.
  std::vector<QueryTile> tiles_;
  std::vector<AttentionUnit> units_;
  std::vector<std::pair<size_t, int64_t>> combined_;  // (tile, row) of the rows whose splits are spread over units

  // The step being run.
  const backend::Step* step_ = nullptr;
  PagedState* state_ = nullptr;
  float* logits_ = nullptr;
};

}  // namespace ridge::cpu
