#include "server/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <random>
#include <utility>

#include "base/planted.h"
#include "server/api_error.h"
#include "server/logprobs.h"
#include "service/receipt_sum.h"

namespace ridge::server {
namespace {

using Clock = std::chrono::steady_clock;
using service::Receipt;
using service::TextEvent;
using service::TextStream;

std::string Quoted(std::string_view text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string NewId(bool chat) {
  static constexpr char kLetters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::random_device random;
  std::string id = chat ? "chatcmpl-" : "cmpl-";
  for (int i = 0; i < 24; i++) id += kLetters[random() % (sizeof(kLetters) - 1)];
  return id;
}

int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

struct Choice {
  std::unique_ptr<TextStream> stream;
  std::string text;
  LogprobText logprobs;
  bool done = false;
  bool echoed = false;  // with log-probabilities
  std::string_view finish;
};

// The first text of all choices, on its way out.
struct FirstOut {
  size_t choice = 0;
  Clock::time_point placed;                                 // in the answer
  std::optional<Clock::time_point> written = std::nullopt;  // the socket has taken it
};

// The tokens of a prompt, as their log-probabilities come.
struct PromptScores {
  std::vector<service::ScoredToken> scored;  // all but the first
  bool complete = false;
};

class Answer final : public Source {
 public:
  Answer(const Context& context, AnswerForm form, std::vector<std::unique_ptr<TextStream>> streams)
      : context_(&context), form_(std::move(form)) {
    for (auto& stream : streams) {
      choices_.emplace_back();
      choices_.back().stream = std::move(stream);
      choices_.back().logprobs = LogprobText(form_.chat, context.tokenizer());
    }
    open_ = choices_.size();
    if (form_.echo_logprobs) prompts_.resize(form_.echo.size());
    const char* object = !form_.chat ? "text_completion" : form_.stream ? "chat.completion.chunk" : "chat.completion";
    head_ = fmt::format(R"({{"id":{},"object":"{}","created":{},"model":{},"choices":[)", Quoted(NewId(form_.chat)),
                        object, UnixSeconds(), Quoted(context.model_id));
  }

  ~Answer() override {
    for (const Choice& choice : choices_) context_->counts->cancelled += choice.done ? 0 : 1;
  }

  bool Pull(Response& response, std::string& out) override {
    if (form_.stream && !std::exchange(begun_, true)) Begin(out);
    for (size_t i = 0; i < choices_.size(); i++) {
      if (choices_[i].done) continue;
      if (!PullChoice(i, response, out)) return true;
    }
    if (open_ > 0) return false;
    if (form_.stream) {
      End(out);
    } else {
      response.body = Whole();
    }
    return true;
  }

  void Written() override {
    if (first_ && !first_->written) first_->written = Clock::now();
  }

 private:
  // What is known before the first token.
  void Begin(std::string& out) {
    for (size_t i = 0; i < choices_.size(); i++) {
      if (form_.chat)
        Chunk(out,
              fmt::format(
                  R"({{"index":{},"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}})",
                  i));
      const std::string* echo = Echo(i);
      if (echo != nullptr && !form_.echo_logprobs) Chunk(out, Piece(i, *echo, "null"));
    }
  }

  const std::string* Echo(size_t i) const {
    const size_t prompt = i / static_cast<size_t>(form_.n);
    return prompt < form_.echo.size() ? &form_.echo[prompt] : nullptr;
  }

  std::string Piece(size_t i, std::string_view text, std::string_view logprobs) const {
    if (form_.chat) {
      return fmt::format(R"({{"index":{},"delta":{{"content":{}}},"logprobs":{},"finish_reason":null}})", i,
                         Quoted(text), logprobs);
    }
    return fmt::format(R"({{"index":{},"text":{},"logprobs":{},"finish_reason":null}})", i, Quoted(text), logprobs);
  }

  void Chunk(std::string& out, std::string_view choice, std::string_view more = "") const {
    out += "data: ";
    out += head_;
    out += choice;
    out += "]";
    out += form_.include_usage && more.find("\"usage\"") == std::string_view::npos ? R"(,"usage":null)" : "";
    out += more;
    out += "}\n\n";
  }

