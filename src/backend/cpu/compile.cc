// Compilation: from the op list to kernel calls, a memory plan and a description of what was chosen.
#include <algorithm>
#include <cstdio>
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

constexpr int kForms = static_cast<int>(ActKind::kCount);

// Which types have panels is known before the weights are there.
bool HasPanels(const graph::Graph& graph, const Op& op) {
  return PanelFor(graph.weight(op.weights[0]).type).has_value();
}

// A matrix that is decoded on use is decoded once for all tokens, not once for each block of them: then gate and up stay apart.
bool RunsFused(const graph::Graph& graph, const graph::Group& group) {
  if (!group.pass) return false;
  if (*group.pass != graph::Pass::kGateUp) return true;
  return HasPanels(graph, graph.ops()[group.ops[0]]) && HasPanels(graph, graph.ops()[group.ops[1]]);
}

// The value that a fused group ends in: the one it may quantize, or Q.
ValueId ResultOf(const graph::Graph& graph, const graph::Group& group) {
  const auto& ops = graph.ops();
  if (*group.pass == graph::Pass::kQkv) return kNone;
  if (*group.pass != graph::Pass::kRopeKv) return ops[group.ops.back()].out;
  for (size_t i : group.ops) {
    for (const Op& reader : ops) {
      if (reader.kind == OpKind::kAttention && reader.in[0] == ops[i].out) return ops[i].out;
    }
  }
  return kNone;
}

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
  for (const graph::StateLayer& layer : graph.state_layers()) {
    const bool fits = layer.key_dim % 16 == 0 && layer.value_dim % 16 == 0 && layer.channels % 16 == 0;
    if (!fits || layer.taps < 2 || layer.taps > kMaxConvTaps) {
      return Fail(Code::kUnsupported, "a recurrent layer does not fit the kernels")
          .Found("heads of " + std::to_string(layer.key_dim) + " x " + std::to_string(layer.value_dim) + ", " +
                 std::to_string(layer.channels) + " channels, " + std::to_string(layer.taps) + " taps")
          .Expected("multiples of 16, and 2 to " + std::to_string(kMaxConvTaps) + " taps");
    }
  }
  if (options.blas) {
    RIDGE_ASSIGN_OR_RETURN(program->blas_, LoadBlas(options.n_threads));
    int64_t k = 0;
    for (const Op& op : graph.ops()) {
      if (op.kind == OpKind::kMatMul) k = std::max(k, graph.weight(op.weights[0]).k());
    }
    const int64_t rows = std::max(options.max_tokens, options.max_logit_rows);
    RIDGE_ASSIGN_OR_RETURN(program->blas_rows_,
                           Buffer::Allocate(static_cast<size_t>(kBlasBlockRows * k) * sizeof(float)));
    RIDGE_ASSIGN_OR_RETURN(program->blas_out_,
                           Buffer::Allocate(static_cast<size_t>(kBlasBlockRows * rows) * sizeof(float)));
  }
  const graph::Schedule schedule = graph::Compose(graph, options.passes);
  program->DescribePlan(schedule);
  for (const backend::PlanEntry& entry : program->plan_) {
    if (entry.fallback && options.strict) {
      return Fail(Code::kUnsupported, "--strict: an op would fall back to a slow kernel")
          .Where(entry.op)
          .Found(entry.reason)
          .Remedy("drop --strict or use another tensor type");
    }
  }
  RIDGE_ASSIGN_OR_RETURN(program->pool_, ThreadPool::Create(options.n_threads));
  RIDGE_ASSIGN_OR_RETURN(program->weights_, Weights::Load(graph, *program->pool_,
                                                          {.release = options.release,
                                                           .panel_cache_dir = options.panel_cache_dir,
                                                           .sources = options.sources,
                                                           .strict = options.strict,
                                                           .dry_run = options.dry_run}));
  program->PlanCalls(schedule);
  RIDGE_RETURN_IF_ERROR(program->PlanMemory());
  return program;
}

