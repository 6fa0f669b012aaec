// What goes into the engine and what comes out: token ids, and the time that each step took.
//
//   Request request{.prompt = ids, .max_tokens = 128, .stop_tokens = {eos}, .sampling = {.seed = 42}};
//
// Guarantees: plain values.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "cache/prefix_cache.h"
#include "sampling/params.h"

namespace ridge::engine {

using RequestId = uint64_t;
using Clock = std::chrono::steady_clock;

// Drafts of the next tokens that one step verifies. kAuto: as long as it pays.
enum class Speculation { kOff, kLookup, kDraft, kAuto };
std::string_view Name(Speculation speculation);  // "off", "lookup", "draft", "auto"

constexpr int32_t kMaxLogprobs = 20;
constexpr double kMostPin_s = 7 * 86400;

struct Request {
  std::vector<TokenId> prompt;       // at least one token
  int64_t max_tokens = -1;           // generated at most; -1: until a stop token or until the context is full
  std::vector<TokenId> stop_tokens;  // each ends the answer and is its last token
  sampling::SamplingParams sampling;
  uint64_t draw_stream = 0;  // tells the draws of several answers to one prompt and seed apart
  int32_t logprobs = -1;     // alternatives per token, at most kMaxLogprobs; -1: no log-probabilities
  // The same of the prompt's tokens but the first, which are then computed, not taken from the cache. Who scores texts does not come back to them:
  // such a request leaves nothing in the cache either.
  int32_t prompt_logprobs = -1;
  std::string cache_salt = {};  // prefixes are shared only between equal salts
  double pin_s =
      0;  // the prompt's pages stay in the prefix cache for so long after the end; 0: as long as there is room
  bool use_cache = true;    // false: takes nothing from the prefix cache and leaves nothing in it
  int32_t priority = 0;     // higher first
  std::string tenant = {};  // who shares the engine with the others; empty is one of them
  std::optional<Clock::time_point> deadline = {};  // not begun by then: fails; nothing is kept waiting in vain
  Speculation speculation = Speculation::kOff;
  // Called on the engine's thread after each event and after the end: "look at the outbox". Must be quick and not call the engine.
  std::function<void()> notify = {};

  bool TakesPartInCache() const { return use_cache && prompt_logprobs < 0; }
};

enum class FinishReason { kStop, kLength, kCancelled, kFailed };
std::string_view Name(FinishReason reason);  // "stop", "length", "cancelled", "failed"

struct TokenEvent {
  TokenId token = -1;
  // Of the prompt, where its log-probabilities were asked for: from the second token on, before those of the answer.
  bool prompt = false;
  bool stop = false;  // one of the request's stop tokens: no text of the answer
  // The step that computed its logits; 0 for the first token, whose step was the prompt's last, and for those that an earlier token's step drafted.
  double decode_ms = 0;
  double draft_ms = 0;  // of it, in the draft model
  double sample_ms = 0;
  Clock::time_point at;  // when it was chosen
  // Natural, of the model's own distribution: log softmax of the raw logits. Only when asked for.
  std::optional<float> logprob = {};
  std::vector<std::pair<TokenId, float>> top = {};  // best first
};

// Why the prompt's tokens from `at_token` on had to be computed. kNone: all that may be reused was, which is all but the last token.
struct CacheMiss {
  cache::MissReason reason = cache::MissReason::kNone;
  int64_t at_token = 0;
  int64_t gone_ms = -1;  // of what was given up: how long before the request began; -1: nothing was
};

// The end of a request.
struct Summary {
  FinishReason reason = FinishReason::kFailed;
  std::optional<Error> error;           // of kFailed
  int64_t cached_tokens = 0;            // of the prompt, not computed again
  std::optional<CacheMiss> cache_miss;  // none: the request took no part in the prefix cache, or never began
  int64_t pinned_tokens = 0;            // of the prompt, kept in the prefix cache for pin_s from now on
  int64_t prompt_chunks = 0;
  int64_t nan_logits = 0;                   // above 0: the model's computation is broken
  std::optional<double> predicted_ttft_ms;  // at Submit; none: too little was measured then
  double queue_ms = 0;                      // from Submit to the first step
  double prompt_ms = 0;                     // all steps of the prompt, the one that gave the first token included
  int64_t preemptions = 0;                  // times that its pages were taken and computed again
  int64_t drafts_proposed = 0;              // tokens
  int64_t drafts_accepted = 0;
  // Time that the decode steps would have taken without drafts, by what steps without drafts took, over the time that they took. Only where something
  // was drafted.
  std::optional<double> speculation_gain = {};
  int64_t kv_pages = 0;  // held at the end
  int64_t computed_tokens =
      0;                  // all that went through the model, repetition after preemption and refused drafts included
  double bytes_read = 0;  // see StepBytes
  Clock::time_point at;
};

}  // namespace ridge::engine
