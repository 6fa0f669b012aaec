#include "backend/cpu/program.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/math.h"

namespace ridge::cpu {
namespace {

using graph::Op;
using graph::OpKind;
using graph::ValueId;

constexpr size_t kElementGrain = 8192;  // elements of one unit of element-wise work

size_t RowGrain(int64_t cols) { return std::max<size_t>(1, kElementGrain / static_cast<size_t>(cols)); }

// The pass or the op; of a product also its matrix, without the layer's number.
std::string NameOf(const Call& call) {
  if (call.ops.empty()) return "quantize";
  std::string name(call.pass ? graph::Name(*call.pass) : graph::Name(call.ops[0]->kind));
  for (const Op* op : call.ops) {
    if (op->kind == OpKind::kMatMul) return name + " " + op->label.substr(op->label.rfind('.') + 1);
  }
  return name;
}

}  // namespace

Result<std::unique_ptr<backend::StateStore>> CpuProgram::NewState(const backend::StateOptions& options) {
  RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<backend::StateStore> state, PagedState::Create(*graph_, options, n_threads()));
  return state;
}

Status CpuProgram::CheckStep(const backend::Step& step, const PagedState& state, size_t n_logits) const {
  const int64_t tokens = static_cast<int64_t>(step.tokens.size()),
                seqs = static_cast<int64_t>(step.seq_start.size()) - 1;
  const int64_t rows = static_cast<int64_t>(step.logit_rows.size());
  const auto bad = [](const char* what) -> Status {
    return Fail(Code::kInvalidArgument, "step does not fit the program").Found(what);
  };
  if (tokens < 1 || tokens > options_.max_tokens) return bad("token count");
  if (rows > options_.max_logit_rows || static_cast<int64_t>(n_logits) < rows * graph_->vocab())
    return bad("logit rows");
  if (step.positions.size() != step.tokens.size() || seqs < 1 || step.seq_start[0] != 0 ||
      step.seq_start[static_cast<size_t>(seqs)] != tokens)
    return bad("sequences");
  const int64_t table = static_cast<int64_t>(step.page_table.size()) / seqs;
  int64_t vocab_rows = 0, position_rows = INT32_MAX;
  for (const Op& op : graph_->ops()) {
    if (op.kind != OpKind::kEmbed) continue;
    if (op.by == graph::EmbedBy::kToken) vocab_rows = graph_->weight(op.weights[0]).n();
    if (op.by == graph::EmbedBy::kPosition) position_rows = graph_->weight(op.weights[0]).n();
  }
  const bool whole = std::ranges::any_of(
      graph_->ops(), [](const Op& op) { return op.kind == OpKind::kAttention && !op.attention.causal; });
  for (int64_t s = 0; s < seqs; s++) {
    if (whole && step.positions[static_cast<size_t>(step.seq_start[static_cast<size_t>(s)])] != 0) {
      return Fail(Code::kInvalidArgument, "an encoder takes a text in one step")
          .Found("a step that goes on with one")
          .Remedy("raise -ub to the length of the longest text");
    }
    for (int64_t t = step.seq_start[static_cast<size_t>(s)]; t < step.seq_start[static_cast<size_t>(s) + 1]; t++) {
      const int32_t token = step.tokens[static_cast<size_t>(t)], position = step.positions[static_cast<size_t>(t)];
      if (token < 0 || token >= vocab_rows)
        return Fail(Code::kInvalidArgument, "token id outside the vocabulary")
            .Found(std::to_string(token))
            .Expected("0 to " + std::to_string(vocab_rows - 1));
      if (position >= position_rows) return bad("position beyond the model's table");
      if (position < 0 || position / state.options().page_tokens >= table) return bad("position beyond its pages");
      const int32_t page = step.page_table[static_cast<size_t>(s * table + position / state.options().page_tokens)];
      if (page < 0 || page >= state.options().n_pages) return bad("page id");
    }
  }
  return CheckSlots(step, state);
}

