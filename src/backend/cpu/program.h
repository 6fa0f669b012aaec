// A graph compiled for the CPU: weights in panels, a workspace sized once, and a straight list of kernel calls.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/state.h"
#include "backend/cpu/weights.h"
#include "base/thread_pool.h"

namespace ridge::cpu {

// One call of the program. kQuantize is inserted by the compiler where a matmul needs its input in another form than float.
struct Call {
  const graph::Op* op = nullptr;  // nullptr: quantize `in` to `act`
  graph::ValueId in = graph::kNone;
  ActKind act = ActKind::kF32;
};

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

 private:
  // Quantized form of one value; both 8-bit forms have a slot of their own.
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

  Status CheckStep(const backend::Step& step, const PagedState& state, size_t n_logits) const;
  void PlanCalls();
  Status PlanMemory();
  void DescribePlan();

  int64_t Rows(graph::ValueId id) const;
  float* Data(graph::ValueId id) const;
  ActView View(graph::ValueId id, ActKind act) const;

  void Quantize(graph::ValueId id, ActKind act);
  void QuantizeRow(ActKind act, const float* x, int64_t k, int8_t* q, float* d, int32_t* sums) const;
  void MatMul(const Matrix& matrix, int64_t expert, const ActView& x, const int32_t* in_rows, int64_t n_tokens,
              const float* bias, float* out, int64_t out_stride);
  void RunEmbed(const graph::Op& op);
  void RunRmsNorm(const graph::Op& op);
  void RunRope(const graph::Op& op);
  void RunAppendKv(const graph::Op& op);
  void RunAttention(const graph::Op& op);
  void RunGatedAct(const graph::Op& op);
  void RunExperts(const graph::Op& op);
  void RunElementwise(const graph::Op& op);
  void PrepareRope();
  void RunCall(const Call& call);

  const graph::Graph* graph_ = nullptr;
  backend::CompileOptions options_;
  const Kernels* kernels_ = nullptr;
  std::unique_ptr<ThreadPool> pool_;
  Weights weights_;
  std::vector<Call> calls_;
  std::vector<backend::PlanEntry> plan_;

  Buffer workspace_;
  std::vector<float*> value_data_;  // by ValueId; nullptr: part of the caller's logits
  Slot slots_[static_cast<int>(ActKind::kCount)];
  std::vector<float*> rope_cos_, rope_sin_;  // by rope: [max_tokens, rotary_dims / 2]
  std::vector<float*> worker_scratch_;       // attention scores, decoded panels
  ExpertScratch expert_;

  // The step being run.
  const backend::Step* step_ = nullptr;
  PagedState* state_ = nullptr;
  float* logits_ = nullptr;
};

}  // namespace ridge::cpu
