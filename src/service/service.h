// The public way to use a model: load it, submit text, read text as it comes, cancel.
//
//   RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<Service> service, Service::Create(std::move(runtime)));
//   RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<TextStream> stream, service->Submit({.prompt = "The capital of France is", .max_tokens = 24}));
//   for (TextEvent e; stream->Next(100ms, e) != TextStream::Got::kEnd;) show(e.text);
//
// Guarantees: text is valid UTF-8 and never cut inside a code point; nothing of a stop string is shown; a prompt is never shortened: one that does
// not fit is an error that says needed and available. One BOS: the template's or the tokenizer's. A message that spells a control token stays text. Submit and Cancel are thread-safe; one reader per stream.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "sampling/params.h"
#include "service/receipt.h"
#include "service/runtime.h"
#include "service/stop_matcher.h"
#include "text/chat_template.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace ridge::service {

struct TextRequest {
  std::string prompt;                                // completed as it is, when messages is null
  std::vector<TokenId> prompt_ids;                   // not empty: completed as they are, in place of both texts
  const nlohmann::ordered_json* messages = nullptr;  // a conversation for the model's template; borrowed during Submit
  const nlohmann::ordered_json* template_kwargs = nullptr;  // variables for the template, or null
  int64_t max_tokens = -1;                                  // -1: until the model ends or the context is full
  bool ignore_end = false;                                  // the model's end tokens do not end the answer
  std::vector<std::string> stop;                            // each ends the answer and is not part of it
  // max_tokens is kept or refused: prompt and answer must fit the context together. Else a full context ends the answer.
  bool whole_answer = false;
  int32_t logprobs = -1;                  // alternatives per token; -1: no log-probabilities
  int32_t prompt_logprobs = -1;           // the same of the prompt, whose tokens are then all computed
  std::string cache_salt;                 // prefixes are shared only between equal salts
  double cache_pin_s = 0;                 // see engine::Request
  std::optional<double> deadline_s = {};  // not begun so many seconds from Submit on: fails
  bool use_cache = true;
  int32_t priority = 0;  // higher first
  std::string tenant;    // who shares the engine with the others
  engine::Speculation speculation = engine::Speculation::kOff;
  std::function<void()> notify;  // an event or the end is there; see engine::Request
  sampling::SamplingParams sampling;
};

// A token of the shown text. The text and the log-probabilities of a stream have one clock: a token's come with the text that completes it.
struct ScoredToken {
  TokenId token = -1;
  float logprob = 0;
  std::vector<std::pair<TokenId, float>> top;  // best first
  size_t begin_bytes = 0;                      // where its text begins in the answer
};

struct TextEvent {
  std::string text;    // perhaps empty: the token gave nothing that can be shown yet
  TokenId token = -1;  // -1: text that was held back
  std::vector<ScoredToken> scored;
  // Of the prompt: from its second token on, before anything of the answer. begin_bytes is 0.
  std::vector<ScoredToken> prompt;
};

class TextStream {
 public:
  enum class Got { kEvent, kEnd, kNothing };
  ~TextStream();  // cancels what still runs

  // Waits at most `timeout`. kNothing: nothing came in that time, and notify tells when to look again.
  Got Next(std::chrono::milliseconds timeout, TextEvent& event);
  void Cancel();

  // After kEnd.
  const Receipt& receipt() const { return receipt_; }
  const std::optional<Error>& error() const { return error_; }

  const std::vector<TokenId>& prompt_ids() const { return prompt_ids_; }
  const std::vector<TokenId>& ids() const { return ids_; }  // generated and read so far
  bool at_end_token() const { return at_end_token_; }       // the last of ids is one of the model's end tokens

 private:
  friend class Service;
  TextStream(engine::Engine* engine, const text::Tokenizer& tokenizer, std::vector<std::string> stop);
  Got Take(engine::TokenEvent& token, TextEvent& event);
  void Release(TextEvent& event);
  Got End(TextEvent& event);
  void NoteFirstText(const TextEvent& event, double detokenize_ms);
  std::optional<int64_t> MessageAt(int64_t token) const;

