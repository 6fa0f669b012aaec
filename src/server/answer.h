// The answer of a completion: the streams of its choices become OpenAI's JSON, in one piece or as server-sent events.
//
//   return NewAnswer({.chat = true, .stream = true, .model = id, ...}, std::move(streams));
//
// Guarantees: the streamed deltas and their log-probabilities, joined, are those of the answer in one piece. finish_reason is null up to a
// choice's last chunk. The ledger stands in the field `ridge`, of a stream in its last chunk. Dropping the reply cancels what runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/context.h"
#include "server/http.h"
#include "service/service.h"

namespace ridge::server {

struct AnswerForm {
  bool chat = false;
  bool stream = false, include_usage = false;
  bool logprobs = false;
  int64_t n = 1;                       // choices of one prompt
  std::vector<std::string> echo = {};  // by prompt: text before the answer; empty: none
  bool echo_logprobs = false;  // with the log-probabilities of its tokens, which the first stream of each prompt brings
  std::vector<bool> echo_special = {};  // by prompt: the text spells control tokens out
  std::string prompt_field = {};        // for errors
  uint64_t seed = 0;
  std::chrono::steady_clock::time_point arrived = {};  // of the request
};

// streams: n of each prompt, prompt by prompt. They must wake whoever pulls.
Reply NewAnswer(const Context& context, AnswerForm form, std::vector<std::unique_ptr<service::TextStream>> streams);

}  // namespace ridge::server
