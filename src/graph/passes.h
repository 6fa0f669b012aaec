// Fusion passes: which ops of a graph a backend runs as one. A pass groups ops; the graph itself, its values and costs stay as they are.
//
//   RIDGE_ASSIGN_OR_RETURN(PassSet passes, ParsePasses("no-qkv"));   // all but one
//   Schedule schedule = Compose(graph, passes);                      // groups in an order that may be run
//
// Guarantees: every op is in exactly one group; groups stand in an order in which every value is defined before it is used; ops of one
// group keep the graph's order. What a pass groups computes the same operations in the same order for each element as the ops one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "graph/graph.h"

namespace ridge::graph {

// In the order in which they are applied.
enum class Pass : int {
  kQkv,           // the products that give Q, K and V of one layer
  kGateUp,        // two products of one input, their gated activation, and its quantization
  kResidual,      // a product and the addition of its result to a residual
  kRopeKv,        // norms and rotary embedding of Q and K, and the append of K and V
  kNormQuantize,  // row operators (additions, norms) up to a norm, and the quantization of its result
  kCount
};
inline constexpr int kPasses = static_cast<int>(Pass::kCount);
std::string_view Name(Pass pass);     // "gate-up"
std::string_view Purpose(Pass pass);  // one line for people

class PassSet {
 public:
  static PassSet All() { return PassSet((1u << kPasses) - 1); }
  static PassSet None() { return PassSet(0); }
  bool on(Pass pass) const { return (bits_ >> static_cast<int>(pass) & 1) != 0; }
  void Set(Pass pass, bool on) {
    const uint32_t bit = 1u << static_cast<int>(pass);
    bits_ = on ? bits_ | bit : bits_ & ~bit;
  }
  std::vector<std::string> names() const;  // of those that are on
  bool operator==(const PassSet&) const = default;

 private:
  explicit PassSet(uint32_t bits) : bits_(bits) {}
  uint32_t bits_;
};

// "on", "off", or names with commas between: "qkv,residual" turns on these alone, "no-qkv,no-residual" all others. An unknown name is
// refused with the list (kUsage).
Result<PassSet> ParsePasses(std::string_view text);

// Ops that run as one. Without a pass: a single op.
struct Group {
  std::optional<Pass> pass;
  std::vector<size_t> ops;  // indices into graph.ops(), increasing
};

struct Schedule {
  PassSet passes = PassSet::All();
  std::vector<Group> groups;
  int matched[kPasses] = {};  // groups that each pass made
};

Schedule Compose(const Graph& graph, PassSet passes);

}  // namespace ridge::graph