  // The first choice of a prompt brings its log-probabilities. Each choice begins with them, so the others wait for it.
  void EchoPrompt(size_t i, std::string& out) {
    Choice& choice = choices_[i];
    const size_t prompt = i / static_cast<size_t>(form_.n);
    const TextStream& first = *choices_[prompt * static_cast<size_t>(form_.n)].stream;
    choice.logprobs.AddPrompt(first.prompt_ids(), prompts_[prompt].scored, form_.echo[prompt],
                              form_.echo_special[prompt]);
    if (form_.stream) Chunk(out, Piece(i, form_.echo[prompt], choice.logprobs.Take()));
    choice.echoed = true;
  }

  // Whether choice i may go on; takes what `event`, of the first choice, has for the prompt.
  bool PromptDone(size_t i, TextEvent& event) {
    PromptScores& prompt = prompts_[i / static_cast<size_t>(form_.n)];
    std::ranges::move(event.prompt, std::back_inserter(prompt.scored));
    if (i % static_cast<size_t>(form_.n) == 0)
      prompt.complete = prompt.scored.size() + 1 >= choices_[i].stream->prompt_ids().size();
    return prompt.complete;
  }

  // False: the whole answer failed, and the error is written.
  bool PullChoice(size_t i, Response& response, std::string& out) {
    Choice& choice = choices_[i];
    TextEvent event;
    for (;;) {
      if (form_.echo_logprobs && !choice.echoed) {
        if (PromptDone(i, event)) {
          EchoPrompt(i, out);
        } else if (i % static_cast<size_t>(form_.n) != 0) {
          return true;
        }
      }
      switch (choice.stream->Next(std::chrono::milliseconds(0), event)) {
        case TextStream::Got::kNothing: return true;
        case TextStream::Got::kEnd: return Finish(i, response, out);
        case TextStream::Got::kEvent: break;
      }
      SleepIfPlanted(Stage::kDeliver);
      choice.text += event.text;
      if (form_.logprobs) {
        for (const service::ScoredToken& scored : event.scored)
          choice.logprobs.Add(scored, choice.text, Echo(i) == nullptr ? "" : *Echo(i));
      }
      if (!form_.stream || (event.text.empty() && event.scored.empty())) continue;
      Chunk(out, Piece(i, event.text, form_.logprobs ? choice.logprobs.Take() : "null"));
      if (!first_ && !event.text.empty() && form_.echo.empty()) first_ = {.choice = i, .placed = Clock::now()};
    }
  }

  bool Finish(size_t i, Response& response, std::string& out) {
    Choice& choice = choices_[i];
    choice.done = true;
    const Receipt& receipt = choice.stream->receipt();
    switch (receipt.reason) {
      case engine::FinishReason::kStop:
        choice.finish = "stop";
        context_->counts->stopped++;
        break;
      case engine::FinishReason::kLength:
        choice.finish = "length";
        context_->counts->full++;
        break;
      case engine::FinishReason::kCancelled:
        context_->counts->cancelled++;
        return Break({.status = 503, .message = "the server ended this request", .type = "cancelled_error"}, response,
                     out);
      case engine::FinishReason::kFailed:
        context_->counts->failed++;
        return Break(Broken(choice.stream->error()), response, out);
    }
    open_--;
    if (!form_.stream) return true;
    const char* body = form_.chat ? R"("delta":{})" : R"("text":"")";
    const bool last = open_ == 0 && !form_.include_usage;
    Chunk(out, fmt::format(R"({{"index":{},{},"logprobs":null,"finish_reason":"{}"}})", i, body, choice.finish),
          last ? fmt::format(R"(,"ridge":{})", Ledger()) : "");
    return true;
  }

  // What breaks after a request was taken is not the client's fault, whatever is wrong.
  ApiError Broken(const std::optional<Error>& error) const {
    ApiError told{.status = 500, .message = "the computation failed", .type = "server_error"};
    if (!error) return told;
    if (ApiError own = ToApi(*error, form_.prompt_field); own.status >= 429) return own;
    told.message = error->Message();
    return told;
  }

  bool Break(const ApiError& error, Response& response, std::string& out) {
    if (form_.stream) {
      out += "data: " + ErrorBody(error) + "\n\ndata: [DONE]\n\n";
    } else {
      response = ErrorReply(error).response;
    }
    return false;
  }

