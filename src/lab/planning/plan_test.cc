// Oracle: published parameter counts of the models, llama.cpp's own table of bits per weight, the KV sizes that follow from the architectures, and orderings.
#include "lab/planning/plan.h"

#include <gtest/gtest.h>

namespace ridge::lab {
namespace {

const Shape& ShapeNamed(std::string_view name) {
  for (const Shape& s : KnownShapes()) {
    if (s.name == name) return s;
  }
  ADD_FAILURE() << name;
  return KnownShapes()[0];
}
const Mix& MixNamed(std::string_view name) {
  for (const Mix& m : KnownMixes()) {
    if (m.name == name) return m;
  }
  ADD_FAILURE() << name;
  return KnownMixes()[0];
}

TEST(PlanTest, ShapesHaveThePublishedParameters) {
  ASSERT_GE(KnownShapes().size(), 20u);
  for (const Shape& s : KnownShapes()) {
    EXPECT_NEAR(Parameters(s) / 1e9, s.published_billions, 0.002 * s.published_billions) << s.name;
    EXPECT_FALSE(s.source.empty());
  }
}

// llama.cpp, tools/quantize/README.md, Llama 3.1 8B.
TEST(PlanTest, MixesHaveTheBitsOfLlamaCpp) {
  const std::pair<const char*, double> table[] = {
      {"F16", 16.0005},   {"Q8_0", 8.5008},   {"Q6_K", 6.5633},    {"Q5_K_M", 5.7036}, {"Q4_K_M", 4.8944},
      {"IQ4_XS", 4.4597}, {"Q3_K_M", 3.9960}, {"IQ3_XXS", 3.2548}, {"Q2_K", 3.1593},   {"IQ2_XXS", 2.3824}};
  ASSERT_EQ(std::size(table), KnownMixes().size());
  for (const auto& [name, bits] : table)
    EXPECT_NEAR(BitsPerWeight(ShapeNamed("Llama 3.1 8B"), MixNamed(name)), bits, 0.02 * bits) << name;
}

TEST(PlanTest, KvBytesFollowFromTheArchitecture) {
  const Use use{.context = 1000, .concurrency = 3};
  const Mix& m = MixNamed("Q8_0");
  EXPECT_EQ(FootprintOf(ShapeNamed("Qwen2.5 1.5B"), m, use).kv_bytes_per_token, 28672);
  EXPECT_EQ(FootprintOf(ShapeNamed("Llama 3.1 8B"), m, use).kv_bytes_per_token, 131072);
  EXPECT_EQ(FootprintOf(ShapeNamed("Qwen3 30B A3B"), m, use).kv_bytes_per_token, 98304);
  EXPECT_EQ(FootprintOf(ShapeNamed("Llama 3.1 8B"), m, use).kv_bytes, 131072.0 * 3000);
}

TEST(PlanTest, AMixtureOfExpertsIsStoredWholeAndReadInPart) {
  const Shape& s = ShapeNamed("Qwen3 30B A3B");
  const Mix& m = MixNamed("Q8_0");
  const double stored = FootprintOf(s, m, {}).weights_bytes, read = LayoutBytes(DecodeWork(s, m, 0, 2));
  EXPECT_GT(stored / read, 8);
  EXPECT_NEAR(Flops(DecodeWork(s, m, 0, 2)) / 2e9, 3.03, 0.1);  // "A3B", without the token table
}

Roofline FakeRoofline() {
  Roofline r;
  r.threads = 2;
  r.isa = "avx512";
  r.read = {{1, 16, ""}, {2, 32, ""}};
  r.peaks = {{"avx512", 1500, std::nullopt, 350}};
  for (const char* type :
       {"F32", "F16", "Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q3_K", "Q2_K", "IQ4_XS", "IQ3_XXS", "IQ3_S", "IQ2_XXS"})
    r.formats.push_back({type, type, true, 1, 30, 100, 28});
  r.attention = {{"f16", 64, 1, 80e6}, {"f16", 64, 2, 60e6}, {"f16", 64, 4, 40e6}, {"f16", 64, 8, 20e6}};
  r.dispatch_us = 1;
  return r;
}

TEST(PlanTest, FewerBytesAreFasterAndLongerContextsSlower) {
  const Roofline r = FakeRoofline();
  const Circumstances at{.threads = 2, .isa = "avx512", .decode = true};
  const Shape& s = ShapeNamed("Llama 3.2 1B");
  const auto decode = [&](const char* mix, double context) {
    return SpeedOf(DecodeWork(s, MixNamed(mix), context, 2), DecodeAttention(s, context, "f16"),
                   PrefillWork(s, MixNamed(mix), 512, 512, 2), 0, r, at)
        .decode->expected;
  };
  EXPECT_GT(decode("Q4_K_M", 0), 1.5 * decode("Q8_0", 0));
  EXPECT_GT(decode("Q8_0", 0), decode("Q8_0", 16384));
  // 1.24 billion weights at 8.5 bits and 28 GB/s.
  EXPECT_NEAR(decode("Q8_0", 0), 28e9 / (1.236e9 * 8.5 / 8), 0.5);
  EXPECT_LT(SpeedOf(DecodeWork(s, MixNamed("Q8_0"), 0, 2), {}, {}, 16, r, at).decode->expected, decode("Q8_0", 0));
  const Speed speed =
      SpeedOf(DecodeWork(s, MixNamed("Q8_0"), 0, 2), {}, PrefillWork(s, MixNamed("Q8_0"), 512, 512, 2), 0, r, at);
  EXPECT_LT(speed.prefill->low, speed.prefill->expected);
  EXPECT_GT(speed.prefill->expected, 5 * speed.decode->expected);
}

// By hand: what each part was measured to take, and nothing else.
TEST(PlanTest, AStepIsTheSumOfItsMeasuredParts) {
  const Roofline r = FakeRoofline();
  const Circumstances at{.threads = 2, .isa = "avx512", .decode = true};
  Work work;
  work.matmul["Q8_0"] = {.bytes = 28e6, .flops = 56e6};  // a millisecond
  work.other_bytes = 3.2e6;                              // a tenth of one, which is part of what attention takes
  // 8 heads that see 5000 tokens, in groups of 3: between 60 and 40 million tokens a second, in time.
  const std::vector<AttentionLoad> attention = {{"f16", 64, 3, 8 * 5000}};
  const double attention_s = 8 * 5000 * (1 / 60e6 + 1 / 40e6) / 2;
  const Speed speed = SpeedOf(work, attention, {}, 5, r, at);
  ASSERT_TRUE(speed.decode);
  EXPECT_NEAR(1 / speed.decode->expected, 1e-3 + attention_s + 5 * 10 * 1e-6, 1e-9);
  EXPECT_LT(speed.decode->low, speed.decode->expected);
  EXPECT_GT(speed.decode->high, speed.decode->expected);
  EXPECT_NEAR(*r.AttentionSeconds("f16", 128, 16), 2 * 2 / 20e6, 1e-12);  // twice the channels, two tiles of eight rows
  EXPECT_NEAR(*r.AttentionSeconds("f16", 64, 8), 1 / 20e6, 1e-12);
  EXPECT_FALSE(r.AttentionSeconds("q8_0", 64, 1));
  const Speed none = SpeedOf(work, {{"q8_0", 64, 3, 1}}, {}, 5, r, at);
  EXPECT_FALSE(none.decode);
  EXPECT_NE(none.reason.find("attention"), std::string::npos);
  Roofline older = r;
  for (FormatRow& row : older.formats) row.gbps_decode = 0;
  EXPECT_FALSE(SpeedOf(work, attention, {}, 5, older, at).decode);
}

TEST(PlanTest, CandidatesFitAndFollowTheTask) {
  const Budget budget = BudgetOf(16e9, false);
  EXPECT_NEAR(budget.reserve_bytes, 1.6e9, 1e6);
  for (const TaskRule& task : TaskRules()) {
    const std::vector<Candidate> all = Candidates(task, {.context = 8192}, budget, nullptr, 2);
    EXPECT_EQ(all.size(), KnownShapes().size() * KnownMixes().size());
    ASSERT_TRUE(all[0].why_not.empty()) << task.task;
    EXPECT_LE(all[0].footprint.total(), budget.usable());
    EXPECT_FALSE(all[0].speed.decode);
    bool suits = true;
    for (const Candidate& c : all) {
      EXPECT_TRUE(suits || !c.why_not.empty());  // those that suit stand first
      suits = c.why_not.empty();
      if (!suits) continue;
      EXPECT_LE(c.footprint.total(), budget.usable());
      if (task.most_billions > 0) {
        EXPECT_LE(c.shape->published_billions, 1.1 * task.most_billions);
      }
    }
  }
  const std::vector<Candidate> math = Candidates(*FindTask("math"), {}, budget, nullptr, 2);
  EXPECT_TRUE(math[0].mix->name == "Q6_K" || math[0].mix->name == "Q8_0" || math[0].mix->name == "F16")
      << math[0].mix->name;
  EXPECT_EQ(FindTask("poetry"), nullptr);
  EXPECT_FALSE(Candidates(*FindTask("chat"), {}, BudgetOf(0.7e9, false), nullptr, 1).front().fits &&
               Candidates(*FindTask("chat"), {}, BudgetOf(0.7e9, false), nullptr, 1).front().shape->published_billions >
                   1);
}

TEST(PlanTest, ScenariosHaveARuntime) {
  for (std::string_view scenario : {ScenarioOf("chat", 1, 1e11), ScenarioOf("chat", 16, 1e11),
                                    ScenarioOf("agent", 1, 1e11), ScenarioOf("edge", 1, 1e11)}) {
    int found = 0;
    for (const RuntimeRule& rule : RuntimeRules()) found += rule.scenario == scenario;
    EXPECT_EQ(found, 1) << scenario;
  }
  EXPECT_EQ(ScenarioOf("chat", 16, 1e11), "concurrent");
  EXPECT_EQ(ScenarioOf("agent", 16, 1e11), "agents");
}

}  // namespace
}  // namespace ridge::lab
