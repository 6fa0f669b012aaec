#include "backend/cpu/weights.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "backend/cpu/panel_cache.h"

namespace ridge::cpu {
namespace {

size_t Align(size_t n) { return (n + 63) / 64 * 64; }

// What the panel cache holds, line by line; it must be equal for a cache to be used.
std::string TableOf(const graph::Graph& graph, const std::vector<Matrix>& matrices,
                    const std::vector<size_t>& offsets) {
  std::string table;
  for (size_t i = 0; i < matrices.size(); i++) {
    const Matrix& m = matrices[i];
    if (!m.kind) continue;
    table += graph.weights()[i].name + ' ' + std::string(quant::Get(m.source->type).name) + ' ' + Name(*m.kind);
    for (const int64_t n : {m.n, m.k, m.experts, m.panel_bytes, static_cast<int64_t>(offsets[i])}) {
      table += ' ' + std::to_string(n);
    }
    table += '\n';
  }
  return table;
}

}  // namespace

std::vector<Weights::Use> Weights::UsesOf(const graph::Graph& graph) {
  std::vector<Use> uses(graph.weights().size(), Use::kNone);
  const auto mark = [&](graph::WeightId id, Use use) {
    if (id != graph::kNone) uses[static_cast<size_t>(id)] = std::max(uses[static_cast<size_t>(id)], use);
  };
  for (const graph::Op& op : graph.ops()) {
    const bool vectors = op.kind == graph::OpKind::kRmsNorm || op.kind == graph::OpKind::kLayerNorm ||
                         op.kind == graph::OpKind::kDeltaRule;
    for (graph::WeightId id : op.weights) {
      mark(id, vectors                                ? Use::kVector
               : op.kind == graph::OpKind::kShortConv ? Use::kTransposed
               : op.kind == graph::OpKind::kEmbed     ? Use::kLookup
                                                      : Use::kMatrix);
    }
    mark(op.bias, Use::kVector);
  }
  return uses;
}

Matrix Weights::Describe(const graph::Weight& weight, Use use) {
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

Result<Weights> Weights::Load(const graph::Graph& graph, ThreadPool& pool, const Options& options) {
  Weights w;
  const std::vector<Use> uses = UsesOf(graph);
  w.matrices_.resize(uses.size());
  w.vectors_.resize(uses.size(), nullptr);
  w.offsets_.resize(uses.size());
  size_t float_bytes = 0;
  for (size_t i = 0; i < uses.size(); i++) {
    const graph::Weight& source = graph.weights()[i];
    if (uses[i] == Use::kVector || uses[i] == Use::kTransposed) {
      w.offsets_[i] = float_bytes;
      float_bytes += Align(static_cast<size_t>(source.k() * source.n()) * sizeof(float));
    } else if (uses[i] != Use::kNone) {
      w.offsets_[i] = w.panel_bytes_;
      w.matrices_[i] = Describe(source, uses[i]);
      const Matrix& m = w.matrices_[i];
      w.panel_bytes_ += Align(static_cast<size_t>(m.experts * m.n_panels * m.panel_bytes));
    }
  }
  RIDGE_ASSIGN_OR_RETURN(w.floats_, Buffer::Allocate(float_bytes));
  if (options.dry_run) {
    RIDGE_ASSIGN_OR_RETURN(w.panels_, Buffer::Allocate(w.panel_bytes_));
    return w;
  }
  for (size_t i = 0; i < uses.size(); i++) {
    if (uses[i] != Use::kVector && uses[i] != Use::kTransposed) continue;
    const graph::Weight& source = graph.weights()[i];
    const quant::Type& type = quant::Get(source.type);
    float* values = reinterpret_cast<float*>(w.floats_.data() + w.offsets_[i]);
    type.decode(source.data.data(), values, static_cast<size_t>(source.k() * source.n()) / type.block_elements);
    if (uses[i] == Use::kTransposed) {
      const std::vector<float> rows(values, values + source.k() * source.n());
      for (int64_t r = 0; r < source.n(); r++) {
        for (int64_t c = 0; c < source.k(); c++)
          values[c * source.n() + r] = rows[static_cast<size_t>(r * source.k() + c)];
      }
    }
    w.vectors_[i] = values;
    if (options.release) options.release(source);
  }
  RIDGE_RETURN_IF_ERROR(w.LoadPanels(graph, pool, options));
  for (size_t i = 0; i < uses.size(); i++) {
    if (w.matrices_[i].kind) {
      w.matrices_[i].panels = reinterpret_cast<const uint8_t*>(w.panels_.data() + w.offsets_[i]);
    }
  }
  return w;
}

Status Weights::LoadPanels(const graph::Graph& graph, ThreadPool& pool, const Options& options) {
  if (options.panel_cache_dir.empty()) return Pack(pool, options);
  if (panel_bytes_ == 0) {
    report_.panel_cache = "no weight of this model has panels";
    return {};
  }
  RIDGE_ASSIGN_OR_RETURN(PanelCache cache, PanelCache::Open(options.panel_cache_dir, options.sources,
                                                            TableOf(graph, matrices_, offsets_), panel_bytes_));
  auto read = cache.Read(pool);
  if (read) {
    panels_ = std::move(*read);
    report_.panel_cache = "read " + cache.path() + (cache.mapped() ? " (mapped on huge pages)" : " (copied)");
    return {};
  }
  if (read.error().code != Code::kNotFound) {
    report_.notes.push_back("repacked weights in " + cache.path() + " are not used: " + read.error().Message() +
                            "; they are packed anew");
  }
  RIDGE_RETURN_IF_ERROR(Pack(pool, options));
  if (Status wrote = cache.Write(pool, {panels_.data(), panel_bytes_}); !wrote) {
    if (options.strict) return wrote;
    report_.panel_cache = "not written: " + wrote.error().Message();
    report_.notes.push_back("repacked weights are not kept: " + wrote.error().Message());
    return {};
  }
  report_.panel_cache = "written " + cache.path();
  return {};
}

Status Weights::Pack(ThreadPool& pool, const Options& options) {
  RIDGE_ASSIGN_OR_RETURN(panels_, Buffer::Allocate(panel_bytes_));
  for (size_t i = 0; i < matrices_.size(); i++) {
    const Matrix& m = matrices_[i];
    if (!m.kind) continue;  // its file pages are still needed
    uint8_t* panels = reinterpret_cast<uint8_t*>(panels_.data() + offsets_[i]);
    pool.ParallelFor(static_cast<size_t>(m.experts * m.n_panels), 4, [&](size_t begin, size_t end, int) {
      for (int64_t p = static_cast<int64_t>(begin); p < static_cast<int64_t>(end); p++) {
        const int64_t expert = p / m.n_panels, row = p % m.n_panels * kPanelRows;
        PackPanel(m.source->type, m.row(expert * m.n + row), std::min<int64_t>(kPanelRows, m.n - row), m.k,
                  panels + p * m.panel_bytes);
      }
    });
    if (options.release) options.release(*m.source);
  }
  return {};
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
