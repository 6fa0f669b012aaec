#include "lab/experiments/experiment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "lab/subjects/subject.h"

namespace ridge::lab {
namespace {

constexpr const char* kToml = R"(# threads
[experiment]
name = "threads"      # a comment
question = 'does "t" matter? # yes'
blocks = 6
[base]
m = "tiny.gguf"
-ub = 64
[variable]
flag = "-t"
values = [1, 2]
)";

TEST(Experiment, IsReadFromToml) {
  const Experiment e = ParseExperiment(kToml).value();
  EXPECT_EQ(e.name, "threads");
  EXPECT_EQ(e.question, "does \"t\" matter? # yes");
  EXPECT_EQ(e.blocks, 6);
  EXPECT_EQ(e.flag, "t");
  EXPECT_EQ(e.values, (std::vector<std::string>{"1", "2"}));
  std::vector<std::string> command = SubjectOf(e, {}).Command(e, 2).value();
  command.erase(command.begin());  // this program
  EXPECT_EQ(command, (std::vector<std::string>{"bench", "-m", "tiny.gguf", "--ub", "64", "-t", "2", "--op-trace", "64",
                                               "-r", "1", "-o", "json"}));
}

TEST(Experiment, WhatIsWrongIsNamedByLine) {
  const auto error = [](std::string text) {
    const auto e = ParseExperiment(text);
    return e ? std::string("none") : e.error().Message();
  };
  const std::string good = kToml;
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_EQ(error(good), "none");
  EXPECT_NE(error(with("blocks = 6", "block = 6")).find("line 5"), std::string::npos);
  EXPECT_NE(error(with("blocks = 6", "blocks = 0")).find("line 5"), std::string::npos);
  EXPECT_NE(error(with("[1, 2]", "[1, 2")).find("line 11"), std::string::npos);
  EXPECT_NE(error(with("[1, 2]", "[1 2]")).find("line 11"), std::string::npos);
  EXPECT_NE(error(with("[1, 2]", "[1, [2]]")).find("line 11"), std::string::npos);
  EXPECT_NE(error(with("[1, 2]", "[1, 1]")).find("two different values"), std::string::npos);
  EXPECT_NE(error(with("[1, 2]", "[8, 8]")).find("values repeat"), std::string::npos);
  std::string many = "[0";
  for (int i = 1; i < 65; i++) many += ", " + std::to_string(i);
  EXPECT_NE(error(with("[1, 2]", many + "]")).find("found 65, expected 64 at most"), std::string::npos);
  for (const char* nul : {R"("a\u0000b")", R"(["a\u0000b"])"})
    EXPECT_NE(error(with("\"tiny.gguf\"", nul)).find("line 7"), std::string::npos);
  EXPECT_NE(error(with("[1, 2]", R"(["a", "b\u0000"])")).find("NUL"), std::string::npos);
  EXPECT_NE(error(with("-ub = 64", R"("u\u0000b" = 64)")).find("a key holds a NUL"), std::string::npos);
  for (const char* control : {R"(\n)", R"(\u001b)", R"(\u007f)", R"(\u009b)"})
    EXPECT_NE(error(with("\"threads\"", std::string("\"a") + control + "b\"")).find("control character"),
              std::string::npos)
        << control;
  EXPECT_NE(error(with("\"tiny.gguf\"", "\"tiny.gguf")).find("line 7"), std::string::npos);
  EXPECT_NE(error(with("\"tiny.gguf\"", "tiny.gguf")).find("line 7"), std::string::npos);
  EXPECT_NE(error(with("-ub = 64", "t = 2")).find("[base] too"), std::string::npos);
  EXPECT_NE(error(with("-ub = 64", "r = 2")).find("sets this flag itself"), std::string::npos);
  EXPECT_NE(error(with("-ub = 64", "m = 2")).find("line 8"), std::string::npos);
  EXPECT_NE(error(with("[base]", "[basis]")).find("unknown table"), std::string::npos);
  EXPECT_NE(error(""), "none");
}

TEST(Experiment, WhatCannotRunHereIsNoArm) {
  const std::string with = std::string(kToml) + "[not_run]\n2 = \"no second processor\"\n";
  const Experiment none = ParseExperiment(with).value();
  EXPECT_EQ(Arms(none), 0u);
  EXPECT_TRUE(PlanRuns(none).empty());
  EXPECT_EQ(none.not_run.at("2"), "no second processor");
  std::string three = with;
  three.replace(three.find("[1, 2]"), 6, "[1, 2, 3]");
  const Experiment e = ParseExperiment(three).value();
  EXPECT_EQ(e.values, (std::vector<std::string>{"1", "3"}));
  EXPECT_EQ(Arms(e), 3u);
}

TEST(Experiment, BlocksAreOrdersAndTheirReverse) {
  const Experiment e = ParseExperiment(kToml).value();
  const auto runs = PlanRuns(e);
  ASSERT_EQ(runs.size(), 6u * 2 * 3);
  std::set<std::vector<size_t>> orders;
  for (size_t b = 0; b < 6; b++) {
    std::vector<size_t> order;
    for (size_t i = 0; i < 6; i++) {
      EXPECT_EQ(runs[6 * b + i].block, static_cast<int64_t>(b));
      EXPECT_EQ(runs[6 * b + i].arm, runs[6 * b + 5 - i].arm);
      order.push_back(runs[6 * b + i].arm);
    }
    EXPECT_EQ(std::set<size_t>(order.begin(), order.end()).size(), 3u);
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 1u);
}

// 200 pairs of configurations each: with two settings or more changed, all are refused; with the variable alone, none is.
TEST(Guard, RefusesWhateverMovesMoreThanTheVariable) {
  std::mt19937 random(1);
  const std::vector<std::string> keys = {
      "n_threads",  "n_batch",      "n_ubatch",       "type_k",      "type_v",  "isa",         "fusion", "matmul",
      "flash_attn", "n_gpu_layers", "model_filename", "cpu_info",    "n_ctx",   "max_running", "pl",     "prefix_cache",
      "kv_page",    "speculation",  "draft_model",    "concurrency", "version", "power_mode",  "n_depth"};
  const std::vector<std::string> flags = {"t",
                                          "b",
                                          "ub",
                                          "ctk",
                                          "ctv",
                                          "isa",
                                          "fusion",
                                          "matmul",
                                          "fa",
                                          "ngl",
                                          "m",
                                          "c",
                                          "np",
                                          "npl",
                                          "d",
                                          "kv-page",
                                          "spec",
                                          "md",
                                          "no-prefix-cache",
                                          "concurrency",
                                          "power-mode",
                                          "subject",
                                          "program"};
  for (int i = 0; i < 200; i++) {
    Experiment e{.name = "x", .flag = flags[random() % flags.size()], .values = {"1", "2"}};
    Resolved base;
    for (const std::string& k : keys) base[k] = std::to_string(random() % 5);
    Resolved other = base;
    for (const std::string& k : MovedBy(e.flag)) base[k] = "0";
    other = base;
    other[MovedBy(e.flag)[0]] += "x";
    EXPECT_TRUE(GuardResolved(e, {base, base, other})) << e.flag;
    Resolved more = other;
    size_t changed = 0;
    for (size_t n = 1 + random() % 3; changed < n;) {
      const std::string& key = keys[random() % keys.size()];
      const auto moved = MovedBy(e.flag);
      if (std::find(moved.begin(), moved.end(), key) != moved.end() || more[key] != base[key]) continue;
      if (random() % 4 == 0 && e.flag != "subject")  // of two subjects one may tell what the other does not
        more.erase(key), more["new_" + key] = "1";
      else
        more[key] += "y";
      changed++;
    }
    EXPECT_FALSE(GuardResolved(e, {base, base, more})) << e.flag;
    EXPECT_FALSE(GuardResolved(e, {base, other, other})) << "the A/A arm differs";
    const auto still = GuardResolved(e, {base, base, base});
    ASSERT_FALSE(still);
    EXPECT_EQ(still.error().what, "the variable did not move");
  }
  EXPECT_FALSE(GuardResolved({.name = "x", .flag = "nonsense", .values = {"1", "2"}}, std::vector<Resolved>(3)));
}

// The settings by their names in `config` of ridge run and serve, in the rows of the benchmarks and in llama-server's log.
TEST(Guard, KnowsWhatEachFlagMovesByTheNamesThatSubjectsTell) {
  for (const auto& [flag, setting] :
       std::initializer_list<std::pair<const char*, const char*>>{{"t", "n_threads"},
                                                                  {"ub", "n_ubatch"},
                                                                  {"b", "n_batch"},
                                                                  {"c", "n_ctx"},
                                                                  {"ctk", "type_k"},
                                                                  {"ctv", "type_v"},
                                                                  {"fa", "flash_attn"},
                                                                  {"isa", "isa"},
                                                                  {"fusion", "fusion"},
                                                                  {"matmul", "matmul"},
                                                                  {"ngl", "n_gpu_layers"},
                                                                  {"m", "model_filename"},
                                                                  {"m", "model"},
                                                                  {"d", "n_depth"},
                                                                  {"p", "n_prompt"},
                                                                  {"n", "n_gen"},
                                                                  {"np", "max_running"},
                                                                  {"np", "total_slots"},
                                                                  {"npl", "pl"},
                                                                  {"spec", "speculation"},
                                                                  {"no-prefix-cache", "prefix_cache"},
                                                                  {"concurrency", "concurrency"},
                                                                  {"power-mode", "power_mode"},
                                                                  {"observer", "trace_every"},
                                                                  {"subject", "subject"},
                                                                  {"program", "build_commit"},
                                                                  {"md", "draft_model"},
                                                                  {"kv-page", "kv_page"}}) {
    const Experiment e{.name = "x", .flag = flag, .values = {"1", "2"}};
    EXPECT_TRUE(GuardResolved(e, {{{setting, "1"}}, {{setting, "1"}}, {{setting, "2"}}})) << flag << " " << setting;
    EXPECT_FALSE(GuardResolved(e, {{{setting, "1"}}, {{setting, "1"}}, {{setting, "1"}}})) << flag << " " << setting;
  }
}

TEST(Observer, OffTracesNothingAndOnlyThisProgramCan) {
  const auto parse = [](const std::string& head, const char* values) {
    return ParseExperiment("[experiment]\nname = \"x\"\n" + head +
                           "\n[base]\nm = \"m.gguf\"\n[variable]\nflag = \"observer\"\nvalues = " + values);
  };
  const Experiment e = parse("", R"(["off", "on"])").value();
  const auto traced = [](const Experiment& of, size_t arm) {
    const auto command = FindSubject(of.subject)->Command(of, arm).value();
    return std::ranges::find(command, "--op-trace") != command.end();
  };
  EXPECT_FALSE(traced(e, 0) || traced(e, 1) || IsObserved(e, 1));
  EXPECT_TRUE(traced(e, 2) && IsObserved(e, 2));
  EXPECT_TRUE(traced(parse("subject = \"run\"", R"(["off", "on"])").value(), 2));
  EXPECT_FALSE(parse("", R"(["off", "yes"])"));
  EXPECT_FALSE(parse("subject = \"serve\"", R"(["off", "on"])"));
  EXPECT_FALSE(parse("program = \"/bin/ridge\"", R"(["off", "on"])"));
  EXPECT_TRUE(traced({.flag = "t", .values = {"1", "2"}}, 0));
  EXPECT_FALSE(traced({.program = "/bin/ridge", .flag = "t", .values = {"1", "2"}}, 0));
  // Given in [base] it is said once.
  const auto own = FindSubject("bench")->Command({.base = {{"op-trace", "0"}}, .flag = "t", .values = {"1", "2"}}, 0);
  EXPECT_EQ(std::ranges::count(own.value(), "--op-trace"), 1);
}

TEST(ParseBench, SettingsAndSpeeds) {
  const auto parse = [](std::string_view text) { return FindSubject("bench")->Parse(text, ""); };
  const auto out =
      parse(
          R"([{"n_prompt": 512, "n_gen": 0, "n_threads": 2, "avg_ts": 10, "median_ts": 11, "bound": "memory"}, {"n_prompt": 0, "n_gen": 8, "n_depth": 64, "n_threads": 2, "avg_ts": 3.5}])")
          .value();
  ASSERT_EQ(out.tests.size(), 2u);
  EXPECT_EQ(out.tests[0].test, "pp512");
  EXPECT_EQ(out.tests[0].value, 11);
  EXPECT_EQ(out.tests[1].test, "tg8 @ d64");
  EXPECT_EQ(out.tests[1].value, 3.5);
  EXPECT_EQ(out.resolved.at("n_threads"), "2");
  EXPECT_FALSE(out.resolved.contains("bound"));
  EXPECT_EQ(out.measures.prefill_per_second, 11);
  EXPECT_EQ(out.measures.decode_per_second, 3.5);
  EXPECT_FALSE(out.measures.ttft_ms);
  EXPECT_TRUE(out.measures.missing.contains("ttft_ms"));
  EXPECT_FALSE(parse("[]"));
  EXPECT_FALSE(parse("[{}]"));
  EXPECT_FALSE(parse("nothing"));
}

std::vector<RunSample> Simulated(const Experiment& e, std::mt19937& random, double effect, double noise) {
  std::normal_distribution<double> normal(0, noise);
  std::vector<RunSample> samples;
  for (const PlannedRun& run : PlanRuns(e)) {
    const double drift = 0.01 * static_cast<double>(run.number);  // the machine gets slower
    samples.push_back({run.number, run.block, run.arm, "tg8",
                       100 * std::exp(normal(random) - drift + (run.arm == 2 ? std::log(effect) : 0)), "t/s", true,
                       ""});
  }
  return samples;
}

TEST(Analyse, FindsAPlantedSlowdownAndNoDifferenceWhereThereIsNone) {
  Experiment e{.name = "x", .flag = "t", .values = {"1", "2"}, .blocks = 12};
  std::mt19937 random(7);
  int false_differences = 0, found = 0;
  for (int i = 0; i < 200; i++) {
    e.seed = i + 1;
    const auto none = Analyse(e, Simulated(e, random, 1, 0.01));
    ASSERT_EQ(none.size(), 3u);
    EXPECT_EQ(none[1].verdict, "A/A");
    false_differences += none[2].verdict != "no difference";
    found += Analyse(e, Simulated(e, random, 0.95, 0.01))[2].verdict == "slower";
  }
  EXPECT_LE(false_differences, 10);  // 5 % of 200
  EXPECT_GE(found, 180);             // 90 %
}

TEST(Analyse, TheUnitSaysWhatIsBetter) {
  const Experiment e{.name = "x", .flag = "t", .values = {"1", "2"}, .blocks = 5};
  std::mt19937 random(1);
  for (const auto& [unit, higher, verdict, better] :
       {std::tuple{"t/s", true, "faster", true}, {"ms", false, "slower", false}, {"MiB", false, "larger", false}}) {
    auto samples = Simulated(e, random, 1.2, 0.001);
    for (RunSample& s : samples) s.unit = unit, s.higher_is_better = higher;
    const Finding f = Analyse(e, samples)[2];
    EXPECT_EQ(f.verdict, verdict);
    EXPECT_EQ(f.better, better) << unit;
    EXPECT_EQ(f.unit, unit);
  }
}

TEST(Analyse, ADisturbedBlockIsLeftOutAsAWhole) {
  const Experiment e{.name = "x", .flag = "t", .values = {"1", "2"}, .blocks = 5};
  std::mt19937 random(1);
  auto samples = Simulated(e, random, 1.2, 0.001);
  samples[3].disturbed = "other work";
  samples[3].value = 1;
  const auto findings = Analyse(e, samples);
  EXPECT_EQ(findings[2].blocks, 4);
  EXPECT_EQ(findings[2].left_out, 1);
  EXPECT_EQ(findings[2].verdict, "faster");
  EXPECT_NEAR(*findings[2].ratio, 1.2, 0.02);
  samples[9].disturbed = "more";
  EXPECT_NE(Analyse(e, samples)[2].verdict.find("undetermined"), std::string::npos);
}

}  // namespace
}  // namespace ridge::lab
