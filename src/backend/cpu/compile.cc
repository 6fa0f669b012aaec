// Compilation: from the op list to kernel calls, a memory plan and a description of what was chosen.
#include <algorithm>
#include <map>
#include <string>

#include "backend/cpu/isa.h"
#include "backend/cpu/program.h"

namespace ridge::cpu {
namespace {

using graph::kNone;
using graph::Op;
using graph::OpKind;
using graph::ValueId;

// May the result replace its first input, if nothing needs that any more?
bool CanOverwrite(OpKind kind) {
  switch (kind) {
    case OpKind::kRmsNorm:
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
    case OpKind::kExperts: return false;
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

Result<std::unique_ptr<CpuProgram>> CpuProgram::Compile(const graph::Graph& graph,
                                                        const backend::CompileOptions& options) {
  auto program = std::make_unique<CpuProgram>();
  program->graph_ = &graph;
  program->options_ = options;
  RIDGE_ASSIGN_OR_RETURN(program->kernels_, SelectKernels(options.isa));
  for (const graph::KvLayer& layer : graph.kv_layers()) {
    if (layer.head_dim % 16 != 0) {
      return Fail(Code::kUnsupported, "head size does not fit the attention kernels")
          .Found(std::to_string(layer.head_dim))
          .Expected("a multiple of 16");
    }
  }
  program->DescribePlan();
  for (const backend::PlanEntry& entry : program->plan_) {
    if (entry.fallback && options.strict) {
      return Fail(Code::kUnsupported, "--strict: an op would fall back to a slow kernel")
          .Where(entry.op)
          .Found(entry.reason)
          .Remedy("drop --strict or use another tensor type");
    }
  }
  RIDGE_ASSIGN_OR_RETURN(program->pool_, ThreadPool::Create(options.n_threads));
  RIDGE_ASSIGN_OR_RETURN(program->weights_, Weights::Load(graph, *program->pool_, {.release = options.release,
                                                                                .panel_cache_dir = options.panel_cache_dir,
                                                                                .sources = options.sources,
                                                                                .strict = options.strict}));
  program->PlanCalls();
  RIDGE_RETURN_IF_ERROR(program->PlanMemory());
  return program;
}

void CpuProgram::PlanCalls() {
  ValueId held[static_cast<int>(ActKind::kCount)] = {kNone, kNone, kNone};  // which value each slot holds
  for (const Op& op : graph_->ops()) {
    if (op.kind == OpKind::kMatMul || op.kind == OpKind::kExperts) {
      const ActKind act = weights_.matrix(op.weights[0]).act();
      ValueId& slot = held[static_cast<int>(act)];
      if (act != ActKind::kF32 && slot != op.in[0]) {
        calls_.push_back({nullptr, op.in[0], act});
        slot = op.in[0];
      }
    }
    calls_.push_back({&op, kNone, ActKind::kF32});
  }
}

Status CpuProgram::PlanMemory() {
  const auto& ops = graph_->ops();
  const auto& values = graph_->values();
  std::vector<size_t> last_use(values.size(), 0);
  for (size_t i = 0; i < ops.size(); i++) {
    for (ValueId in : ops[i].in) last_use[static_cast<size_t>(in)] = i;
  }
  last_use[static_cast<size_t>(graph_->output())] = ops.size();

  // Buffers are shared by values whose lives do not overlap; -1 stands for the caller's logits.
  std::vector<int> buffer_of(values.size(), -2);
  std::vector<int64_t> buffer_floats;
  std::vector<int> free_buffers;
  const auto floats = [&](ValueId id) {
    const graph::Value& v = graph_->value(id);
    return v.cols * (v.rows == graph::Rows::kTokens ? options_.max_tokens : options_.max_logit_rows);
  };
  const auto is_output = [&](ValueId id) {  // the output, or a value that an in-place chain turns into it
    return graph_->value(id).rows == graph::Rows::kLogits && graph_->value(id).cols == graph_->vocab();
  };
  for (size_t i = 0; i < ops.size(); i++) {
    const Op& op = ops[i];
    if (op.out != kNone) {
      int chosen = -2;
      if (is_output(op.out)) {
        chosen = -1;
      } else if (CanOverwrite(op.kind) && last_use[static_cast<size_t>(op.in[0])] == i &&
                 buffer_of[static_cast<size_t>(op.in[0])] >= 0) {
        chosen = buffer_of[static_cast<size_t>(op.in[0])];
        last_use[static_cast<size_t>(op.in[0])] = ops.size() + 1;  // handed over, not freed below
      } else {
        auto best = free_buffers.end();  // the smallest that is large enough, else the largest
        for (auto it = free_buffers.begin(); it != free_buffers.end(); ++it) {
          const int64_t size = buffer_floats[static_cast<size_t>(*it)], need = floats(op.out);
          if (best == free_buffers.end()) {
            best = it;
            continue;
          }
          const int64_t have = buffer_floats[static_cast<size_t>(*best)];
          if (size >= need ? have < need || size < have : have < need && size > have) best = it;
        }
        if (best != free_buffers.end()) {
          chosen = *best;
          free_buffers.erase(best);
        } else {
          chosen = static_cast<int>(buffer_floats.size());
          buffer_floats.push_back(0);
        }
        buffer_floats[static_cast<size_t>(chosen)] =
            std::max(buffer_floats[static_cast<size_t>(chosen)], floats(op.out));
      }
      buffer_of[static_cast<size_t>(op.out)] = chosen;
    }
    for (size_t k = 0; k < op.in.size(); k++) {
      const size_t in = static_cast<size_t>(op.in[k]);
      const bool repeated = std::find(op.in.begin(), op.in.begin() + static_cast<std::ptrdiff_t>(k), op.in[k]) !=
                            op.in.begin() + static_cast<std::ptrdiff_t>(k);
      if (last_use[in] == i && buffer_of[in] >= 0 && !repeated) free_buffers.push_back(buffer_of[in]);
    }
  }

  Layout layout;
  std::vector<float*> buffers(buffer_floats.size());
  for (size_t i = 0; i < buffers.size(); i++) layout.Add(&buffers[i], buffer_floats[i]);

  int64_t panel_k = 0, head_dim = 16;
  const graph::Op* experts = nullptr;
  for (const Call& call : calls_) {
    if (call.op == nullptr) {
      Slot& slot = slots_[static_cast<int>(call.act)];
      const graph::Value& v = graph_->value(call.in);
      slot.max_k = std::max(slot.max_k, v.cols);
      slot.max_rows =
          std::max(slot.max_rows, v.rows == graph::Rows::kTokens ? options_.max_tokens : options_.max_logit_rows);
      continue;
    }
    for (graph::WeightId w : call.op->weights) panel_k = std::max(panel_k, weights_.matrix(w).k);
    if (call.op->kind == OpKind::kAttention) head_dim = std::max(head_dim, call.op->attention.head_dim);
    if (call.op->kind == OpKind::kExperts) experts = call.op;
  }
  for (Slot& slot : slots_) {
    if (slot.max_k == 0) continue;
    layout.Add(&slot.q, slot.max_rows * slot.max_k);
    layout.Add(&slot.d, slot.max_rows * slot.max_k / 32);
    layout.Add(&slot.sums, slot.max_rows * slot.max_k / 16);
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
  if (experts != nullptr) {
    const int64_t n = experts->experts.experts, rows = options_.max_tokens * experts->experts.used;
    const int64_t hidden = weights_.matrix(experts->weights[0]).n, width = weights_.matrix(experts->weights[2]).n;
    layout.Add(&expert_.probs, options_.max_tokens * n);
    for (int32_t** ids : {&expert_.expert_of, &expert_.row_of, &expert_.order}) layout.Add(ids, rows);
    layout.Add(&expert_.starts, n + 1);
    layout.Add(&expert_.weight, rows);
    layout.Add(&expert_.gate, rows * hidden);
    layout.Add(&expert_.up, rows * hidden);
    layout.Add(&expert_.out, rows * width);
    layout.Add(&expert_.q, rows * hidden);
    layout.Add(&expert_.d, rows * hidden / 32 + 1);
    layout.Add(&expert_.sums, rows * hidden / 16 + 1);
  }
  RIDGE_ASSIGN_OR_RETURN(workspace_, layout.Allocate());
  value_data_.resize(values.size(), nullptr);
  for (size_t i = 0; i < values.size(); i++) {
    if (buffer_of[i] >= 0) value_data_[i] = buffers[static_cast<size_t>(buffer_of[i])];
  }
  return {};
}

void CpuProgram::DescribePlan() {
  std::map<std::string, backend::PlanEntry> entries;
  for (const Op& op : graph_->ops()) {
    backend::PlanEntry entry{.op = std::string(Name(op.kind)),
                             .device = "cpu",
                             .kernel = std::string(Name(op.kind)),
                             .isa = kernels_->isa,
                             .reason = options_.isa.empty() ? "best ISA of this CPU" : "--isa",
                             .fallback = false,
                             .count = 1};
    const bool multiplies = op.kind == OpKind::kMatMul || op.kind == OpKind::kExperts;
    for (size_t i = 0; i < (multiplies ? op.weights.size() : 1); i++) {
      backend::PlanEntry e = entry;
      if (multiplies || op.kind == OpKind::kEmbed) {
        const quant::Type& type = quant::Get(graph_->weight(op.weights[i]).type);
        e.op += " " + std::string(type.name);
        if (multiplies) {
          const auto kind = PanelFor(type.id);
          e.kernel = kind ? Name(*kind) : "decode+panel16.f32";
          e.fallback = !kind;
          if (!kind)
            e.reason =
                "no fast kernel for this type in this build: its rows are decoded to float32 each time they are used";
        } else {
          e.kernel = "decode";
        }
      }
      auto [it, fresh] = entries.try_emplace(e.op, e);
      if (!fresh) it->second.count++;
    }
  }
  for (auto& [name, entry] : entries) plan_.push_back(std::move(entry));
}

}  // namespace ridge::cpu

namespace ridge::backend {
namespace {

class CpuBackend : public Backend {
 public:
  Result<std::unique_ptr<Program>> Compile(const graph::Graph& graph, const CompileOptions& options) override {
    RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<Program> program, cpu::CpuProgram::Compile(graph, options));
    return program;
  }
};

}  // namespace

std::unique_ptr<Backend> NewCpuBackend() { return std::make_unique<CpuBackend>(); }

}  // namespace ridge::backend
