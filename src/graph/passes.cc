#include "graph/passes.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace ridge::graph {
namespace {

Result<Pass> PassOf(std::string_view name, std::string_view text) {
  std::string all;
  for (int i = 0; i < kPasses; i++) {
    const Pass pass = static_cast<Pass>(i);
    if (Name(pass) == name) return pass;
    all += (i > 0 ? ", " : "") + std::string(Name(pass));
  }
  return Fail(Code::kUsage, "unknown fusion pass")
      .Found(name.empty() ? "an empty name in \"" + std::string(text) + "\"" : std::string(name))
      .Expected("on, off, or some of: " + all + "; with no- before a name: all but that one");
}

// Groups the ops of one graph, pass by pass.
class Composer {
 public:
  explicit Composer(const Graph& graph) : graph_(graph) {
    for (size_t i = 0; i < graph.ops().size(); i++) groups_.push_back({std::nullopt, {i}});
    taken_.resize(graph.ops().size(), false);
    producer_.resize(graph.values().size(), kNoOp);
    readers_.resize(graph.values().size());
    for (size_t i = 0; i < graph.ops().size(); i++) {
      const Op& op = graph.ops()[i];
      if (op.out != kNone) producer_[static_cast<size_t>(op.out)] = i;
      for (ValueId in : op.in) readers_[static_cast<size_t>(in)].push_back(i);
    }
  }

  int Apply(Pass pass) {
    matched_ = 0;
    for (size_t i = 0; i < graph_.ops().size(); i++) {
      if (!Free(i)) continue;
      switch (pass) {
        case Pass::kQkv: Qkv(i); break;
        case Pass::kGateUp: GateUp(i); break;
        case Pass::kResidual: Residual(i); break;
        case Pass::kRopeKv: RopeKv(i); break;
        case Pass::kNormQuantize: NormQuantize(i); break;
        case Pass::kCount: break;
      }
    }
    return matched_;
  }
  std::vector<Group> Take() { return std::move(groups_); }

 private:
  static constexpr size_t kNoOp = SIZE_MAX;

  const Op& op(size_t i) const { return graph_.ops()[i]; }
  bool Is(size_t i, OpKind kind) const { return i != kNoOp && op(i).kind == kind && Free(i); }
  size_t Producer(ValueId id) const { return producer_[static_cast<size_t>(id)]; }
  const std::vector<size_t>& Readers(ValueId id) const { return readers_[static_cast<size_t>(id)]; }
  // Read by one op, once, and by nobody outside the graph.
  bool Private(ValueId id) const { return Readers(id).size() == 1 && id != graph_.output(); }

  size_t GroupOf(size_t i) const {
    for (size_t g = 0; g < groups_.size(); g++) {
      if (std::ranges::find(groups_[g].ops, i) != groups_[g].ops.end()) return g;
    }
    return kNoOp;
  }
  bool Free(size_t i) const { return !taken_[i]; }

  // Does op b need what op a leaves behind: its value, or the KV of its layer?
  bool Needs(size_t b, size_t a) const {
    if (op(a).kind == OpKind::kAppendKv)
      return op(b).kind == OpKind::kAttention && op(b).attention.layer == op(a).attention.layer;
    return std::ranges::find(op(b).in, op(a).out) != op(b).in.end();
  }
  bool Needs(const Group& b, const std::vector<size_t>& a) const {
    return std::ranges::any_of(b.ops,
                               [&](size_t x) { return std::ranges::any_of(a, [&](size_t y) { return Needs(x, y); }); });
  }

  // Makes one group of single ops, at the place of the last one; refused when a group between needs an earlier member. Where the
  // members do not need what stands between either, that place would do as well, but nothing asks for it.
  bool Merge(Pass pass, std::vector<size_t> ops) {
    std::ranges::sort(ops);
    std::vector<size_t> at;
    for (size_t i : ops) at.push_back(GroupOf(i));
    const size_t first = std::ranges::min(at), last = std::ranges::max(at);
    for (size_t g = first + 1; g < last; g++) {
      if (std::ranges::find(at, g) == at.end() && Needs(groups_[g], ops)) return false;
    }
    groups_[last] = {pass, ops};
    std::ranges::sort(at, std::greater<>());
    for (size_t g : at) {
      if (g != last) groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(g));
    }
    for (size_t i : ops) taken_[i] = true;
    matched_++;
    return true;
  }

  // Does the value become Q, K or V, through norms and RoPE alone?
  bool FeedsAttention(ValueId id) const {
    while (Private(id)) {
      const Op& reader = op(Readers(id)[0]);
      if (reader.kind == OpKind::kAppendKv || reader.kind == OpKind::kAttention) return true;
      if (reader.kind != OpKind::kRmsNorm && reader.kind != OpKind::kRope) return false;
      id = reader.out;
    }
    return false;
  }

  void Qkv(size_t i) {
    if (!Is(i, OpKind::kMatMul)) return;
    std::vector<size_t> ops;
    for (size_t j : Readers(op(i).in[0])) {
      if (Is(j, OpKind::kMatMul) && FeedsAttention(op(j).out)) ops.push_back(j);
    }
    if (ops.size() > 1 && ops[0] == i) Merge(Pass::kQkv, ops);
  }

  void GateUp(size_t i) {
    if (!Is(i, OpKind::kGatedAct)) return;
    const size_t gate = Producer(op(i).in[0]), up = Producer(op(i).in[1]);
    if (gate == up || !Is(gate, OpKind::kMatMul) || !Is(up, OpKind::kMatMul)) return;
    if (op(gate).in[0] != op(up).in[0] || !Private(op(gate).out) || !Private(op(up).out)) return;
    Merge(Pass::kGateUp, {gate, up, i});
  }

