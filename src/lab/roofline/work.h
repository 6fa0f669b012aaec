// What a phase must read and compute at least, how long that takes at the ceilings of a roofline, and so what bounds it.
//
//   const Work step = WorkOf(graph, {.tokens = 1, .logits = 1, .context = 512, .kv_bytes_per_value = 2});
//   const Floors floors = FloorsOf(step, roofline, {.threads = 2, .isa = "avx512", .decode = true});
//   const Bound bound = BoundOf(floors, measured_s);   // {kMemory, 0.94}
//
// The rule (docs/roofline.md): the largest of the three floors bounds the phase if it explains at least half of the time; else overhead does.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "graph/graph.h"
#include "lab/roofline/roofline.h"

namespace ridge::lab {

// Bytes are those of the file's types; FloorsOf turns them into bytes of the layout in memory.
struct Work {
  struct Weights {
    double bytes = 0, flops = 0;
  };
  std::map<std::string, Weights> matmul;  // by tensor type
  double other_bytes = 0;                 // KV cache and rows of the embedding table
  double other_flops = 0;                 // attention and the small ops, in float32
  Work& Add(const Work& more, double times = 1);
};
Work WorkOf(const graph::Graph& graph, const graph::Load& load);
double LayoutBytes(const Work& work);  // that memory must deliver: of the layout that the kernels read, KV included
double Flops(const Work& work);

struct Circumstances {
  int threads = 1;
  std::string isa;
  bool decode =
      true;  // a matrix is unpacked for each token; in a prompt, once for many, so that unpacking counts as arithmetic's
};

// Seconds; absent where the roofline lacks a figure (another ISA than it has formats for).
struct Floors {
  double bytes = 0;  // in the layout
  std::optional<double> memory_s, unpack_s, arithmetic_s;
  std::optional<double> kernels_s;  // reading at the rate that each type's own kernel reaches on data in memory
  std::optional<double> largest() const;
};
Floors FloorsOf(const Work& work, const Roofline& roofline, const Circumstances& circumstances);

enum class Limit { kMemory, kUnpack, kArithmetic, kOverhead };
std::string_view Name(Limit limit);  // "memory"

struct Bound {
  Limit limit = Limit::kOverhead;
  double share = 0;  // the largest floor over the time: what of the ceiling was reached
};
// nullopt where a floor is absent that could be the largest.
std::optional<Bound> BoundOf(const Floors& floors, double measured_s);

}  // namespace ridge::lab