void CpuProgram::PlanCalls(const graph::Schedule& schedule) {
  const auto& ops = graph_->ops();
  ValueId held[kForms][2] = {{kNone, kNone}, {kNone, kNone}, {kNone, kNone}};  // which value each slot holds
  std::vector<bool> requantized(graph_->values().size(), false);
  second_slot_.assign(graph_->values().size(), false);

  // The forms of a value that its readers multiply with, kF32 among them; any other reader wants floats.
  const auto readers_want = [&](ValueId id, bool* forms) {
    for (const Op& reader : ops) {
      for (size_t i = 0; i < reader.in.size(); i++) {
        if (reader.in[i] != id) continue;
        const bool multiplies = reader.kind == OpKind::kMatMul || (reader.kind == OpKind::kExperts && i == 0);
        if (!multiplies) forms[static_cast<int>(ActKind::kF32)] = true;
        const size_t matrices = reader.kind == OpKind::kExperts ? 2 : 1;  // gate and up; down reads what they made
        for (size_t w = 0; multiplies && w < matrices; w++)
          forms[static_cast<int>(weights_.matrix(reader.weights[w]).act())] = true;
      }
    }
    if (id == graph_->output()) forms[static_cast<int>(ActKind::kF32)] = true;
  };
  const auto need = [&](ValueId id, ActKind act) {
    if (act == ActKind::kF32) return;
    ValueId& slot = held[static_cast<int>(act)][second_slot_[static_cast<size_t>(id)] ? 1 : 0];
    if (slot == id) return;
    slot = id;
    requantized[static_cast<size_t>(id)] = true;
    Call& call = calls_.emplace_back();
    call.value = id;
    call.forms[static_cast<int>(act)] = true;
  };
  const auto need_inputs = [&](const Op& op) {
    if (op.kind != OpKind::kMatMul && op.kind != OpKind::kExperts) return;
    const size_t matrices = op.kind == OpKind::kExperts ? 2 : 1;
    for (size_t w = 0; w < matrices; w++) need(op.in[0], weights_.matrix(op.weights[w]).act());
  };

  for (const graph::Group& group : schedule.groups) {
    if (!RunsFused(*graph_, group)) {
      for (size_t i : group.ops) {
        need_inputs(ops[i]);
        calls_.emplace_back().ops = {&ops[i]};
      }
      continue;
    }
    for (size_t i : group.ops) need_inputs(ops[i]);
    Call& call = calls_.emplace_back();
    call.pass = group.pass;
    for (size_t i : group.ops) call.ops.push_back(&ops[i]);
    call.value = ResultOf(*graph_, group);
    if (*group.pass != graph::Pass::kGateUp && *group.pass != graph::Pass::kNormQuantize) continue;
    // Read from one slot, write to the other.
    if (*group.pass == graph::Pass::kGateUp)
      second_slot_[static_cast<size_t>(call.value)] = !second_slot_[static_cast<size_t>(call.ops[0]->in[0])];
    readers_want(call.value, call.forms);
    call.floats = call.forms[static_cast<int>(ActKind::kF32)];
    call.forms[static_cast<int>(ActKind::kF32)] = false;
    for (int act = 1; act < kForms; act++) {
      if (call.forms[act]) held[act][second_slot_[static_cast<size_t>(call.value)] ? 1 : 0] = call.value;
    }
  }
  for (Call& call : calls_) {
    if (call.pass && call.value != kNone && requantized[static_cast<size_t>(call.value)]) call.floats = true;
  }
}

namespace {

// Says so where a panel takes notably more memory than the file's rows: a price paid for speed.
std::string Reencoding(const quant::Type& type, PanelKind kind) {
  constexpr int64_t kColumns = 256;
  const double file = 8.0 * type.block_bytes / type.block_elements;
  const double panel = 8.0 * static_cast<double>(PanelBytes(kind, kColumns)) / (kPanelRows * kColumns);
  if (panel < 1.1 * file) return "";
  char text[96];
  std::snprintf(text, sizeof text, "; re-encoded when packed: %.2f bits a weight instead of %.2f", panel, file);
  return text;
}

}  // namespace

void CpuProgram::DescribePlan(const graph::Schedule& schedule) {
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
          else
            e.reason += Reencoding(type, *kind);
        } else {
          e.kernel = "decode";
        }
      }
      auto [it, fresh] = entries.try_emplace(e.op, e);
      if (!fresh) it->second.count++;
    }
  }
  for (auto& [name, entry] : entries) {
    if (blas_ && name.starts_with(Name(OpKind::kMatMul))) {
      plan_.push_back({.op = name + ", " + std::to_string(kBlasTokens) + " tokens or more",
                       .device = "cpu",
                       .kernel = "openblas.sgemm",
                       .isa = "chosen by OpenBLAS",
                       .reason = "--matmul blas: rows are decoded to float32; not bit-stable",
                       .fallback = false,
                       .count = entry.count});
    }
    plan_.push_back(std::move(entry));
  }
  for (int i = 0; i < graph::kPasses; i++) {
    const graph::Pass pass = static_cast<graph::Pass>(i);
    backend::PlanEntry entry{.op = "fused " + std::string(graph::Name(pass)),
                             .device = "cpu",
                             .kernel = "one parallel region",
                             .isa = kernels_->isa,
                             .reason = std::string(graph::Purpose(pass)),
                             .fallback = false,
                             .count = 0};
    for (const graph::Group& group : schedule.groups)
      entry.count += group.pass == pass && RunsFused(*graph_, group) ? 1 : 0;
    if (entry.count > 0) plan_.push_back(std::move(entry));
  }
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
