// What goes into the engine and what comes out: token ids, and the time that each step took.
//
//   Request request{.prompt = ids, .max_tokens = 128, .stop_tokens = {eos}, .sampling = {.seed = 42}};
//
// Guarantees: plain values.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "sampling/params.h"

namespace ridge::engine {

using RequestId = uint64_t;
using Clock = std::chrono::steady_clock;

struct Request {
  std::vector<TokenId> prompt;       // at least one token
  int64_t max_tokens = -1;           // generated at most; -1: until a stop token or until the context is full
  std::vector<TokenId> stop_tokens;  // each ends the answer and is its last token
  sampling::SamplingParams sampling;
  uint64_t draw_stream = 0;  // tells the draws of several answers to one prompt and seed apart
};

enum class FinishReason { kStop, kLength, kCancelled, kFailed };
std::string_view Name(FinishReason reason);  // "stop", "length", "cancelled", "failed"

struct TokenEvent {
  TokenId token = -1;
  bool stop = false;     // one of the request's stop tokens: no text of the answer
  double decode_ms = 0;  // the step that computed its logits; 0 for the first token, whose step was the prompt's last
  double sample_ms = 0;
  Clock::time_point at;  // when it was chosen
};

// The end of a request.
struct Summary {
  FinishReason reason = FinishReason::kFailed;
  std::optional<Error> error;  // of kFailed
  int64_t cached_tokens = 0;   // of the prompt, not computed again
  int64_t prompt_chunks = 0;
  int64_t nan_logits = 0;  // above 0: the model's computation is broken
  double queue_ms = 0;     // from Submit to the first step
  double prompt_ms = 0;    // all steps of the prompt, the one that gave the first token included
  Clock::time_point at;
};

}  // namespace ridge::engine
