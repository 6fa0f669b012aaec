#include "backend/cpu/program.h"

#include <algorithm>
#include <cstring>

#include "base/math.h"

namespace ridge::cpu {
namespace {

using graph::Op;
using graph::OpKind;
using graph::ValueId;

constexpr int64_t kTokenBlock = 64;     // tokens of one unit of matmul work
constexpr size_t kElementGrain = 8192;  // elements of one unit of element-wise work

}  // namespace

Result<std::unique_ptr<backend::StateStore>> CpuProgram::NewState(const backend::StateOptions& options) {
  RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<backend::StateStore> state, PagedState::Create(*graph_, options));
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
  int64_t vocab_rows = 0;
  for (const Op& op : graph_->ops()) {
    if (op.kind == OpKind::kEmbed) vocab_rows = graph_->weight(op.weights[0]).n();
  }
  for (int64_t s = 0; s < seqs; s++) {
    for (int64_t t = step.seq_start[static_cast<size_t>(s)]; t < step.seq_start[static_cast<size_t>(s) + 1]; t++) {
      const int32_t token = step.tokens[static_cast<size_t>(t)], position = step.positions[static_cast<size_t>(t)];
      if (token < 0 || token >= vocab_rows)
        return Fail(Code::kInvalidArgument, "token id outside the vocabulary")
            .Found(std::to_string(token))
            .Expected("0 to " + std::to_string(vocab_rows - 1));
      if (position < 0 || position / state.options().page_tokens >= table) return bad("position beyond its pages");
      const int32_t page = step.page_table[static_cast<size_t>(s * table + position / state.options().page_tokens)];
      if (page < 0 || page >= state.options().n_pages) return bad("page id");
    }
  }
  return {};
}

Status CpuProgram::Run(const backend::Step& step, backend::StateStore& store, std::span<float> logits) {
  PagedState& state = static_cast<PagedState&>(store);  // stores come from NewState of a program of this backend
  RIDGE_RETURN_IF_ERROR(CheckStep(step, state, logits.size()));
  step_ = &step;
  state_ = &state;
  logits_ = logits.data();
  PrepareRope();
  for (const Call& call : calls_) RunCall(call);
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
  const Slot& slot = slots_[static_cast<int>(act)];
  const int64_t k = graph_->value(id).cols;
  return {.f32 = Data(id), .f32_stride = k, .q = slot.q, .d = slot.d, .sums = slot.sums, .k = k};
}

void CpuProgram::QuantizeRow(ActKind act, const float* x, int64_t k, int8_t* q, float* d, int32_t* sums) const {
  if (act == ActKind::kQ8x32)
    kernels_->quantize_q8x32(x, k, q, d, sums);
  else
    kernels_->quantize_q8x256(x, k, q, d, sums);
}

void CpuProgram::Quantize(ValueId id, ActKind act) {
  const Slot& slot = slots_[static_cast<int>(act)];
  const int64_t k = graph_->value(id).cols, block = act == ActKind::kQ8x32 ? 32 : 256,
                sum = act == ActKind::kQ8x32 ? 32 : 16;
  const float* x = Data(id);
  pool_->ParallelFor(static_cast<size_t>(Rows(id)), std::max<size_t>(1, 16384 / static_cast<size_t>(k)),
                     [&](size_t begin, size_t end, int) {
                       for (int64_t r = static_cast<int64_t>(begin); r < static_cast<int64_t>(end); r++) {
                         QuantizeRow(act, x + r * k, k, slot.q + r * k, slot.d + r * (k / block),
                                     slot.sums + r * (k / sum));
                       }
                     });
}

void CpuProgram::MatMul(const Matrix& matrix, int64_t expert, const ActView& x, const int32_t* in_rows,
                        int64_t n_tokens, const float* bias, float* out, int64_t out_stride) {
  MatMulArgs args{.panels = nullptr,
                  .panel_bytes = matrix.panel_bytes,
                  .n_rows = matrix.n,
                  .x = x,
                  .in_rows = in_rows,
                  .out = out,
                  .out_stride = out_stride,
                  .bias = bias};
  if (!matrix.kind) {
    // No panels: 16 rows at a time are decoded to float32 and multiplied with all tokens.
    const int64_t panels = (matrix.n + kPanelRows - 1) / kPanelRows;
    pool_->ParallelFor(static_cast<size_t>(panels), 1, [&](size_t begin, size_t end, int worker) {
      float* scratch = worker_scratch_[static_cast<size_t>(worker)];
      float* panel = scratch + matrix.k;
      for (int64_t p = static_cast<int64_t>(begin); p < static_cast<int64_t>(end); p++) {
        const int64_t row = p * kPanelRows, n = std::min<int64_t>(kPanelRows, matrix.n - row);
        DecodePanel(matrix, expert * matrix.n + row, n, scratch, panel);
        MatMulArgs one = args;
        one.panels = reinterpret_cast<const uint8_t*>(panel);
        one.panel_end = 1;
        one.n_rows = n;
        one.token_end = n_tokens;
        one.out = out + row;
        one.bias = bias == nullptr ? nullptr : bias + row;
        kernels_->matmul[static_cast<int>(PanelKind::kF32)](one);
      }
    });
    return;
  }
  args.panels = matrix.expert(expert);
  const auto kernel = kernels_->matmul[static_cast<int>(*matrix.kind)];
  // Work is claimed as (strip of panels, block of tokens). Strips are short where there is little work, so that all threads get some.
  const int64_t blocks = (n_tokens + kTokenBlock - 1) / kTokenBlock;
  const int64_t wanted = 8 * pool_->size();
  const int64_t strip = std::clamp<int64_t>(matrix.n_panels * blocks / wanted, 1, n_tokens > 8 ? 8 : 64);
  const int64_t strips = (matrix.n_panels + strip - 1) / strip;
  pool_->ParallelFor(static_cast<size_t>(strips * blocks), 1, [&](size_t begin, size_t end, int) {
    for (int64_t unit = static_cast<int64_t>(begin); unit < static_cast<int64_t>(end); unit++) {
      MatMulArgs part = args;
      part.panel_begin = unit / blocks * strip;
      part.panel_end = std::min(part.panel_begin + strip, matrix.n_panels);
      part.token_begin = unit % blocks * kTokenBlock;
      part.token_end = std::min(part.token_begin + kTokenBlock, n_tokens);
      kernel(part);
    }
  });
}

