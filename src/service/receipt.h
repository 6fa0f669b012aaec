// What one request cost, phase by phase.
//
//   Receipt receipt = stream->receipt();
//   receipt.predicted_per_second();   // nothing when no decode step was taken
//
// Guarantees: counts and times are those of the tokens that the reader was given. The first token is counted in predicted_n, its step in prompt_ms.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/request.h"

namespace ridge::service {

// Where the time until the first text went that the reader was shown: several tokens where the first ones gave none. The parts and other_ms() sum to
// total_ms.
struct FirstText {
  engine::Clock::time_point submitted, chosen;  // Submit, and when its last token was drawn
  std::optional<double> receive_ms;             // HTTP and JSON, before Submit; none: it came otherwise
  double tokenize_ms = 0, queue_ms = 0, prompt_ms = 0, decode_ms = 0, sample_ms = 0;
  double detokenize_ms = 0;        // of its last token: the others' was hidden behind steps
  double deliver_ms = 0;           // from the draw to the reader, or to its place in the answer, without detokenize_ms
  std::optional<double> write_ms;  // until the socket had taken it; none: no socket, or not known when this was told
  double total_ms = 0;
  double other_ms() const {
    return total_ms - receive_ms.value_or(0) - tokenize_ms - queue_ms - prompt_ms - decode_ms - sample_ms -
           detokenize_ms - deliver_ms - write_ms.value_or(0);
  }
};

struct Receipt {
  engine::FinishReason reason = engine::FinishReason::kFailed;
  double tokenize_ms = 0;  // template and tokenizer
  double queue_ms = 0;     // waiting for the engine
  int64_t prompt_n = 0;
  int64_t cache_n = 0;                               // of them, found in the prefix cache
  int64_t cache_pinned_n = 0;                        // of the prompt, kept for cache_pin_s
  std::optional<engine::CacheMiss> cache_miss = {};  // why the others were computed; none: the request took no part
  std::optional<int64_t> cache_miss_message = {};    // of a conversation: the message that the first of them belongs to
  int64_t prompt_chunks = 0;
  double prompt_ms = 0;
  int64_t predicted_n = 0;
  double predicted_ms = 0;  // decode steps
  double sample_ms = 0;
  double detokenize_ms = 0;
  double detokenize_after_ms = 0;                // of it, when the engine was done: not hidden behind a decode step
  std::optional<double> predicted_ttft_ms = {};  // when it was submitted; of several answers the first one's
  std::optional<double> ttft_ms;                 // from Submit to the first token
  std::optional<FirstText> first_text = {};      // none: no text was shown
  int64_t nan_logits = 0;
  int64_t preemptions = 0, drafts_proposed = 0, drafts_accepted = 0, kv_pages = 0,
          computed_n = 0;                  // see engine::Summary
  int64_t decode_steps = 0;                // those behind predicted_ms
  double draft_ms = 0;                     // of predicted_ms, in the draft model
  std::optional<double> speculation_gain;  // see engine::Summary; nothing where nothing was drafted
  double bytes_read = 0;                   // see engine::StepBytes
  double total_ms = 0;                     // from Submit to the end of the engine's work

  // Computed tokens over computing time.
  std::optional<double> prompt_per_second() const {
    if (prompt_ms <= 0 || prompt_n <= cache_n) return std::nullopt;
    return 1000.0 * static_cast<double>(prompt_n - cache_n) / prompt_ms;
  }
  std::optional<double> predicted_per_second() const {
    if (predicted_ms <= 0 || predicted_n < 2) return std::nullopt;
    return 1000.0 * static_cast<double>(predicted_n - 1) / predicted_ms;
  }
};

}  // namespace ridge::service
