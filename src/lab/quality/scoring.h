// How well a model predicts a text: the text is cut into windows, and each scored position's row of scores is handed out once, in order.
//
//   RIDGE_ASSIGN_OR_RETURN(std::vector<Window> windows, PlanWindows(ids.size(), {.window_tokens = 512}));
//   RIDGE_RETURN_IF_ERROR(ScoreWindows(subject, ids, windows, [&](std::span<const ScoredRow> rows) { ...; return Status(); }));
//
// Guarantees: windows, BOS and scored positions are those of llama-perplexity, so that its figures can be compared; memory holds the rows of one
// step, never a whole window's; windows that fit into a step run in one, with the same bits as alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "base/token_id.h"

namespace ridge::lab {

struct WindowOptions {
  int64_t window_tokens = 512;
  bool whole = false;         // every position but the last; else the second half, so that each has some context
  int64_t stride_tokens = 0;  // above 0: windows overlap and start this far apart, each scores its last stride_tokens
  int64_t max_windows = 0;    // 0: all
};

// Position p of a window predicts the token after it; those of [score_begin, score_end) are scored.
struct Window {
  int64_t first_token = 0, tokens = 0;
  int64_t score_begin = 0, score_end = 0;
};

// Errors: kInvalidArgument (the text is shorter than a window, a stride that is no part of it, a window too short to score).
Result<std::vector<Window>> PlanWindows(int64_t n_tokens, const WindowOptions& options);
int64_t CountScored(std::span<const Window> windows);

struct ScoredRow {
  int64_t index = 0;  // 0, 1, ... over all windows
  int64_t token = 0;  // of the text: the one that is predicted
  TokenId target = 0;
  std::span<const float> logits;  // [vocab], valid during the call
};
using RowSink = std::function<Status(std::span<const ScoredRow>)>;

struct ScoringSubject {
  backend::Program* program = nullptr;
  backend::StateOptions state;  // page size and types; pages and slots are chosen here
  int64_t vocab = 0;
  int64_t step_tokens = 512, step_rows = 128;  // what the program was compiled for
  std::optional<TokenId> bos;                  // takes the place of each window's first token; not with a stride
  std::function<bool()> cancelled = {};        // asked between two steps
};

// Sequences of `window_tokens` that share a step.
int64_t WindowsPerStep(int64_t window_tokens, int64_t step_tokens);

// Errors: those of the program and of the sink; kCancelled.
Status ScoreWindows(const ScoringSubject& subject, std::span<const TokenId> ids, std::span<const Window> windows,
                    const RowSink& sink);

// Running mean and what it is known to: the standard error of independent samples, nullopt for fewer than two.
class MeanError {
 public:
  void Add(double x) { n_++, sum_ += x, squares_ += x * x; }
  int64_t count() const { return n_; }
  double mean() const { return n_ > 0 ? sum_ / static_cast<double>(n_) : 0; }
  std::optional<double> error() const;

 private:
  int64_t n_ = 0;
  double sum_ = 0, squares_ = 0;
};

}  // namespace ridge::lab
