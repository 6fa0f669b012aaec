// What each pass matches and what it leaves alone; whatever it does, the groups are all ops in an order that may be run.
#include "graph/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace ridge::graph {
namespace {

constexpr int64_t kWidth = 64, kHeads = 4, kDim = 16;

class Model {
 public:
  Model() {
    rope_ = g.AddRope({.interleaved = false, .rotary_dims = kDim, .inv_freq = std::vector<double>(kDim / 2, 1.0)});
  }
  WeightId Weight(std::vector<int64_t> shape, const char* name = "w") {
    return g.AddWeight({.name = name, .type = quant::TypeId::kF32, .shape = std::move(shape), .data = {}});
  }
  ValueId Norm(ValueId x, int64_t groups = 1) {
    return g.RmsNorm(x, Weight({g.value(x).cols / groups}), 1e-5f, groups);
  }
  ValueId Linear(ValueId x, int64_t n) { return g.MatMul(x, Weight({g.value(x).cols, n})); }
  ValueId Embed() { return g.Embed(Weight({kWidth, 32}), 1); }
  ValueId Attention(ValueId x, bool norms) {
    ValueId q = Linear(x, kHeads * kDim), k = Linear(x, kDim);
    const ValueId v = Linear(x, kDim);
    if (norms) q = Norm(q, kHeads), k = Norm(k, 1);
    q = g.Rope(q, rope_, kHeads);
    k = g.Rope(k, rope_, 1);
    const int32_t layer = g.AddKvLayer({1, kDim, 0});
    g.AppendKv(k, v, layer);
    return Linear(g.Attention(q, {.layer = layer, .heads = kHeads, .kv_heads = 1, .head_dim = kDim}), kWidth);
  }
  ValueId Ffn(ValueId x) { return Linear(g.GatedAct(Linear(x, 128), Linear(x, 128), Activation::kSilu), kWidth); }

  Graph g;

