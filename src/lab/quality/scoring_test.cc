#include "lab/quality/scoring.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "lab/quality/quality.h"
#include "sampling/log_probability.h"

namespace ridge::lab {
namespace {

constexpr int64_t kVocab = 50;

// The scores of a position are a function of the tokens up to it, which the state keeps by page; so whoever mixes up pages, positions or rows shows.
class ToyState : public backend::StateStore {
 public:
  explicit ToyState(const backend::StateOptions& options)
      : cells(static_cast<size_t>(options.n_pages * options.page_tokens)), options_(options) {}
  const backend::StateOptions& options() const override { return options_; }
  size_t size_bytes() const override { return 0; }
  void CopyPage(int32_t, int32_t) override {}
  size_t page_bytes() const override { return 0; }
  void ReadPage(int32_t, std::span<std::byte>) const override {}
  void WritePage(int32_t, std::span<const std::byte>) override {}
  std::vector<TokenId> cells;

 private:
  backend::StateOptions options_;
};

class ToyProgram : public backend::Program {
 public:
  Result<std::unique_ptr<backend::StateStore>> NewState(const backend::StateOptions& options) override {
    return std::make_unique<ToyState>(options);
  }
  Status Run(const backend::Step& step, backend::StateStore& store, std::span<float> logits) override {
    auto& state = static_cast<ToyState&>(store);
    const size_t n_seq = step.seq_start.size() - 1, table = step.page_table.size() / n_seq;
    largest_step = std::max(largest_step, step.tokens.size());
    most_rows = std::max(most_rows, step.logit_rows.size());
    most_sequences = std::max(most_sequences, n_seq);
    size_t out = 0;
    for (size_t s = 0; s < n_seq; s++) {
      for (int32_t t = step.seq_start[s]; t < step.seq_start[s + 1]; t++) {
        const auto cell = [&](int32_t p) -> TokenId& {
          const int64_t page = step.page_table[s * table + static_cast<size_t>(p / state.options().page_tokens)];
          return state.cells.at(
              static_cast<size_t>(page * state.options().page_tokens + p % state.options().page_tokens));
        };
        const int32_t position = step.positions[static_cast<size_t>(t)];
        cell(position) = step.tokens[static_cast<size_t>(t)];
        if (out >= step.logit_rows.size() || step.logit_rows[out] != t) continue;
        std::vector<TokenId> history;
        for (int32_t p = 0; p <= position; p++) history.push_back(cell(p));
        Scores(history, logits.subspan(out++ * kVocab, kVocab));
      }
    }
    return {};
  }
  static void Scores(std::span<const TokenId> history, std::span<float> row) {
    uint64_t hash = 1469598103934665603u;
    for (const TokenId t : history) hash = (hash ^ static_cast<uint64_t>(t + 1)) * 1099511628211u;
    for (size_t v = 0; v < row.size(); v++) {
      hash = (hash ^ v) * 1099511628211u;
      row[v] = static_cast<float>((hash >> 40) % 1000) / 250.0f;
    }
  }
  const std::vector<backend::PlanEntry>& plan() const override { return plan_; }
  size_t weight_bytes() const override { return 0; }
  size_t workspace_bytes() const override { return 0; }
  std::string isa() const override { return "toy"; }
  int n_threads() const override { return 1; }
  size_t largest_step = 0, most_rows = 0, most_sequences = 0;

