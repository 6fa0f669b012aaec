// What steps have cost so far, and from that how many prompt tokens a step may take along without making those who decode wait too long.
//
//   StepCosts costs(64);
//   int64_t n = costs.PromptTokens(4, 512);    // beside 4 tokens that decode
//   costs.Observe({.decode_tokens = 4, .prompt_tokens = n}, 41.5);
//
// The bound: a step that decodes and works on prompts lasts at most kMostStretch times as long as one that only decodes. So the gap between two
// tokens of an answer grows by that factor at most while prompts are computed, and prompts get the rest of the time. Where more prompts than answers
// are under way, each has the same claim on the machine as an answer: with p prompts beside d answers the factor is 1 + p / d. Short steps cost
// everybody: as long as they have fewer than kFullRows tokens, p prompts make them 1 + p times as long. Both up to kCrowdStretch. Costs are learnt
// from measured steps; where that of decoding is not known, or old, one step only decodes. Without any measured step there is no bound.
// Steps are whole tiles of kTileRows tokens: one that is begun costs as much as a full one.
// Guarantees: no clock of its own, deterministic in what it was told. PromptTokens gives 0 only once in a row, so prompts always get on.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ridge::engine {

struct StepShape {
  int64_t decode_tokens = 0;  // drafts included
  int64_t prompt_tokens = 0;
};

class StepCosts {
 public:
  // The bound is 2.5; the rest is for what varies between steps.
  static constexpr double kMostStretch = 2.35;
  static constexpr double kCrowdStretch = 8;
  // From here on more tokens make a step hardly more efficient.
  static constexpr int64_t kFullRows = 128;
  // Tokens that kernels compute at once.
  static constexpr int64_t kTileRows = 4;
  // Steps that take prompts along until the cost of decoding alone is measured again.
  static constexpr int64_t kStaleSteps = 64;

  explicit StepCosts(int64_t max_decode_tokens);

  // For the next step. most: what it has room for; prompts: how many are under way, or could be.
  int64_t PromptTokens(int64_t decode_tokens, int64_t most, int64_t prompts = 1);
  void Observe(const StepShape& shape, double ms);

  // Expected time of a step that only decodes n tokens: between those that were seen, or a guess beyond them; none before the first.
  std::optional<double> DecodeMs(int64_t n) const;
  // Time per token of steps that only work on prompts; none before the first.
  std::optional<double> PromptTokenMs() const {
    return lone_token_ms_.samples > 0 ? std::optional(lone_token_ms_.value) : std::nullopt;
  }

  // Time until one more prompt token is computed, of `prompts` that are under way beside n tokens that decode: what a stretched step leaves to prompts.
  // 0: not measured.
  double BusyPromptTokenMs(int64_t decode_tokens, int64_t prompts) const;

 private:
  // What prompts get of a step whose n tokens take `alone` ms to decode, where one more token takes token_ms.
  static double PromptMs(int64_t n, int64_t prompts, double alone, double token_ms);
  struct Mean {
    double value = 0;
    int64_t samples = 0;
    void Add(double sample);
  };

  std::vector<Mean> decode_ms_;  // [tokens]
  Mean prompt_token_ms_;         // beside decoding: what one more prompt token adds
  Mean growth_ms_;               // the same, of the tokens that a step had more than the one before
  Mean lone_token_ms_;           // of steps that only work on prompts
  StepShape last_;               // the last step with both
  double last_ms_ = 0;
  int64_t since_decode_ = 0;  // steps with prompts since one without
  bool measured_ = false, probing_ = false;
};

}  // namespace ridge::engine