  void End(std::string& out) {
    if (form_.include_usage) Chunk(out, "", fmt::format(R"(,"usage":{},"ridge":{})", Usage(), Ledger()));
    out += "data: [DONE]\n\n";
  }

  std::string Whole() const {
    std::string body = head_;
    for (size_t i = 0; i < choices_.size(); i++) {
      const Choice& choice = choices_[i];
      const std::string logprobs = form_.logprobs ? choice.logprobs.Whole() : "null";
      const std::string text = Quoted(Echo(i) == nullptr ? choice.text : *Echo(i) + choice.text);
      if (i > 0) body += ",";
      if (form_.chat) {
        fmt::format_to(
            std::back_inserter(body),
            R"({{"index":{},"message":{{"role":"assistant","content":{}}},"logprobs":{},"finish_reason":"{}"}})", i,
            text, logprobs, choice.finish);
      } else {
        fmt::format_to(std::back_inserter(body), R"({{"index":{},"text":{},"logprobs":{},"finish_reason":"{}"}})", i,
                       text, logprobs, choice.finish);
      }
    }
    return fmt::format(R"({}],"usage":{},"ridge":{}}})", body, Usage(), Ledger());
  }

  // A prompt counts once, however many answers it has.
  template <class Get>
  int64_t SumOfPrompts(Get get) const {
    int64_t sum = 0;
    for (size_t i = 0; i < choices_.size(); i += static_cast<size_t>(form_.n))
      sum += get(choices_[i].stream->receipt());
    return sum;
  }
  template <class Value, class Get>
  Value Sum(Get get) const {
    Value sum = 0;
    for (const Choice& choice : choices_) sum += get(choice.stream->receipt());
    return sum;
  }

  std::string Usage() const {
    const int64_t prompt = SumOfPrompts([](const Receipt& r) { return r.prompt_n; });
    const int64_t cached = SumOfPrompts([](const Receipt& r) { return r.cache_n; });
    const auto answer = Sum<int64_t>([](const Receipt& r) { return r.predicted_n; });
    return fmt::format(
        R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{}}}}})",
        prompt, answer, prompt + answer, cached);
  }

  std::string Ledger() const {
    std::vector<Receipt> receipts;
    for (const Choice& choice : choices_) {
      receipts.push_back(choice.stream->receipt());
      // Of an answer in one piece, or behind an echo, no client sees a first text.
      if (!first_ || &choice != &choices_[first_->choice]) receipts.back().first_text.reset();
    }
    if (first_ && receipts[first_->choice].first_text) Complete(*receipts[first_->choice].first_text);
    Json ledger = service::ReceiptJson(service::AtOnce(receipts, static_cast<size_t>(form_.n)));
    ledger["seed"] = static_cast<int64_t>(form_.seed);  // as a request may give it: -1 is not 2^64 - 1
    return ledger.dump();
  }

  // What HTTP adds, before and behind the service.
  void Complete(service::FirstText& text) const {
    const auto ms = [](Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); };
    text.receive_ms = ms(text.submitted - form_.arrived);
    text.deliver_ms = ms(first_->placed - text.chosen) - text.detokenize_ms;
    if (first_->written) text.write_ms = ms(*first_->written - first_->placed);
    text.total_ms = ms(first_->written.value_or(first_->placed) - form_.arrived);
  }

  const Context* context_;
  AnswerForm form_;
  std::vector<Choice> choices_;
  std::vector<PromptScores> prompts_;  // where their log-probabilities were asked for
  std::optional<FirstOut> first_;
  std::string head_;
  size_t open_ = 0;
  bool begun_ = false;
};

}  // namespace

Reply NewAnswer(const Context& context, AnswerForm form, std::vector<std::unique_ptr<TextStream>> streams) {
  Reply reply;
  reply.streamed = form.stream;
  if (form.stream) {
    reply.response.content_type = "text/event-stream; charset=utf-8";
    reply.response.headers.emplace_back("Cache-Control", "no-cache");
    reply.response.headers.emplace_back("X-Accel-Buffering", "no");  // a proxy that collects a stream defeats it
  }
  reply.rest = std::make_unique<Answer>(context, std::move(form), std::move(streams));
  return reply;
}

}  // namespace ridge::server