Status CpuProgram::Run(const backend::Step& step, backend::StateStore& store, std::span<float> logits) {
  PagedState& state = static_cast<PagedState&>(store);  // stores come from NewState of a program of this backend
  if (options_.dry_run) return Fail(Code::kInvalidArgument, "a program without weights cannot run");
  RIDGE_RETURN_IF_ERROR(CheckStep(step, state, logits.size()));
  step_ = &step;
  state_ = &state;
  logits_ = logits.data();
  const int decode = step.tokens.size() + 1 == step.seq_start.size() ? 1 : 0;
  if (!trace_) {
    if (step_trace_.Takes(decode != 0)) return RunTraced(decode != 0);
    PrepareRope();
    for (const Call& call : calls_) RunCall(call);
    NoteSlots();
    return {};
  }
  traced_steps_[decode]++;
  PrepareRope();
  auto last = std::chrono::steady_clock::now();
  for (size_t i = 0; i < calls_.size(); i++) {
    RunCall(calls_[i]);
    const auto now = std::chrono::steady_clock::now();
    call_times_[i].ns[decode] += std::chrono::duration<double, std::nano>(now - last).count();
    call_times_[i].calls[decode]++;
    last = now;
  }
  NoteSlots();
  return {};
}

Status CpuProgram::RunTraced(bool decode) {
  step_trace_.Begin(static_cast<int64_t>(step_->tokens.size()), decode);
  auto last = std::chrono::steady_clock::now();
  const auto add = [&] {
    const auto now = std::chrono::steady_clock::now();
    step_trace_.Add(std::chrono::duration<double, std::nano>(now - last).count());
    last = now;
  };
  PrepareRope();
  add();
  for (const Call& call : calls_) {
    RunCall(call);
    add();
  }
  NoteSlots();
  return {};
}

int64_t CpuProgram::Rows(ValueId id) const {
  return static_cast<int64_t>(graph_->value(id).rows == graph::Rows::kTokens ? step_->tokens.size()
                                                                             : step_->logit_rows.size());
}

float* CpuProgram::Data(ValueId id) const {
  float* data = value_data_[static_cast<size_t>(id)];
  return data != nullptr ? data : logits_;
}

ActView CpuProgram::View(ValueId id, ActKind act) const {
  const Slot& slot = SlotOf(id, act);
  const int64_t k = graph_->value(id).cols;
  return {.f32 = Data(id), .f32_stride = k, .q = slot.q, .d = slot.d, .sums = slot.sums, .k = k};
}

void CpuProgram::QuantizeRow(ActKind act, const float* x, int64_t k, int8_t* q, float* d, int32_t* sums) const {
  if (act == ActKind::kQ8x32)
    kernels_->quantize_q8x32(x, k, q, d, sums);
  else
    kernels_->quantize_q8x256(x, k, q, d, sums);
}

void CpuProgram::QuantizeInto(const Call& call, const float* x, int64_t row) const {
  const int64_t k = graph_->value(call.value).cols;
  for (ActKind act : {ActKind::kQ8x32, ActKind::kQ8x256}) {
    if (!call.forms[static_cast<int>(act)]) continue;
    const Slot& slot = SlotOf(call.value, act);
    QuantizeRow(act, x, k, slot.q + row * k, slot.d + row * ActScales(act, k), slot.sums + row * ActSums(act, k));
  }
}

void CpuProgram::Quantize(const Call& call) {
  const int64_t k = graph_->value(call.value).cols;
  const float* x = Data(call.value);
  pool_->ParallelFor(static_cast<size_t>(Rows(call.value)), RowGrain(k), [&](size_t begin, size_t end, int) {
    for (int64_t r = static_cast<int64_t>(begin); r < static_cast<int64_t>(end); r++) QuantizeInto(call, x + r * k, r);
  });
}

void CpuProgram::RunEmbed(const Op& op) {
  const Matrix& table = weights_.matrix(op.weights[0]);
  const quant::Type& type = quant::Get(table.source->type);
  const auto row_of = [&](size_t t) -> int64_t {
    if (op.by == graph::EmbedBy::kFirst) return 0;
    return op.by == graph::EmbedBy::kToken ? step_->tokens[t] : step_->positions[t];
  };
  float* out = Data(op.out);
  pool_->ParallelFor(step_->tokens.size(), 16, [&](size_t begin, size_t end, int) {
    for (size_t t = begin; t < end; t++) {
      float* row = out + static_cast<int64_t>(t) * table.k;
      type.decode(table.row(row_of(t)), row, static_cast<size_t>(table.k / type.block_elements));
      if (op.scalar != 1.0f) kernels_->scale(row, op.scalar, table.k, row);
    }
  });
}

