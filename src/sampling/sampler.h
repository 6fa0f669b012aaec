// Sampler: picks the next token of a sequence from one row of logits.
//
//   RIDGE_ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create(params, vocab_size));
//   RIDGE_ASSIGN_OR_RETURN(TokenId next, sampler.Sample(logits, history, request, position));
//
// Guarantees:
// - The choice is a function of (params, logits, history, request, position, allowed) alone: no state is carried from
//   one call to the next, so batching, order, preemption and replay change nothing. Same bits on every machine
//   (base/math.h).
// - The random numbers come from Philox4x32-10 with key = seed, counter = (position, request).
// - Equal logits: the lower id goes first. NaN and -inf never win; +inf counts as the largest finite float.
// - No allocation once scratch has grown (the first calls). One Sampler per thread; copies share the parameters, a bias of
//   every token included.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "sampling/candidates.h"
#include "sampling/dry.h"
#include "sampling/params.h"
#include "sampling/penalties.h"

namespace ridge::sampling {

class Sampler {
 public:
  // Errors: those of Validate.
  static Result<Sampler> Create(SamplingParams params, int32_t vocab_size);

  // logits:  [vocab_size], modified.
  // history: the tokens that penalties and DRY see, oldest first; the caller decides whether the prompt is among them.
  // request, position: which draw this is. The same pair gives the same draw.
  // allowed: bit i % 32 of word i / 32 is set where token i may be chosen (a grammar's mask), at least vocab_size bits;
  //          empty: all tokens.
  // Errors: kInvalidArgument when a size does not fit; kInvalidData when no token has a usable logit.
  Result<TokenId> Sample(std::span<float> logits, std::span<const TokenId> history, uint64_t request, uint64_t position,
                         std::span<const uint32_t> allowed = {});

  const SamplingParams& params() const { return *params_; }
  bool greedy() const { return greedy_; }

  // What the latest draw chose among; empty when greedy, and when no stage drops any.
  std::span<const Candidate> candidates() const { return candidates_.items(); }

  // NaN logits met in the latest call: above 0 the model's computation is broken, which the caller should report.
  int64_t nan_count() const { return nan_count_; }

 private:
  Sampler(SamplingParams params, int32_t vocab_size);
  void Truncate(Stage stage, const std::array<uint32_t, 4>& random);

  std::shared_ptr<const SamplingParams> params_;
  int32_t vocab_size_ = 0;
  bool greedy_ = false, all_ = false;  // all_: no stage drops a token
  int64_t nan_count_ = 0;
  std::vector<Stage> stages_;  // the active ones, in order
  Penalties penalties_;
  Dry dry_;
  Candidates candidates_;
};

}  // namespace ridge::sampling
