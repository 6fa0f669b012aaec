// Matrix products: one parallel region over the panels of one or several matrices.
#include <algorithm>

#include "backend/cpu/program.h"
#include "base/cpu.h"

namespace ridge::cpu {
namespace {

using graph::Op;

int64_t PanelsOf(const Matrix& m) { return (m.n + kPanelRows - 1) / kPanelRows; }

ActView From(const ActView& x, ActKind act, int64_t row) {
  ActView view = x;
  view.f32 += row * x.f32_stride;
  if (act == ActKind::kF32) return view;
  view.q += row * x.k;
  view.d += row * ActScales(act, x.k);
  view.sums += row * ActSums(act, x.k);
  return view;
}

}  // namespace

Product CpuProgram::ProductOf(const Op& op, float* out, const float* residual) const {
  const Matrix& matrix = weights_.matrix(op.weights[0]);
  return {.matrix = &matrix,
          .x = View(op.in[0], matrix.act()),
          .n_tokens = Rows(op.in[0]),
          .bias = op.bias == graph::kNone ? nullptr : weights_.vector(op.bias),
          .residual = residual,
          .out = out,
          .out_stride = matrix.n};
}

// Rows [16 panel_begin, 16 panel_end) for some tokens; `out` is where the first row of the first token goes.
void CpuProgram::Panels(const Product& p, int64_t panel_begin, int64_t panel_end, int64_t token_begin,
                        int64_t token_end, float* out, int64_t out_stride, int worker) {
  const Matrix& m = *p.matrix;
  const int64_t row = panel_begin * kPanelRows;
  MatMulArgs args{.panels = nullptr,
                  .panel_bytes = m.panel_bytes,
                  .panel_begin = 0,
                  .panel_end = panel_end - panel_begin,
                  .n_rows = m.n - row,
                  .x = p.in_rows == nullptr ? From(p.x, m.act(), token_begin) : p.x,
                  .in_rows = p.in_rows == nullptr ? nullptr : p.in_rows + token_begin,
                  .token_begin = 0,
                  .token_end = token_end - token_begin,
                  .out = out,
                  .out_stride = out_stride,
                  .bias = p.bias == nullptr ? nullptr : p.bias + row,
                  .residual = p.residual == nullptr ? nullptr : p.residual + token_begin * p.out_stride + row,
                  .narrow_ports = Cpu().narrow_ports};
  if (m.kind) {
    args.panels = m.expert(p.expert) + panel_begin * m.panel_bytes;
    kernels_->matmul[static_cast<int>(*m.kind)](args);
    return;
  }
  // No panels: 16 rows at a time are decoded to float32.
  float* scratch = worker_scratch_[static_cast<size_t>(worker)];
  float* panel = scratch + m.k;
  for (int64_t i = panel_begin; i < panel_end; i++) {
    const int64_t skip = (i - panel_begin) * kPanelRows, n = std::min<int64_t>(kPanelRows, m.n - i * kPanelRows);
    DecodePanel(m, p.expert * m.n + i * kPanelRows, n, scratch, panel);
    MatMulArgs one = args;
    one.panels = reinterpret_cast<const uint8_t*>(panel);
    one.panel_end = 1;
    one.n_rows = n;
    one.out = args.out + skip;
    one.bias = args.bias == nullptr ? nullptr : args.bias + skip;
    one.residual = args.residual == nullptr ? nullptr : args.residual + skip;
    kernels_->matmul[static_cast<int>(PanelKind::kF32)](one);
  }
}

void CpuProgram::RunBlas(const Product& p) {
  const Matrix& m = *p.matrix;
  const quant::Type& type = quant::Get(m.source->type);
  float *rows = blas_rows_.As<float>(), *products = blas_out_.As<float>();
  for (int64_t row = 0; row < m.n; row += kBlasBlockRows) {
    const int64_t n = std::min<int64_t>(kBlasBlockRows, m.n - row);
    pool_->ParallelFor(static_cast<size_t>(n), 8, [&](size_t begin, size_t end, int) {
      for (int64_t r = static_cast<int64_t>(begin); r < static_cast<int64_t>(end); r++)
        type.decode(m.row(p.expert * m.n + row + r), rows + r * m.k, static_cast<size_t>(m.k / type.block_elements));
    });
    blas_->sgemm(kBlasRowMajor, kBlasNoTranspose, kBlasTranspose, static_cast<int>(p.n_tokens), static_cast<int>(n),
                 static_cast<int>(m.k), 1.0f, p.x.f32, static_cast<int>(p.x.f32_stride), rows, static_cast<int>(m.k),
                 0.0f, products, static_cast<int>(n));
    pool_->ParallelFor(static_cast<size_t>(p.n_tokens), 8, [&](size_t begin, size_t end, int) {
      for (int64_t t = static_cast<int64_t>(begin); t < static_cast<int64_t>(end); t++) {
        const int64_t at = t * p.out_stride + row;
        for (int64_t r = 0; r < n; r++) {
          float x = products[t * n + r];
          if (p.bias != nullptr) x += p.bias[row + r];
          p.out[at + r] = p.residual == nullptr ? x : p.residual[at + r] + x;
        }
      }
    });
  }
}

void CpuProgram::RunProducts() {
  if (blas_) {
    std::erase_if(products_, [this](const Product& p) {
      const bool taken = p.n_tokens >= kBlasTokens && p.in_rows == nullptr;
      if (taken) RunBlas(p);
      return taken;
    });
    if (products_.empty()) return;
  }
  // Work is claimed as (strip of panels, block of tokens). Strips are short where there is little work, so that all threads get some.
  // A matrix that is decoded on use is decoded once for all tokens.
  cuts_.clear();
  int64_t tiles = 0, units = 0;
  for (const Product& p : products_) tiles += PanelsOf(*p.matrix) * ((p.n_tokens + kTokenBlock - 1) / kTokenBlock);
  for (const Product& p : products_) {
    Cut cut{.first_unit = units, .strip = 1, .blocks = 1, .tokens = p.n_tokens};
    if (p.matrix->kind) {
      cut.tokens = TokenBlock(p.n_tokens);
      cut.blocks = (p.n_tokens + cut.tokens - 1) / cut.tokens;
      cut.strip = std::clamp<int64_t>(tiles / (8 * pool_->size()), 1, p.n_tokens > 8 ? 8 : 64);
      if (cut.strip > 2) cut.strip -= cut.strip % 2;  // a tile of several tokens is two panels on some targets
    }
    units += (PanelsOf(*p.matrix) + cut.strip - 1) / cut.strip * cut.blocks;
    cuts_.push_back(cut);
  }
  pool_->ParallelFor(static_cast<size_t>(units), 1, [&](size_t begin, size_t end, int worker) {
    for (int64_t unit = static_cast<int64_t>(begin); unit < static_cast<int64_t>(end); unit++) {
      const auto after = std::ranges::upper_bound(cuts_, unit, {}, [](const Cut& cut) { return cut.first_unit; });
      const Cut& cut = *(after - 1);
      const Product& p = products_[static_cast<size_t>(after - 1 - cuts_.begin())];
      const int64_t local = unit - cut.first_unit, panel = local / cut.blocks * cut.strip;
      const int64_t token = local % cut.blocks * cut.tokens;
      Panels(p, panel, std::min(panel + cut.strip, PanelsOf(*p.matrix)), token,
             std::min(token + cut.tokens, p.n_tokens), p.out + token * p.out_stride + panel * kPanelRows, p.out_stride,
             worker);
    }
  });
}

void CpuProgram::RunMatMuls(std::span<const Op* const> ops) {
  products_.clear();
  for (const Op* op : ops) products_.push_back(ProductOf(*op, Data(op->out), nullptr));
  RunProducts();
}

void CpuProgram::RunResidual(const Call& call) {
  const Op& add = *call.ops[1];
  products_.assign(1, ProductOf(*call.ops[0], Data(add.out), Data(add.in[0])));
  RunProducts();
}

}  // namespace ridge::cpu