  // Only as Add(residual, product): the order of the two decides which NaN of two comes out.
  void Residual(size_t i) {
    if (!Is(i, OpKind::kAdd) || op(i).in[0] == op(i).in[1]) return;
    const size_t product = Producer(op(i).in[1]);
    if (Is(product, OpKind::kMatMul) && Private(op(product).out)) Merge(Pass::kResidual, {product, i});
  }

  // The norm and RoPE per head between a product and attention, last first.
  std::vector<size_t> HeadOps(ValueId id) const {
    std::vector<size_t> ops;
    size_t i = Producer(id);
    if (Is(i, OpKind::kRope) && Private(id)) {
      ops.push_back(i);
      id = op(i).in[0];
      i = Producer(id);
      if (Is(i, OpKind::kRmsNorm) && Private(id) && op(i).groups == op(ops[0]).groups) ops.push_back(i);
    }
    return ops;
  }

  void RopeKv(size_t i) {
    if (!Is(i, OpKind::kAppendKv)) return;
    std::vector<size_t> ops = HeadOps(op(i).in[0]);
    for (size_t j = 0; j < graph_.ops().size(); j++) {
      if (!Is(j, OpKind::kAttention) || op(j).attention.layer != op(i).attention.layer) continue;
      const std::vector<size_t> q = HeadOps(op(j).in[0]);
      ops.insert(ops.end(), q.begin(), q.end());
    }
    if (ops.empty()) return;
    ops.push_back(i);
    Merge(Pass::kRopeKv, ops);
  }

  // A whole-row operator whose inputs and output have one width.
  bool RowWise(size_t i) const {
    return Is(i, OpKind::kAdd) || Is(i, OpKind::kScale) || (Is(i, OpKind::kRmsNorm) && op(i).groups == 1);
  }

  void NormQuantize(size_t i) {
    if (!Is(i, OpKind::kRmsNorm) || op(i).groups != 1 || op(i).out == graph_.output()) return;
    const std::vector<size_t>& readers = Readers(op(i).out);
    const bool multiplied = !readers.empty() && std::ranges::all_of(readers, [&](size_t r) {
      return op(r).kind == OpKind::kMatMul || op(r).kind == OpKind::kExperts;
    });
    if (!multiplied) return;
    std::vector<size_t> ops = {i};
    for (size_t at = 0; at < ops.size(); at++) {
      for (ValueId in : op(ops[at]).in) {
        const size_t producer = Producer(in);
        if (producer != kNoOp && RowWise(producer) && std::ranges::find(ops, producer) == ops.end())
          ops.push_back(producer);
      }
    }
    if (!Merge(Pass::kNormQuantize, ops)) Merge(Pass::kNormQuantize, {i});
  }

  const Graph& graph_;
  std::vector<Group> groups_;
  std::vector<size_t> producer_;              // by ValueId
  std::vector<std::vector<size_t>> readers_;  // by ValueId
  std::vector<bool> taken_;                   // by op: a pass has grouped it
  int matched_ = 0;
};

}  // namespace

std::string_view Name(Pass pass) {
  switch (pass) {
    case Pass::kQkv: return "qkv";
    case Pass::kGateUp: return "gate-up";
    case Pass::kResidual: return "residual";
    case Pass::kRopeKv: return "rope-kv";
    case Pass::kNormQuantize: return "norm-quantize";
    case Pass::kCount: break;
  }
  return "?";
}

std::string_view Purpose(Pass pass) {
  switch (pass) {
    case Pass::kQkv: return "the products for Q, K and V in one parallel region";
    case Pass::kGateUp: return "gate, up, activation and quantization of its result, strip by strip";
    case Pass::kResidual: return "a product adds to the residual as it stores";
    case Pass::kRopeKv: return "norm and RoPE of Q and K, and the append of K and V, head by head";
    case Pass::kNormQuantize: return "additions and norms up to a norm, and quantization of its result, row by row";
    case Pass::kCount: break;
  }
  return "?";
}

std::vector<std::string> PassSet::names() const {
  std::vector<std::string> names;
  for (int i = 0; i < kPasses; i++) {
    if (on(static_cast<Pass>(i))) names.emplace_back(Name(static_cast<Pass>(i)));
  }
  return names;
}

Result<PassSet> ParsePasses(std::string_view text) {
  if (text == "on") return PassSet::All();
  if (text == "off") return PassSet::None();
  PassSet passes = text.starts_with("no-") ? PassSet::All() : PassSet::None();
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    std::string_view name = rest.substr(0, comma);
    const bool on = !name.starts_with("no-");
    if (!on) name.remove_prefix(3);
    RIDGE_ASSIGN_OR_RETURN(const Pass pass, PassOf(name, text));
    passes.Set(pass, on);
    if (comma == std::string_view::npos) return passes;
    rest.remove_prefix(comma + 1);
  }
}

Schedule Compose(const Graph& graph, PassSet passes) {
  Schedule schedule{.passes = passes, .groups = {}};
  Composer composer(graph);
  for (int i = 0; i < kPasses; i++) {
    if (passes.on(static_cast<Pass>(i))) schedule.matched[i] = composer.Apply(static_cast<Pass>(i));
  }
  schedule.groups = composer.Take();
  return schedule;
}

}  // namespace ridge::graph