 private:
  int32_t rope_ = 0;
};

// Llama's layer; Gemma's has a norm behind each half.
Model Layers(int n, bool post_norms) {
  Model m;
  ValueId x = m.Embed();
  for (int i = 0; i < n; i++) {
    ValueId y = m.Attention(m.Norm(x), post_norms);
    x = m.g.Add(x, post_norms ? m.Norm(y) : y);
    y = m.Ffn(m.Norm(x));
    x = m.g.Add(x, post_norms ? m.Norm(y) : y);
  }
  m.g.SetOutput(m.Linear(m.Norm(m.g.SelectRows(x)), 32));
  return m;
}

void ExpectRunnable(const Graph& g, const Schedule& schedule) {
  std::set<ValueId> defined;
  std::set<int32_t> appended;
  std::set<size_t> seen;
  for (const Group& group : schedule.groups) {
    EXPECT_TRUE(std::is_sorted(group.ops.begin(), group.ops.end()));
    EXPECT_TRUE(group.pass || group.ops.size() == 1);
    for (size_t i : group.ops) {
      const Op& op = g.ops()[i];
      EXPECT_TRUE(seen.insert(i).second) << "op " << i << " twice";
      for (ValueId in : op.in) EXPECT_TRUE(defined.contains(in)) << "op " << i << " reads what is not there yet";
      if (op.kind == OpKind::kAttention) {
        EXPECT_TRUE(appended.contains(op.attention.layer));
      }
      if (op.kind == OpKind::kAppendKv) appended.insert(op.attention.layer);
      if (op.out != kNone) defined.insert(op.out);
    }
  }
  EXPECT_EQ(seen.size(), g.ops().size());
}

std::map<std::string, int> Matched(const Graph& g, PassSet passes) {
  const Schedule schedule = Compose(g, passes);
  ExpectRunnable(g, schedule);
  std::map<std::string, int> matched;
  std::map<Pass, int> groups;
  for (const Group& group : schedule.groups) {
    if (group.pass) groups[*group.pass]++;
  }
  for (int i = 0; i < kPasses; i++) {
    EXPECT_EQ(schedule.matched[i], groups[static_cast<Pass>(i)]);
    if (schedule.matched[i] > 0) matched[std::string(Name(static_cast<Pass>(i)))] = schedule.matched[i];
  }
  return matched;
}
using Counts = std::map<std::string, int>;

TEST(Passes, LlamaLayers) {
  const Model m = Layers(3, false);
  EXPECT_EQ(Matched(m.g, PassSet::All()),
            (Counts{{"qkv", 3}, {"gate-up", 3}, {"residual", 6}, {"rope-kv", 3}, {"norm-quantize", 7}}));
  // Embed; five groups and attention per layer, norm, select, norm, output.
  EXPECT_EQ(Compose(m.g, PassSet::All()).groups.size(), 1 + 3 * 8 + 3u);
}

TEST(Passes, NormsBehindEachHalf) {
  const Model m = Layers(3, true);
  // A product that a norm follows adds nothing; the norm, the addition and the next norm are one group, but for the last layer's.
  EXPECT_EQ(Matched(m.g, PassSet::All()), (Counts{{"qkv", 3}, {"gate-up", 3}, {"rope-kv", 3}, {"norm-quantize", 7}}));
  size_t longest = 0;
  for (const Group& group : Compose(m.g, PassSet::All()).groups) {
    if (group.pass == Pass::kNormQuantize) longest = std::max(longest, group.ops.size());
  }
  EXPECT_EQ(longest, 3u);
}

TEST(Passes, EachAloneAndEachLeftOut) {
  for (const bool post_norms : {false, true}) {
    const Model m = Layers(2, post_norms);
    EXPECT_TRUE(Matched(m.g, PassSet::None()).empty());
    for (int i = 0; i < kPasses; i++) {
      const std::string name(Name(static_cast<Pass>(i)));
      for (const auto& [matched, count] : Matched(m.g, *ParsePasses(name))) EXPECT_EQ(matched, name);
      EXPECT_FALSE(Matched(m.g, *ParsePasses("no-" + name)).contains(name));
    }
  }
}

TEST(Passes, LeaveAloneWhatOthersRead) {
  Model m;
  const ValueId x = m.Embed(), y = m.Norm(x), gate = m.Linear(y, 128), up = m.Linear(y, 128);
  const ValueId act = m.g.GatedAct(gate, up, Activation::kSilu);
  const ValueId product = m.Linear(act, kWidth);
  const ValueId sum = m.g.Add(x, product);
  m.g.SetOutput(
      m.g.Add(m.g.Add(sum, product), m.Linear(m.g.Add(gate, up), kWidth)));  // product, gate and up are read twice
  EXPECT_EQ(Matched(m.g, PassSet::All()), (Counts{{"norm-quantize", 1}, {"residual", 1}}));
}

TEST(Passes, TheOrderOfAnAdditionIsKept) {
  Model m;
  const ValueId x = m.Embed();
  m.g.SetOutput(m.g.Add(m.Linear(x, kWidth), x));
  EXPECT_TRUE(Matched(m.g, PassSet::All()).empty());
}

// The product's place is before something that needs it: moving it to the addition would break the order.
TEST(Passes, AGroupThatWouldBreakTheOrderIsNotMade) {
  Model m;
  const ValueId x = m.Embed();
  const ValueId a = m.Norm(x);  // 1
  const ValueId b = m.Linear(a, kWidth);
  const ValueId c = m.g.Add(a, b);  // with the norm below a chain, if b did not stand between
  m.g.SetOutput(m.Linear(m.Norm(c), 32));
  const Schedule schedule = Compose(m.g, *ParsePasses("norm-quantize"));
  ExpectRunnable(m.g, schedule);
  for (const Group& group : schedule.groups) EXPECT_FALSE(group.ops.size() > 2);
}

TEST(Passes, Names) {
  EXPECT_EQ(*ParsePasses("on"), PassSet::All());
  EXPECT_EQ(*ParsePasses("off"), PassSet::None());
  EXPECT_EQ(ParsePasses("residual,qkv")->names(), (std::vector<std::string>{"qkv", "residual"}));
  EXPECT_EQ(ParsePasses("no-qkv,no-gate-up")->names(),
            (std::vector<std::string>{"residual", "rope-kv", "norm-quantize"}));
  EXPECT_EQ(ParsePasses("qkv,residual,no-qkv")->names(), std::vector<std::string>{"residual"});
  for (const char* bad : {"", "qvk", "qkv,", ",", "on,qkv", "no-", "QKV", "no-no-qkv", " qkv"}) {
    const auto parsed = ParsePasses(bad);
    ASSERT_FALSE(parsed) << bad;
    EXPECT_EQ(parsed.error().code, Code::kUsage);
    for (const std::string& name : PassSet::All().names())
      EXPECT_NE(parsed.error().expected.find(name), std::string::npos) << bad;
  }
}

}  // namespace
}  // namespace ridge::graph
