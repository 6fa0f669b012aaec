// SamplingParams: everything a user may set about how the next token is chosen. Names and defaults are those of
// llama.cpp's server and command line, so that settings carry over.
//
//   SamplingParams params{.temperature = 0.7, .top_p = 0.9, .seed = 42};
//   RIDGE_RETURN_IF_ERROR(Validate(params, vocab_size));
//
// Order of work on one row of logits (the same as llama.cpp's default):
//   logit bias, token mask, penalties, DRY, then `samplers` in turn: top_n_sigma, top_k, typical_p, top_p, min_p, xtc,
//   temperature; then one draw. docs/sampling.md has the formulas.
// Guarantees: a plain value; what Validate accepts, Sampler can always work with.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"

namespace ridge::sampling {

// A step that works on the set of candidates. Bias, mask, penalties and DRY always come before all of these.
enum class Stage : uint8_t { kTopNSigma, kTopK, kTypicalP, kTopP, kMinP, kXtc, kTemperature };

std::string_view Name(Stage stage);  // "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"
Result<Stage> ParseStage(std::string_view name);  // also accepts "typical_p"

struct LogitBias {
  TokenId id = 0;
  double bias = 0.0;  // added to the logit; minus infinity bans the token
};

struct SamplingParams {
  double temperature = 0.8;      // 0: greedy, the token with the highest logit after bias, mask, penalties and DRY
  int32_t top_k = 40;            // keep the k highest logits; 0 or -1: off
  double top_p = 0.95;           // keep the smallest head with at least this probability; 1: off
  double min_p = 0.05;           // keep tokens with at least this share of the best one's probability; 0: off
  double typical_p = 1.0;        // keep the tokens nearest to the expected information; 1: off
  double top_n_sigma = -1.0;     // keep logits within n standard deviations of the highest; <= 0: off
  double xtc_probability = 0.0;  // chance of dropping all but the last token above xtc_threshold; 0: off
  double xtc_threshold = 0.1;    // above 0.5: off
  int32_t min_keep = 0;          // typical_p, top_p and min_p keep at least this many (always at least 1)

  int32_t repeat_last_n = 64;      // tokens of history that the three penalties look at; 0: none, -1: all
  double repeat_penalty = 1.0;     // divides a seen token's positive logit, multiplies a negative one; 1: off
  double presence_penalty = 0.0;   // subtracted once from a seen token's logit; 0: off
  double frequency_penalty = 0.0;  // subtracted once per occurrence; 0: off

  double dry_multiplier = 0.0;      // penalty = multiplier * base^(repeat length - allowed length); 0: off
  double dry_base = 1.75;           // at least 1; 0: off
  int32_t dry_allowed_length = 2;   // repeats shorter than this cost nothing
  int32_t dry_penalty_last_n = 64;  // tokens of history that DRY looks at; 0: none, -1: all
  std::vector<std::vector<TokenId>> dry_sequence_breakers = {};  // token sequences no repeat may cross; see DryBreakers

  std::vector<LogitBias> logit_bias = {};  // several entries for one token add up
  uint64_t seed = 0;                       // whoever wants a fresh seed draws one and reports it

  std::vector<Stage> samplers = {Stage::kTopNSigma, Stage::kTopK, Stage::kTypicalP,   Stage::kTopP,
                                 Stage::kMinP,      Stage::kXtc,  Stage::kTemperature};  // each at most once
};

// kInvalidArgument naming the field, what was found and the accepted range.
Status Validate(const SamplingParams& params, int32_t vocab_size);

}  // namespace ridge::sampling