  engine::Engine* engine_;
  engine::Ticket ticket_;
  text::StreamDecoder decoder_;
  StopMatcher matcher_;
  struct Held {
    ScoredToken scored;
    size_t end_bytes = 0;  // in the decoded text
    bool whole = false;    // its last character is complete
  };
  std::deque<Held> held_;
  size_t decoded_bytes_ = 0, shown_bytes_ = 0;
  std::vector<TokenId> prompt_ids_, ids_;
  const text::Tokenizer* tokenizer_;
  std::vector<size_t> message_ends_;  // of a conversation: where each message's text ends in the rendered prompt
  bool bos_added_ = false;            // prompt_ids_ begins with a token that the rendered text does not spell
  engine::Clock::time_point submitted_, last_chosen_;
  bool flushed_ = false, ended_ = false, at_end_token_ = false;
  Receipt receipt_;
  std::optional<Error> error_;
};

struct ServiceOptions {
  int64_t max_running = 1;
  size_t max_waiting = 64;
  bool prefix_cache = true;
  bool resident_pool = false;  // the KV pool's memory is taken at once
};

class Service {
 public:
  // draft: a model that drafts for requests that speculate, or null; loaded for as many steps and sequences as the first.
  // Errors: those of Tokenizer::FromMetadata, CheckDraftModel and Engine::Start. A template that is broken is an error of the requests that need it.
  static Result<std::unique_ptr<Service>> Create(std::unique_ptr<Runtime> runtime, const ServiceOptions& options = {},
                                                 std::unique_ptr<Runtime> draft = nullptr);

  // Errors: kOutOfRange (too long, with figures), kInvalidArgument (empty, sampling, what the template rejects), kUnsupported (messages without a
  // template), kResourceExhausted (too many wait).
  Result<std::unique_ptr<TextStream>> Submit(const TextRequest& request);
  // n answers to one prompt, which is computed once. Only the first knows prompt_ids. All are accepted or none is.
  Result<std::vector<std::unique_ptr<TextStream>>> SubmitGroup(const TextRequest& request, int64_t n);

  engine::EngineStats Stats() const { return engine_->Stats(); }
  std::optional<engine::Forecast> Predict() const {
    return engine_->Predict(0, 1);
  }  // for a short request that comes now

  // The prefix cache in a file (docs/engine.md): see Engine. Both read the whole model file once, to know it again.
  Result<engine::SavedCache> SaveCache(const std::string& path);
  Result<engine::SavedCache> RestoreCache(const std::string& path);

  bool has_template() const { return has_template_; }
  const Runtime& runtime() const { return *runtime_; }
  const Runtime* draft() const { return draft_.get(); }  // null: no draft model
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  size_t kv_bytes() const { return engine_->state_bytes(); }
  size_t draft_kv_bytes() const { return engine_->draft_state_bytes(); }
  double create_ms() const { return create_ms_; }

 private:
  Service() = default;
  Result<const text::ChatTemplate*> Chat() const;
  struct Prompt {
    std::vector<TokenId> ids;
    std::vector<size_t> message_ends;
    bool bos_added = false;
  };
  Result<Prompt> Tokenize(const TextRequest& request) const;
  Error BlameMessage(Error error, const TextRequest& request) const;

  std::unique_ptr<Runtime> runtime_, draft_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  bool has_template_ = false;
  Result<std::optional<text::ChatTemplate>> chat_ = std::optional<text::ChatTemplate>();
  std::vector<TokenId> end_tokens_;
  double create_ms_ = 0;
  engine::CacheKey cache_key_;              // set when it is first needed
  std::unique_ptr<engine::Engine> engine_;  // last: it uses the runtime's program
};

}  // namespace ridge::service