void CpuProgram::RunRmsNorm(const Op& op) {
  const float *x = Data(op.in[0]), *weight = weights_.vector(op.weights[0]);
  float* out = Data(op.out);
  const int64_t n = graph_->value(op.out).cols / op.groups;
  pool_->ParallelFor(static_cast<size_t>(Rows(op.out) * op.groups), RowGrain(n), [&](size_t begin, size_t end, int) {
    for (int64_t i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); i++)
      kernels_->rms_norm(x + i * n, weight, n, op.scalar, out + i * n);
  });
}

void CpuProgram::RunLayerNorm(const Op& op) {
  const float *x = Data(op.in[0]), *weight = weights_.vector(op.weights[0]), *bias = weights_.vector(op.bias);
  float* out = Data(op.out);
  const int64_t n = graph_->value(op.out).cols;
  pool_->ParallelFor(static_cast<size_t>(Rows(op.out)), RowGrain(n), [&](size_t begin, size_t end, int) {
    for (int64_t i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); i++)
      kernels_->layer_norm(x + i * n, weight, bias, n, op.scalar, out + i * n);
  });
}

void CpuProgram::PrepareRope() {
  for (size_t i = 0; i < graph_->ropes().size(); i++) {
    const graph::RopeSpec& spec = graph_->ropes()[i];
    const size_t half = spec.inv_freq.size();
    pool_->ParallelFor(step_->positions.size(), 16, [&](size_t begin, size_t end, int) {
      for (size_t t = begin; t < end; t++) {
        for (size_t c = 0; c < half; c++) {
          const SinCosPair turn = SinCos(static_cast<double>(step_->positions[t]) * spec.inv_freq[c]);
          rope_cos_[i][t * half + c] = static_cast<float>(turn.cos * spec.magnitude);
          rope_sin_[i][t * half + c] = static_cast<float>(turn.sin * spec.magnitude);
        }
      }
    });
  }
}

void CpuProgram::RunRope(const Op& op) {
  const graph::RopeSpec& spec = graph_->ropes()[static_cast<size_t>(op.rope)];
  const int64_t cols = graph_->value(op.out).cols, head = cols / op.groups, half = spec.rotary_dims / 2;
  const float *in = Data(op.in[0]), *cos = rope_cos_[static_cast<size_t>(op.rope)],
              *sin = rope_sin_[static_cast<size_t>(op.rope)];
  float* x = Data(op.out);
  pool_->ParallelFor(static_cast<size_t>(Rows(op.out)), RowGrain(cols), [&](size_t begin, size_t end, int) {
    for (int64_t t = static_cast<int64_t>(begin); t < static_cast<int64_t>(end); t++) {
      if (in != x) std::memcpy(x + t * cols, in + t * cols, static_cast<size_t>(cols) * sizeof(float));
      for (int64_t h = 0; h < op.groups; h++)
        kernels_->rope(x + t * cols + h * head, cos + t * half, sin + t * half, spec.rotary_dims, spec.interleaved);
    }
  });
}

void CpuProgram::RunGatedAct(const Op& op) {
  const float *gate = Data(op.in[0]), *up = op.kind == OpKind::kAct ? nullptr : Data(op.in[1]);
  float* out = Data(op.out);
  const GateKind kind = GateOf(op.activation);
  pool_->ParallelFor(static_cast<size_t>(Rows(op.out) * graph_->value(op.out).cols), kElementGrain,
                     [&](size_t begin, size_t end, int) {
                       kernels_->gated_act(gate + begin, up == nullptr ? nullptr : up + begin, kind,
                                           static_cast<int64_t>(end - begin), out + begin);
                     });
}

void CpuProgram::RunElementwise(const Op& op) {
  const float* a = Data(op.in[0]);
  float* out = Data(op.out);
  pool_->ParallelFor(static_cast<size_t>(Rows(op.out) * graph_->value(op.out).cols), kElementGrain,
                     [&](size_t begin, size_t end, int) {
                       const int64_t n = static_cast<int64_t>(end - begin);
                       if (op.kind == OpKind::kAdd)
                         kernels_->add(a + begin, Data(op.in[1]) + begin, n, out + begin);
                       else if (op.kind == OpKind::kScale)
                         kernels_->scale(a + begin, op.scalar, n, out + begin);
                       else
                         kernels_->softcap(a + begin, op.scalar, n, out + begin);
                     });
}