void CpuProgram::RunEmbed(const Op& op) {
  const Matrix& table = weights_.matrix(op.weights[0]);
  const quant::Type& type = quant::Get(table.source->type);
  float* out = Data(op.out);
  pool_->ParallelFor(step_->tokens.size(), 16, [&](size_t begin, size_t end, int) {
    for (size_t t = begin; t < end; t++) {
      float* row = out + static_cast<int64_t>(t) * table.k;
      type.decode(table.row(step_->tokens[t]), row, static_cast<size_t>(table.k / type.block_elements));
      if (op.scalar != 1.0f) kernels_->scale(row, op.scalar, table.k, row);
    }
  });
}

void CpuProgram::RunRmsNorm(const Op& op) {
  const float *x = Data(op.in[0]), *weight = weights_.vector(op.weights[0]);
  float* out = Data(op.out);
  const int64_t n = graph_->value(op.out).cols / op.groups;
  pool_->ParallelFor(static_cast<size_t>(Rows(op.out) * op.groups),
                     std::max<size_t>(1, kElementGrain / static_cast<size_t>(n)), [&](size_t begin, size_t end, int) {
                       for (int64_t i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); i++)
                         kernels_->rms_norm(x + i * n, weight, n, op.scalar, out + i * n);
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
  pool_->ParallelFor(static_cast<size_t>(Rows(op.out)), std::max<size_t>(1, kElementGrain / static_cast<size_t>(cols)),
                     [&](size_t begin, size_t end, int) {
                       for (int64_t t = static_cast<int64_t>(begin); t < static_cast<int64_t>(end); t++) {
                         if (in != x)
                           std::memcpy(x + t * cols, in + t * cols, static_cast<size_t>(cols) * sizeof(float));
                         for (int64_t h = 0; h < op.groups; h++)
                           kernels_->rope(x + t * cols + h * head, cos + t * half, sin + t * half, spec.rotary_dims,
                                          spec.interleaved);
                       }
                     });
}

void CpuProgram::RunAppendKv(const Op& op) {
  const PagedState::Layer& layer = state_->layer(op.attention.layer);
  const backend::StateOptions& o = state_->options();
  const float *k = Data(op.in[0]), *v = Data(op.in[1]);
  const auto store_k = kernels_->store_kv[static_cast<int>(KindOf(o.k_type))],
             store_v = kernels_->store_kv[static_cast<int>(KindOf(o.v_type))];
  const int64_t k_value = static_cast<int64_t>(backend::ValueBytes(o.k_type)),
                v_value = static_cast<int64_t>(backend::ValueBytes(o.v_type));
  const size_t seqs = step_->seq_start.size() - 1, table = step_->page_table.size() / seqs;
  // One unit is one KV head, so that no two threads write one cache line of a K page.
  pool_->ParallelFor(static_cast<size_t>(layer.kv_heads), 1, [&](size_t begin, size_t end, int) {
    for (size_t s = 0; s < seqs; s++) {
      for (int64_t t = step_->seq_start[s]; t < step_->seq_start[s + 1]; t++) {
        const int64_t position = step_->positions[static_cast<size_t>(t)], slot = position % o.page_tokens;
        const int64_t page = step_->page_table[s * table + static_cast<size_t>(position / o.page_tokens)];
        for (int64_t h = static_cast<int64_t>(begin); h < static_cast<int64_t>(end); h++) {
          const int64_t from = (t * layer.kv_heads + h) * layer.head_dim;
          store_k(k + from, layer.head_dim,
                  layer.k + page * layer.k_page_bytes + h * layer.k_head_bytes + slot * k_value, o.page_tokens);
          store_v(v + from, layer.head_dim,
                  layer.v + page * layer.v_page_bytes + h * layer.v_head_bytes + slot * layer.head_dim * v_value, 1);
        }
      }
    }
  });
}

void CpuProgram::RunAttention(const Op& op) {
  const graph::AttentionSpec& spec = op.attention;
  const PagedState::Layer& layer = state_->layer(spec.layer);
  const backend::StateOptions& o = state_->options();
  const auto kernel = kernels_->attention[static_cast<int>(KindOf(o.k_type))][static_cast<int>(KindOf(o.v_type))];
  const float* q = Data(op.in[0]);
  float* out = Data(op.out);
  const int64_t group = spec.heads / spec.kv_heads, cols = spec.heads * spec.head_dim;
  const int64_t heads_per_tile = std::min<int64_t>(group, kMaxQueryRows),
                tokens_per_tile = std::max<int64_t>(1, kMaxQueryRows / group);
  const int64_t head_tiles = (group + heads_per_tile - 1) / heads_per_tile;
  const size_t seqs = step_->seq_start.size() - 1, table = step_->page_table.size() / seqs;
  for (size_t s = 0; s < seqs; s++) {
    const int64_t first = step_->seq_start[s], n = step_->seq_start[s + 1] - first;
    const int64_t token_tiles = (n + tokens_per_tile - 1) / tokens_per_tile;
    pool_->ParallelFor(
        static_cast<size_t>(token_tiles * spec.kv_heads * head_tiles), 1, [&](size_t begin, size_t end, int worker) {
          for (int64_t unit = static_cast<int64_t>(begin); unit < static_cast<int64_t>(end); unit++) {
            // The longest rows first: what is claimed last is short.
            const int64_t tile = token_tiles - 1 - unit / (spec.kv_heads * head_tiles);
            const int64_t kv_head = unit / head_tiles % spec.kv_heads, head_begin = unit % head_tiles * heads_per_tile;
            const float* rows[kMaxQueryRows];
            float* outs[kMaxQueryRows];
            int64_t lo[kMaxQueryRows], hi[kMaxQueryRows], count = 0;
            for (int64_t t = first + tile * tokens_per_tile; t < first + std::min(n, (tile + 1) * tokens_per_tile);
                 t++) {
              const int64_t position = step_->positions[static_cast<size_t>(t)];
              for (int64_t h = head_begin; h < std::min(group, head_begin + heads_per_tile); h++, count++) {
                const int64_t offset = t * cols + (kv_head * group + h) * spec.head_dim;
                rows[count] = q + offset;
                outs[count] = out + offset;
                hi[count] = position + 1;
                lo[count] = spec.window > 0 ? std::max<int64_t>(0, position + 1 - spec.window) : 0;
              }
            }
            kernel({.n_rows = count,
                    .q = rows,
                    .out = outs,
                    .lo = lo,
                    .hi = hi,
                    .k = layer.k + kv_head * layer.k_head_bytes,
                    .v = layer.v + kv_head * layer.v_head_bytes,
                    .k_page_bytes = layer.k_page_bytes,
                    .v_page_bytes = layer.v_page_bytes,
                    .pages = step_->page_table.data() + s * table,
                    .page_tokens = o.page_tokens,
                    .head_dim = spec.head_dim,
                    .scale = spec.scale,
                    .scratch = worker_scratch_[static_cast<size_t>(worker)]});
          }
        });
  }
}

void CpuProgram::RunGatedAct(const Op& op) {
  const float *gate = Data(op.in[0]), *up = Data(op.in[1]);
  float* out = Data(op.out);
  const GateKind kind = op.activation == graph::Activation::kSilu ? GateKind::kSilu : GateKind::kGeluTanh;
  pool_->ParallelFor(static_cast<size_t>(Rows(op.out) * graph_->value(op.out).cols), kElementGrain,
                     [&](size_t begin, size_t end, int) {
                       kernels_->gated_act(gate + begin, up + begin, kind, static_cast<int64_t>(end - begin),
                                           out + begin);
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

void CpuProgram::RunCall(const Call& call) {
  if (call.op == nullptr) return Quantize(call.in, call.act);
  const Op& op = *call.op;
  if (op.out != graph::kNone && Rows(op.out) == 0) return;  // no logits asked for
  switch (op.kind) {
    case OpKind::kEmbed: return RunEmbed(op);
    case OpKind::kRmsNorm: return RunRmsNorm(op);
    case OpKind::kMatMul: {
      const Matrix& matrix = weights_.matrix(op.weights[0]);
      const float* bias = op.bias == graph::kNone ? nullptr : weights_.vector(op.bias);
      return MatMul(matrix, 0, View(op.in[0], matrix.act()), nullptr, Rows(op.in[0]), bias, Data(op.out), matrix.n);
    }
    case OpKind::kRope: return RunRope(op);
    case OpKind::kAppendKv: return RunAppendKv(op);
    case OpKind::kAttention: return RunAttention(op);
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
  }
}

}  // namespace ridge::cpu
