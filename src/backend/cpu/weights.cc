#include "backend/cpu/weights.h"

#include <algorithm>
#include <cstring>

namespace ridge::cpu {
namespace {

enum class Use { kNone, kVector, kLookup, kMatrix };  // a table that is also the output matrix is a matrix

std::vector<Use> UsesOf(const graph::Graph& graph) {
  std::vector<Use> uses(graph.weights().size(), Use::kNone);
  const auto mark = [&](graph::WeightId id, Use use) {
    if (id != graph::kNone) uses[static_cast<size_t>(id)] = std::max(uses[static_cast<size_t>(id)], use);
  };
  for (const graph::Op& op : graph.ops()) {
    for (graph::WeightId id : op.weights) {
      mark(id, op.kind == graph::OpKind::kRmsNorm ? Use::kVector
               : op.kind == graph::OpKind::kEmbed ? Use::kLookup
                                                  : Use::kMatrix);
    }
    mark(op.bias, Use::kVector);
  }
  return uses;
}

Matrix Describe(const graph::Weight& weight, Use use) {
  Matrix m;
  const quant::Type& type = quant::Get(weight.type);
  m.source = &weight;
  m.k = weight.k();
  m.n = weight.n();
  m.experts = weight.experts();
  m.row_bytes = m.k / type.block_elements * type.block_bytes;
  if (use == Use::kMatrix) m.kind = PanelFor(weight.type);
  if (m.kind) {
    m.n_panels = (m.n + kPanelRows - 1) / kPanelRows;
    m.panel_bytes = PanelBytes(*m.kind, m.k);
  }
  return m;
}

size_t Align(size_t n) { return (n + 63) / 64 * 64; }

}  // namespace

Result<Weights> Weights::Load(const graph::Graph& graph, ThreadPool& pool, const Release& release) {
  Weights w;
  const std::vector<Use> uses = UsesOf(graph);
  w.matrices_.resize(uses.size());
  w.vectors_.resize(uses.size(), nullptr);
  std::vector<size_t> offsets(uses.size());
  size_t total = 0;
  for (size_t i = 0; i < uses.size(); i++) {
    const graph::Weight& source = graph.weights()[i];
    offsets[i] = total;
    if (uses[i] == Use::kVector) {
      total += Align(static_cast<size_t>(source.k() * source.n()) * sizeof(float));
    } else if (uses[i] != Use::kNone) {
      w.matrices_[i] = Describe(source, uses[i]);
      const Matrix& m = w.matrices_[i];
      total += Align(static_cast<size_t>(m.experts * m.n_panels * m.panel_bytes));
    }
  }
  RIDGE_ASSIGN_OR_RETURN(w.arena_, Buffer::Allocate(total));
  for (size_t i = 0; i < uses.size(); i++) {
    const graph::Weight& source = graph.weights()[i];
    std::byte* at = w.arena_.data() + offsets[i];
    if (uses[i] == Use::kVector) {
      const quant::Type& type = quant::Get(source.type);
      float* values = reinterpret_cast<float*>(at);
      type.decode(source.data.data(), values, static_cast<size_t>(source.k() * source.n()) / type.block_elements);
      w.vectors_[i] = values;
    } else if (uses[i] == Use::kMatrix && w.matrices_[i].kind) {
      Matrix& m = w.matrices_[i];
      m.panels = reinterpret_cast<uint8_t*>(at);
      pool.ParallelFor(static_cast<size_t>(m.experts * m.n_panels), 4, [&](size_t begin, size_t end, int) {
        for (int64_t p = static_cast<int64_t>(begin); p < static_cast<int64_t>(end); p++) {
          const int64_t expert = p / m.n_panels, row = p % m.n_panels * kPanelRows;
          PackPanel(*m.kind, m.row(expert * m.n + row), std::min<int64_t>(kPanelRows, m.n - row), m.k,
                    m.panels + p * m.panel_bytes);
        }
      });
    } else {
      continue;  // its file pages are still needed
    }
    if (release) release(source);
  }
  return w;
}

void DecodePanel(const Matrix& matrix, int64_t row, int64_t n_rows, float* scratch, float* panel) {
  const quant::Type& type = quant::Get(matrix.source->type);
  for (int64_t r = 0; r < kPanelRows; r++) {
    if (r < n_rows)
      type.decode(matrix.row(row + r), scratch, static_cast<size_t>(matrix.k / type.block_elements));
    else
      std::fill_n(scratch, matrix.k, 0.0f);
    for (int64_t i = 0; i < matrix.k; i++) panel[i * kPanelRows + r] = scratch[i];
  }
}

}  // namespace ridge::cpu