void CpuProgram::RunSlice(const Op& op) {
  const float* x = Data(op.in[0]);
  float* out = Data(op.out);
  const int64_t from = graph_->value(op.in[0]).cols / op.groups, to = graph_->value(op.out).cols / op.groups;
  const int64_t pieces = Rows(op.out) * op.groups;
  pool_->ParallelFor(static_cast<size_t>(pieces), RowGrain(to), [&](size_t begin, size_t end, int) {
    for (int64_t i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); i++)
      std::memcpy(out + i * to, x + i * from + op.first, static_cast<size_t>(to) * sizeof(float));
  });
}

void CpuProgram::RunCall(const Call& call) {
  if (call.ops.empty()) return Quantize(call);
  const graph::ValueId out = call.ops.back()->out;
  if (out != graph::kNone && Rows(out) == 0) return;  // no logits asked for
  if (!call.pass) return RunOp(*call.ops[0]);
  switch (*call.pass) {
    case graph::Pass::kQkv: return RunMatMuls(call.ops);
    case graph::Pass::kGateUp: return RunGateUp(call);
    case graph::Pass::kResidual: return RunResidual(call);
    case graph::Pass::kRopeKv: return RunRopeKv(call);
    case graph::Pass::kNormQuantize: return RunRowChain(call);
    case graph::Pass::kCount: return;
  }
}

void CpuProgram::RunOp(const Op& op) {
  switch (op.kind) {
    case OpKind::kEmbed: return RunEmbed(op);
    case OpKind::kRmsNorm: return RunRmsNorm(op);
    case OpKind::kLayerNorm: return RunLayerNorm(op);
    case OpKind::kMatMul: products_.assign(1, ProductOf(op, Data(op.out), nullptr)); return RunProducts();
    case OpKind::kRope: return RunRope(op);
    case OpKind::kAppendKv: return RunAppendKv(op);
    case OpKind::kAttention: return RunAttention(op);
    case OpKind::kAct:
    case OpKind::kGatedAct: return RunGatedAct(op);
    case OpKind::kExperts: return RunExperts(op);
    case OpKind::kSelectRows: {
      const int64_t cols = graph_->value(op.out).cols;
      for (size_t r = 0; r < step_->logit_rows.size(); r++) {
        std::memcpy(Data(op.out) + static_cast<int64_t>(r) * cols, Data(op.in[0]) + step_->logit_rows[r] * cols,
                    static_cast<size_t>(cols) * sizeof(float));
      }
      return;
    }
    case OpKind::kAdd:
    case OpKind::kScale:
    case OpKind::kSoftcap: return RunElementwise(op);
    case OpKind::kSlice: return RunSlice(op);
    case OpKind::kShortConv: return RunShortConv(op);
    case OpKind::kDeltaRule: return RunDeltaRule(op);
  }
}

void CpuProgram::TraceOps(bool on) {
  trace_ = on;
  call_times_.assign(on ? calls_.size() : 0, {});
  traced_steps_[0] = traced_steps_[1] = 0;
}

void CpuProgram::TraceSteps(int64_t every) {
  std::vector<std::string> ops = {"prepare positions"};
  for (const Call& call : calls_) ops.push_back(NameOf(call));
  step_trace_.Start(every, std::move(ops));
}

std::vector<backend::OpTime> CpuProgram::op_times() const {
  std::vector<backend::OpTime> times;
  for (int decode = 0; decode < 2; decode++) {
    if (traced_steps_[decode] == 0) continue;
    for (size_t i = 0; i < call_times_.size(); i++) {
      const std::string name = NameOf(calls_[i]);
      auto found =
          std::ranges::find_if(times, [&](const auto& t) { return t.op == name && t.decode == (decode != 0); });
      if (found == times.end()) {
        times.push_back({.op = name, .decode = decode != 0, .steps = traced_steps_[decode]});
        found = times.end() - 1;
      }
      found->calls += call_times_[i].calls[decode];
      found->ms += call_times_[i].ns[decode] / 1e6;
    }
  }
  return times;
}

}  // namespace ridge::cpu