 private:
  std::vector<backend::PlanEntry> plan_;
};

std::vector<TokenId> SomeTokens(size_t n) {
  std::vector<TokenId> ids(n);
  for (size_t i = 0; i < n; i++) ids[i] = static_cast<TokenId>((i * i * 7 + i / 3) % kVocab);
  return ids;
}

TEST(PlanWindows, CountsOfLlamaPerplexity) {
  const auto windows = PlanWindows(6337, {.window_tokens = 512}).value();
  ASSERT_EQ(windows.size(), 12u);
  EXPECT_EQ(windows[3].first_token, 3 * 512);
  EXPECT_EQ(windows[3].score_begin, 256);
  EXPECT_EQ(windows[3].score_end, 511);
  EXPECT_EQ(CountScored(windows), 12 * 255);  // llama-perplexity's n_ctx - first - 1
  EXPECT_EQ(PlanWindows(6337, {.window_tokens = 512, .max_windows = 6}).value().size(), 6u);
  EXPECT_EQ(PlanWindows(1024, {.window_tokens = 511}).value()[0].score_begin, 255);

  const auto whole = PlanWindows(1024, {.window_tokens = 512, .whole = true}).value();
  EXPECT_EQ(CountScored(whole), 2 * 511);

  const auto strided = PlanWindows(1000, {.window_tokens = 512, .stride_tokens = 100}).value();
  ASSERT_EQ(strided.size(), 5u);  // ceil((1000 - 512) / 100)
  EXPECT_EQ(strided[1].first_token, 100);
  EXPECT_EQ(strided[1].score_begin, 411);
  EXPECT_EQ(strided[1].score_end, 511);
  EXPECT_LE(strided.back().first_token + 512, 1000);
}

TEST(PlanWindows, RefusesWhatScoresNothing) {
  EXPECT_FALSE(PlanWindows(511, {.window_tokens = 512}));
  EXPECT_FALSE(PlanWindows(100, {.window_tokens = 3}));
  EXPECT_FALSE(PlanWindows(100, {.window_tokens = 50, .stride_tokens = 50}));
  EXPECT_FALSE(PlanWindows(100, {.window_tokens = 50, .stride_tokens = -1}));
  EXPECT_FALSE(PlanWindows(100, {.window_tokens = 50, .whole = true, .stride_tokens = 10}));
}

// Each scored position, whatever shares a step, has the scores of its window alone, and memory is bounded.
TEST(ScoreWindows, RowsAreThoseOfTheWindowAlone) {
  const std::vector<TokenId> ids = SomeTokens(203);
  const TokenId bos = 49;
  for (const bool use_bos : {true, false}) {
    for (const WindowOptions& how :
         {WindowOptions{.window_tokens = 20}, WindowOptions{.window_tokens = 20, .whole = true},
          WindowOptions{.window_tokens = 61}, WindowOptions{.window_tokens = 33, .stride_tokens = 7}}) {
      for (const int64_t step_tokens : {int64_t{7}, int64_t{64}, int64_t{200}}) {
        ToyProgram program;
        const auto windows = PlanWindows(static_cast<int64_t>(ids.size()), how).value();
        ScoringSubject subject{.program = &program,
                               .state = {.page_tokens = 16},
                               .vocab = kVocab,
                               .step_tokens = step_tokens,
                               .step_rows = std::min<int64_t>(step_tokens, 30)};
        if (use_bos) subject.bos = bos;
        std::map<int64_t, std::vector<float>> got;
        ASSERT_TRUE(ScoreWindows(subject, ids, windows, [&](std::span<const ScoredRow> rows) -> Status {
          for (const ScoredRow& r : rows) {
            EXPECT_EQ(r.target, ids[static_cast<size_t>(r.token)]);
            EXPECT_TRUE(got.emplace(r.index, std::vector<float>(r.logits.begin(), r.logits.end())).second);
          }
          return {};
        }));
        ASSERT_EQ(static_cast<int64_t>(got.size()), CountScored(windows));
        int64_t index = 0;
        for (const Window& w : windows) {
          std::vector<TokenId> window(ids.begin() + w.first_token, ids.begin() + w.first_token + w.tokens);
          if (use_bos) window[0] = bos;
          for (int64_t p = w.score_begin; p < w.score_end; p++, index++) {
            std::vector<float> expected(kVocab);
            ToyProgram::Scores(std::span(window).first(static_cast<size_t>(p + 1)), expected);
            ASSERT_EQ(got.at(index), expected) << index;
          }
        }
        EXPECT_LE(program.most_rows, static_cast<size_t>(subject.step_rows));
        EXPECT_LE(program.largest_step, static_cast<size_t>(step_tokens));
        if (step_tokens == 200 && how.window_tokens == 20) {
          EXPECT_EQ(program.most_sequences, 10u);
        }
      }
    }
  }
}

TEST(MeasurePerplexity, IsTheMeanOverTheText) {
  const std::vector<TokenId> ids = SomeTokens(100);
  ToyProgram program;
  const auto windows = PlanWindows(100, {.window_tokens = 20}).value();
  const ScoringSubject subject{
      .program = &program, .state = {.page_tokens = 16}, .vocab = kVocab, .step_tokens = 60, .step_rows = 30};
  auto pool = ThreadPool::Create(2).value();
  std::vector<Script> scripts(ids.size(), Script::kLatin);
  scripts[31] = Script::kHan;
  const auto measured = MeasurePerplexity(subject, ids, windows, scripts, *pool, nullptr);
  ASSERT_TRUE(measured) << measured.error().Message();
  double sum = 0, han = 0;
  for (const Window& w : windows) {
    for (int64_t p = w.score_begin; p < w.score_end; p++) {
      std::vector<float> row(kVocab);
      ToyProgram::Scores(std::span(ids).subspan(static_cast<size_t>(w.first_token), static_cast<size_t>(p + 1)), row);
      const double nll = -sampling::LogProbability(row, ids[static_cast<size_t>(w.first_token + p + 1)]);
      sum += nll;
      if (w.first_token + p + 1 == 31) han = nll;
    }
  }
  EXPECT_EQ(measured->all.tokens, 5 * 9);
  EXPECT_NEAR(measured->all.mean_nll, sum / 45, 1e-12);
  EXPECT_NEAR(measured->all.perplexity, std::exp(sum / 45), 1e-9);
  ASSERT_EQ(measured->running.size(), 5u);
  EXPECT_EQ(measured->running.back(), measured->all.perplexity);
  ASSERT_EQ(measured->scripts.size(), 2u);
  EXPECT_EQ(measured->scripts[1].script, Script::kHan);
  EXPECT_EQ(measured->scripts[1].value.tokens, 1);
  EXPECT_NEAR(measured->scripts[1].value.mean_nll, han, 1e-12);
  EXPECT_FALSE(measured->scripts[1].value.error);
}

TEST(MeanError, IsTheStandardErrorOfTheMean) {
  MeanError m;
  EXPECT_FALSE(m.error());
  for (const double x : {1.0, 2.0, 4.0, 5.0}) m.Add(x);
  EXPECT_EQ(m.mean(), 3.0);
  EXPECT_NEAR(*m.error(), std::sqrt(2.5 / 3), 1e-12);
}

TEST(Scripts, ByTheFirstLetterAndTheOneBefore) {
  EXPECT_EQ(ScriptsOf({"12", "the", " ", "河", "。", "水", "\xE6\xB0", "\xB4", " x", "カ", "한", "и"}),
            (std::vector<Script>{Script::kOther, Script::kLatin, Script::kLatin, Script::kHan, Script::kHan,
                                 Script::kHan, Script::kHan, Script::kHan, Script::kLatin, Script::kKana,
                                 Script::kHangul, Script::kCyrillic}));
  EXPECT_EQ(ScriptOf(0x2A6DF), Script::kHan);
  EXPECT_EQ(ScriptOf(0xD7), Script::kOther);  // the sign of multiplication
}

}  // namespace
}  // namespace ridge::lab
