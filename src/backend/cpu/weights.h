// The weights of one program as the CPU kernels want them: matrices in panels, packed or mapped from a panel cache; vectors as float32.
//
//   RIDGE_ASSIGN_OR_RETURN(Weights weights, Weights::Load(graph, pool, {.release = release}));
//   const Matrix& m = weights.matrix(id);
//
// Guarantee: a matrix whose type has no panel kind keeps its GGUF rows (borrowed) and is decoded to float32 when it is used.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/pack.h"
#include "base/memory.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "graph/graph.h"

namespace ridge::cpu {

struct Matrix {
  std::optional<PanelKind> kind;  // nullopt: decoded on use
  const graph::Weight* source = nullptr;
  int64_t n = 0, k = 0, experts = 1;
  int64_t n_panels = 0;  // of one expert
  int64_t panel_bytes = 0;
  const uint8_t* panels = nullptr;  // [experts, n_panels, panel_bytes]
  int64_t row_bytes = 0;            // of a row in the GGUF type

  ActKind act() const { return kind ? ActOf(*kind) : ActKind::kF32; }
  const uint8_t* expert(int64_t e) const { return panels + e * n_panels * panel_bytes; }
  const std::byte* row(int64_t r) const { return source->data.data() + r * row_bytes; }
};

class Weights {
 public:
  struct Options {
    std::function<void(const graph::Weight&)> release = {};  // see backend::CompileOptions
    std::string panel_cache_dir = {};                        // empty: none
    std::vector<backend::SourceFile> sources = {};
    bool strict = false;   // a panel cache that cannot be written is an error
    bool dry_run = false;  // memory is reserved, not filled
  };
  static Result<Weights> Load(const graph::Graph& graph, ThreadPool& pool, const Options& options);

  const Matrix& matrix(graph::WeightId id) const { return matrices_[static_cast<size_t>(id)]; }
  // Floats in the file's order; those of a convolution [taps, channels] instead of [channels, taps].
  const float* vector(graph::WeightId id) const { return vectors_[static_cast<size_t>(id)]; }  // nullptr for kNone
  size_t size_bytes() const { return panels_.size_bytes() + floats_.size_bytes(); }
  const backend::LoadReport& report() const { return report_; }

 private:
  enum class Use {
    kNone,
    kVector,
    kTransposed,
    kLookup,
    kMatrix
  };  // a table that is also the output matrix is a matrix
  static std::vector<Use> UsesOf(const graph::Graph& graph);
  static Matrix Describe(const graph::Weight& weight, Use use);
  Status LoadPanels(const graph::Graph& graph, ThreadPool& pool, const Options& options);
  Status Pack(ThreadPool& pool, const Options& options);
  std::vector<Matrix> matrices_;  // by WeightId; only those that an op multiplies with or looks up
  std::vector<const float*> vectors_;
  std::vector<size_t> offsets_;  // of each matrix in panels_
  size_t panel_bytes_ = 0;
  Buffer panels_, floats_;
  backend::LoadReport report_;
};

// rows [row, row + n_rows) of a matrix as one float32 panel [k][16]; scratch holds k floats.
void DecodePanel(const Matrix& matrix, int64_t row, int64_t n_rows, float* scratch, float* panel);

}  // namespace ridge::cpu
