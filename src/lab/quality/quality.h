// How well a model predicts a text, and how far another model's predictions are from it: perplexity and Kullback-Leibler divergence.
//
//   RIDGE_ASSIGN_OR_RETURN(Perplexity p, MeasurePerplexity(subject, ids, windows, scripts, *pool, nullptr));
//   RIDGE_ASSIGN_OR_RETURN(Kld k, MeasureKld(subject, reference, scripts, *pool));
//
// Guarantees: sums run in the order of the text, so figures do not depend on threads or on what shared a step. The standard errors are those of
// independent tokens, as llama-perplexity gives them: neighbours in a text are not independent, so they are somewhat too small.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "lab/quality/reference.h"
#include "lab/quality/scoring.h"
#include "lab/quality/script.h"

namespace ridge::lab {

// exp of the mean of minus log-probabilities, with the error of the mean carried through.
struct PerplexityValue {
  int64_t tokens = 0;
  double mean_nll = 0, perplexity = 0;
  std::optional<double> error;
};

struct ScriptPerplexity {
  Script script = Script::kOther;
  PerplexityValue value;
};

struct Perplexity {
  PerplexityValue all;
  std::vector<ScriptPerplexity> scripts;  // those that occur, in the order of the enum
  std::vector<double> running;            // of the text up to the end of each window
  int64_t computed_tokens = 0;            // through the model
  double seconds = 0;
};

// A saved reference takes the rows in order.
struct ReferenceSink {
  ReferenceWriter* writer = nullptr;
  ReferenceShape shape;
};

using ScoreProgress = std::function<void(int64_t scored, int64_t of)>;

// scripts: [tokens of the text]. reference may be nullptr. Errors: those of ScoreWindows; kInvalidData where the model gives no finite scores.
Result<Perplexity> MeasurePerplexity(const ScoringSubject& subject, std::span<const TokenId> ids,
                                     std::span<const Window> windows, std::span<const Script> scripts, ThreadPool& pool,
                                     const ReferenceSink* reference, const ScoreProgress& progress = {});

struct KldValue {
  int64_t tokens = 0;
  double mean = 0;
  std::optional<double> error;  // of the mean over the text
  double sampling_error = 0;    // of the mean, from the sampled tails alone
  double same_top = 0;          // share of positions where both find the same token likeliest
  std::optional<double> same_top_error;
  double delta_p_mean = 0, delta_p_rms = 0;
  PerplexityValue model, reference;
  double log_ratio = 0;  // ln(perplexity of the model / of the reference)
  std::optional<double> log_ratio_error;
};

struct ScriptKld {
  Script script = Script::kOther;
  KldValue value;
};

struct Kld {
  KldValue all;
  std::vector<ScriptKld> scripts;
  std::vector<double> kld, delta_p;  // of each scored position, in order
  int64_t computed_tokens = 0;
  double seconds = 0;
};

// The text, its windows and BOS are those of the reference.
Result<Kld> MeasureKld(ScoringSubject subject, const Reference& reference, std::span<const Script> scripts,
                       ThreadPool& pool, const ScoreProgress& progress = {});

}  // namespace ridge::lab
