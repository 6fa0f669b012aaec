// The expert layer: tokens are grouped by expert, so that a step reads each expert's weights once.
#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cpu/program.h"

namespace ridge::cpu {

void CpuProgram::RunExperts(const graph::Op& op) {
  const graph::ExpertSpec& spec = op.experts;
  const Matrix &gate = weights_.matrix(op.weights[0]), &up = weights_.matrix(op.weights[1]),
               &down = weights_.matrix(op.weights[2]);
  const int64_t tokens = Rows(op.out), n = spec.experts, used = spec.used, rows = tokens * used;
  ExpertScratch& e = expert_;

  // Route: softmax over all experts, the `used` best in decreasing order; the lower id wins a tie.
  std::memcpy(e.probs, Data(op.in[1]), static_cast<size_t>(tokens * n) * sizeof(float));
  pool_->ParallelFor(static_cast<size_t>(tokens), 16, [&](size_t begin, size_t end, int) {
    for (int64_t t = static_cast<int64_t>(begin); t < static_cast<int64_t>(end); t++) {
      float* p = e.probs + t * n;
      kernels_->softmax(p, n);
      float sum = 0;
      for (int64_t i = 0; i < used; i++) {
        int64_t best = 0;
        for (int64_t j = 1; j < n; j++) best = p[j] > p[best] ? j : best;
        e.expert_of[t * used + i] = static_cast<int32_t>(best);
        e.weight[t * used + i] = p[best];
        sum += p[best];
        p[best] = -1.0f;
      }
      for (int64_t i = 0; i < used; i++) {
        float& w = e.weight[t * used + i];
        if (spec.normalize) w = w / sum;
        w *= spec.scale;
      }
    }
  });

  // Group: slots (token, rank) sorted by expert; order[slot] is its place, row_of[place] its token.
  std::fill_n(e.starts, n + 1, 0);
  for (int64_t i = 0; i < rows; i++) e.starts[e.expert_of[i] + 1]++;
  for (int64_t i = 0; i < n; i++) e.starts[i + 1] += e.starts[i];
  for (int64_t i = 0; i < rows; i++) {
    const int32_t place = e.starts[e.expert_of[i]]++;
    e.order[i] = place;
    e.row_of[place] = static_cast<int32_t>(i / used);
  }
  for (int64_t i = n; i > 0; i--) e.starts[i] = e.starts[i - 1];
  e.starts[0] = 0;

  const int64_t hidden = gate.n, width = down.n;
  const auto count = [&](int64_t x) { return e.starts[x + 1] - e.starts[x]; };
  products_.clear();
  for (int64_t x = 0; x < n; x++) {
    if (count(x) == 0) continue;
    const int64_t at = e.starts[x];
    for (const auto& [matrix, out] : {std::pair{&gate, e.gate}, std::pair{&up, e.up}}) {
      products_.push_back({.matrix = matrix,
                           .expert = x,
                           .x = View(op.in[0], matrix->act()),
                           .in_rows = e.row_of + at,
                           .n_tokens = count(x),
                           .out = out + at * hidden,
                           .out_stride = hidden});
    }
  }
  RunProducts();
  const GateKind kind = GateOf(spec.activation);
  const ActKind act = down.act();
  pool_->ParallelFor(static_cast<size_t>(rows), 4, [&](size_t begin, size_t end, int) {
    for (int64_t r = static_cast<int64_t>(begin); r < static_cast<int64_t>(end); r++) {
      float* g = e.gate + r * hidden;
      kernels_->gated_act(g, e.up + r * hidden, kind, hidden, g);
      if (act != ActKind::kF32)
        QuantizeRow(act, g, hidden, e.q + r * hidden, e.d + r * ActScales(act, hidden),
                    e.sums + r * ActSums(act, hidden));
    }
  });
  const ActView inner{.f32 = e.gate, .f32_stride = hidden, .q = e.q, .d = e.d, .sums = e.sums, .k = hidden};
  products_.clear();
  for (int64_t x = 0; x < n; x++) {
    if (count(x) == 0) continue;
    const int64_t at = e.starts[x];
    ActView view = inner;
    view.f32 += at * hidden;
    if (act != ActKind::kF32) {
      view.q += at * hidden;
      view.d += at * ActScales(act, hidden);
      view.sums += at * ActSums(act, hidden);
    }
    products_.push_back({.matrix = &down,
                         .expert = x,
                         .x = view,
                         .n_tokens = count(x),
                         .out = e.out + at * width,
                         .out_stride = width});
  }
  RunProducts();
  float* out = Data(op.out);
  pool_->ParallelFor(static_cast<size_t>(tokens), 16, [&](size_t begin, size_t end, int) {
    for (int64_t t = static_cast<int64_t>(begin); t < static_cast<int64_t>(end); t++) {
      std::fill_n(out + t * width, width, 0.0f);
      for (int64_t i = 0; i < used; i++)
        kernels_->axpy(e.weight[t * used + i], e.out + e.order[t * used + i] * width, width, out + t * width);
    }
  });
}

}  // namespace ridge::cpu
