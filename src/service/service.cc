#include "service/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "backend/probe.h"
#include "base/planted.h"
#include "base/quantity.h"
#include "base/topology.h"
#include "gguf/gguf.h"
#include "graph/graph.h"
#include "quant/quant.h"
#include "service/cache_key.h"
#include "service/draft_model.h"
#include "service/guard.h"
#include "text/template_variables.h"

namespace ridge::service {
namespace {

using engine::Clock;
using engine::FinishReason;
using engine::Outbox;

constexpr char kTemplateKey[] = "tokenizer.chat_template";
constexpr char kThinking[] = "<think>";  // begins what templates leave out of later turns

double MsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

std::optional<std::string> PieceOf(const text::Tokenizer& tokenizer, std::optional<TokenId> id) {
  if (!id) return std::nullopt;
  return std::string(tokenizer.Piece(*id));
}

// What steps read, from the shapes of the graph and the sizes of the backend's layout; see graph::Load.
engine::StepBytes StepBytesOf(const Runtime& runtime) {
  const graph::Graph& graph = runtime.model().graph();
  const backend::StateOptions& state = runtime.state_options();
  const auto formats = backend::CpuFormats("", 256);
  const auto layout_bytes = [&](const graph::Weight& weight) {
    double ratio = 1;  // a type without a kernel keeps its rows as they are
    for (const backend::FormatProbe& format : *formats) {
      if (format.type == quant::Get(weight.type).name) ratio = format.layout_ratio;
    }
    return ratio * static_cast<double>(weight.data.size());
  };
  engine::StepBytes bytes{.state = static_cast<double>(runtime.model().StateBytes())};
  for (const graph::Op& op : graph.ops()) {
    if (op.kind == graph::OpKind::kMatMul) {
      const bool head = graph.value(op.out).rows == graph::Rows::kLogits;
      (head ? bytes.head : bytes.weights) += layout_bytes(graph.weight(op.weights[0]));
    } else if (op.kind == graph::OpKind::kExperts) {
      bytes.expert_share = static_cast<double>(op.experts.used) / static_cast<double>(op.experts.experts);
      for (const graph::WeightId id : op.weights) bytes.experts += layout_bytes(graph.weight(id));
    } else {
      bytes.per_token += graph::CostOf(graph, op, {.context = 0, .sequences = 0}).bytes_read;
    }
  }
  for (const graph::KvLayer& layer : graph.kv_layers()) {
    bytes.AddKv(layer.window, static_cast<double>(layer.kv_heads * layer.head_dim) *
                                  (backend::ValueBytes(state.k_type) + backend::ValueBytes(state.v_type)));
  }
  return bytes;
}

// Texts that the whole rest was searched for in vain: after so many the template leaves out or changes too much for a search to be worth it.
constexpr int64_t kMostMissing = 64;

// Where the text of each message ends in the rendered conversation. A template may trim a text; of one that is not there the end is that of the
// message before.
std::vector<size_t> MessageEnds(std::string_view rendered, const nlohmann::ordered_json& messages) {
  std::vector<size_t> ends;
  size_t from = 0;
  int64_t missing = 0;
  for (const auto& message : messages) {
    const auto content = message.is_object() ? message.find("content") : message.end();
    if (message.is_object() && content != message.end() && content->is_string()) {
      std::string_view text = content->get_ref<const std::string&>();
      const size_t first = text.find_first_not_of(" \t\r\n");
      text = first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r\n") + 1 - first);
      const bool look = !text.empty() && missing < kMostMissing;
      const size_t at = look ? rendered.find(text, from) : std::string_view::npos;
      if (at != std::string_view::npos)
        from = at + text.size();
      else if (!text.empty())
        missing++;
    }
    ends.push_back(from);
  }
  return ends;
}

}  // namespace

// ---- TextStream

TextStream::TextStream(engine::Engine* engine, const text::Tokenizer& tokenizer, std::vector<std::string> stop)
    : engine_(engine), decoder_(tokenizer), matcher_(std::move(stop)), tokenizer_(&tokenizer) {}

TextStream::~TextStream() {
  if (!ended_ && ticket_.outbox) Cancel();
}

void TextStream::Cancel() { engine_->Cancel(ticket_.id); }

TextStream::Got TextStream::Next(std::chrono::milliseconds timeout, TextEvent& event) {
  event = {};
  if (ended_) return Got::kEnd;
  for (engine::TokenEvent token;;) {
    switch (ticket_.outbox->Next(timeout, token)) {
      case Outbox::Got::kNothing: return Got::kNothing;
      case Outbox::Got::kEnd: return End(event);
      case Outbox::Got::kToken:
        if (matcher_.matched()) continue;  // computed before the engine heard of the stop
        return Take(token, event);
    }
  }
}

// Moves out the tokens whose text is shown by now; of a text that a stop string cut, also the token that the cut goes through.
void TextStream::Release(TextEvent& event) {
  const auto shown = [this](const Held& held) {
    if (matcher_.matched() && held.scored.begin_bytes < shown_bytes_) return true;
    return held.whole && held.end_bytes <= shown_bytes_;
  };
  for (; !held_.empty() && shown(held_.front()); held_.pop_front())
    event.scored.push_back(std::move(held_.front().scored));
}

TextStream::Got TextStream::Take(engine::TokenEvent& token, TextEvent& event) {
  if (token.prompt) {
    event.prompt.push_back({token.token, *token.logprob, std::move(token.top)});
    return Got::kEvent;
  }
  const Clock::time_point begin = Clock::now();
  const bool visible = ticket_.outbox->finished();
  SleepIfPlanted(Stage::kDetokenize);
  ids_.push_back(token.token);
  event.token = token.token;
  at_end_token_ = token.stop;
  if (!token.stop) {
    const size_t before = decoded_bytes_;
    const std::string decoded = decoder_.Push(token.token);
    decoded_bytes_ += decoded.size();
    event.text = matcher_.Push(decoded);
    shown_bytes_ += event.text.size();
    if (token.logprob) {
      held_.push_back({.scored = {token.token, *token.logprob, std::move(token.top), before}});
      if (!decoder_.pending()) {
        for (Held& held : held_) {
          if (!std::exchange(held.whole, true)) held.end_bytes = decoded_bytes_;
        }
      }
      Release(event);
    }
  }
  if (!receipt_.ttft_ms) receipt_.ttft_ms = std::chrono::duration<double, std::milli>(token.at - submitted_).count();
  receipt_.predicted_n++;
  receipt_.predicted_ms += token.decode_ms;
  receipt_.draft_ms += token.draft_ms;
  if (token.decode_ms > 0) receipt_.decode_steps++;
  receipt_.sample_ms += token.sample_ms;
  last_chosen_ = token.at;
  const double ms = MsSince(begin);
  NoteFirstText(event, ms);
  receipt_.detokenize_ms += ms;
  if (visible) receipt_.detokenize_after_ms += ms;
  if (matcher_.matched()) Cancel();
  return Got::kEvent;
}

// What of it the engine knows, queue_ms and prompt_ms, comes with the end.
void TextStream::NoteFirstText(const TextEvent& event, double detokenize_ms) {
  if (event.text.empty() || receipt_.first_text) return;
  const Clock::time_point now = Clock::now();
  const auto ms = [](Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); };
  receipt_.first_text = {.submitted = submitted_,
                         .chosen = last_chosen_,
                         .receive_ms = std::nullopt,
                         .tokenize_ms = receipt_.tokenize_ms,
                         .decode_ms = receipt_.predicted_ms,
                         .sample_ms = receipt_.sample_ms,
                         .detokenize_ms = detokenize_ms,
                         .deliver_ms = ms(now - last_chosen_) - detokenize_ms,
                         .write_ms = std::nullopt,
                         .total_ms = ms(now - submitted_)};
}

// The message of a prompt's token. What stands between two texts belongs to the second, but what ends a text to the first.
std::optional<int64_t> TextStream::MessageAt(int64_t token) const {
  if (message_ends_.empty() || token > static_cast<int64_t>(prompt_ids_.size())) return std::nullopt;
  const size_t skip = bos_added_ && token > 0 ? 1 : 0;
  const auto before = std::span<const TokenId>(prompt_ids_).first(static_cast<size_t>(token)).subspan(skip);
  const size_t at = tokenizer_->Decode(before, /*special=*/true).size();
  const auto end = std::ranges::lower_bound(message_ends_, at);
  const auto last = static_cast<int64_t>(message_ends_.size()) - 1;
  return std::min<int64_t>(end - message_ends_.begin(), last);
}

TextStream::Got TextStream::End(TextEvent& event) {
  const Clock::time_point begin = Clock::now();
  if (!flushed_) {
    flushed_ = true;
    const std::string decoded = decoder_.Flush();
    decoded_bytes_ += decoded.size();
    event.text = matcher_.Push(decoded);
    if (!matcher_.matched()) event.text += matcher_.Flush();
    shown_bytes_ += event.text.size();
    for (Held& held : held_) {
      if (!std::exchange(held.whole, true)) held.end_bytes = decoded_bytes_;
    }
    Release(event);
    const double ms = MsSince(begin);
    NoteFirstText(event, ms);
    receipt_.detokenize_ms += ms;
    receipt_.detokenize_after_ms += ms;
    if (!event.text.empty() || !event.scored.empty()) return Got::kEvent;
  }
  ended_ = true;
  const engine::Summary& summary = ticket_.outbox->summary();
  receipt_.reason = matcher_.matched() ? FinishReason::kStop : summary.reason;
  receipt_.queue_ms = summary.queue_ms;
  receipt_.prompt_ms = summary.prompt_ms;
  if (receipt_.first_text) {
    receipt_.first_text->queue_ms = summary.queue_ms;
    receipt_.first_text->prompt_ms = summary.prompt_ms;
  }
  receipt_.prompt_chunks = summary.prompt_chunks;
  receipt_.cache_n = summary.cached_tokens;
  receipt_.predicted_ttft_ms = summary.predicted_ttft_ms;
  receipt_.cache_pinned_n = summary.pinned_tokens;
  receipt_.cache_miss = summary.cache_miss;
  if (summary.cache_miss && summary.cache_miss->reason != cache::MissReason::kNone)
    receipt_.cache_miss_message = MessageAt(summary.cache_miss->at_token);
  receipt_.nan_logits = summary.nan_logits;
  receipt_.preemptions = summary.preemptions;
  receipt_.drafts_proposed = summary.drafts_proposed;
  receipt_.drafts_accepted = summary.drafts_accepted;
  receipt_.speculation_gain = summary.speculation_gain;
  receipt_.kv_pages = summary.kv_pages;
  receipt_.computed_n = summary.computed_tokens;
  receipt_.bytes_read = summary.bytes_read;
  receipt_.total_ms = std::chrono::duration<double, std::milli>(summary.at - submitted_).count();
  if (receipt_.reason == FinishReason::kFailed) error_ = summary.error;
  return Got::kEnd;
}

// ---- Service

Result<std::unique_ptr<Service>> Service::Create(std::unique_ptr<Runtime> runtime, const ServiceOptions& options,
                                                 std::unique_ptr<Runtime> draft) {
  const Clock::time_point begin = Clock::now();
  std::unique_ptr<Service> service(new Service);
  if (runtime->model().output() == model::ModelOutput::kEmbeddings) {
    return Fail(Code::kUnsupported, "the model gives embeddings, not text")
        .Where("general.architecture")
        .Found(runtime->model().config().architecture)
        .Remedy("use ridge embed");
  }
  service->runtime_ = std::move(runtime);
  service->draft_ = std::move(draft);
  const Runtime& loaded = *service->runtime_;
  const gguf::File& file = loaded.model().file();
  auto tokenizer = text::Tokenizer::FromMetadata(file.metadata());
  if (!tokenizer) {
    tokenizer.error().where = file.path() + (tokenizer.error().where.empty() ? "" : ": " + tokenizer.error().where);
    return std::unexpected(std::move(tokenizer).error());
  }
  service->tokenizer_ = std::move(*tokenizer);
  const int64_t vocab = loaded.model().graph().vocab();
  for (size_t id = 0; id < service->tokenizer_->vocab_size(); id++) {
    if (service->tokenizer_->IsEog(static_cast<TokenId>(id))) service->end_tokens_.push_back(static_cast<TokenId>(id));
  }
  if (file.metadata().Find(kTemplateKey) != nullptr) {
    RIDGE_ASSIGN_OR_RETURN(std::string source, file.metadata().Get<std::string>(kTemplateKey));
    service->has_template_ = true;
    service->chat_ = text::ChatTemplate::Parse(std::move(source));
  }
  backend::StateOptions state = loaded.state_options();
  state.resident = options.resident_pool;
  engine::EngineOptions engine_options{.vocab = vocab,
                                       .context_tokens = loaded.context_tokens(),
                                       .step_tokens = loaded.chunk_tokens(),
                                       .max_running = options.max_running,
                                       .max_logit_rows = loaded.logit_rows(),
                                       .max_waiting = options.max_waiting,
                                       .prefix_cache = options.prefix_cache,
                                       .checkpoints = loaded.memory().checkpoints,
                                       .draft_slots = loaded.memory().draft_slots,
                                       .thinking = service->tokenizer_->Find(kThinking).value_or(-1),
                                       .state = state,
                                       .bytes = StepBytesOf(loaded)};
  if (const Runtime* second = service->draft_.get()) {
    RIDGE_RETURN_IF_ERROR(CheckDraftModel(loaded.model(), second->model()));
    engine_options.draft_program = &second->program();
    engine_options.draft_vocab = second->model().graph().vocab();
    engine_options.draft_cost_ratio = static_cast<double>(second->program().weight_bytes()) /
                                      static_cast<double>(std::max<size_t>(1, loaded.program().weight_bytes()));
  }
  RIDGE_ASSIGN_OR_RETURN(service->engine_, engine::Engine::Start(&loaded.program(), engine_options));
  service->create_ms_ = MsSince(begin);
  return service;
}

Result<const text::ChatTemplate*> Service::Chat() const {
  if (!has_template_) {
    return Fail(Code::kUnsupported, "the model has no chat template")
        .Where(kTemplateKey)
        .Remedy("complete plain text instead, or use an instruction-tuned model");
  }
  if (!chat_) {
    Error error = chat_.error();
    error.where = kTemplateKey + (error.where.empty() ? std::string() : ", " + error.where);
    return std::unexpected(std::move(error));
  }
  return &**chat_;
}

namespace {

constexpr const char* kKwargs = "template_kwargs";

// The variables that a request adds are not those that it is checked by.
Status CheckKwargs(const nlohmann::ordered_json& kwargs) {
  for (const auto& [name, value] : kwargs.items()) {
    if (text::IsOwnVariable(name)) {
      return Fail(Code::kInvalidArgument, "a variable that is set from the request's other fields and the model")
          .Where(kKwargs)
          .Found("\"" + name + "\"")
          .Expected("other names");
    }
  }
  return {};
}

}  // namespace

Result<Service::Prompt> Service::Tokenize(const TextRequest& request) const {
  SleepIfPlanted(Stage::kTokenize);
  Prompt prompt;
  std::string text = request.prompt;
  std::vector<size_t> plain;
  bool add_special = true;
  const bool chat = request.messages != nullptr;
  if (chat) {
    RIDGE_ASSIGN_OR_RETURN(const text::ChatTemplate* chat_template, Chat());
    RIDGE_ASSIGN_OR_RETURN(const Guard guard, Guard::Create(*request.messages, chat_template->source(), *tokenizer_));
    const std::optional<std::string> bos = PieceOf(*tokenizer_, tokenizer_->bos());
    text::TemplateInput input{.messages = &guard.messages(),
                              .add_generation_prompt = true,
                              .kwargs = request.template_kwargs,
                              .bos_token = bos,
                              .eos_token = PieceOf(*tokenizer_, tokenizer_->eos())};
    if (input.kwargs != nullptr) RIDGE_RETURN_IF_ERROR(CheckKwargs(*input.kwargs));
    Result<std::string> rendered = chat_template->Render(input);
    if (!rendered && std::exchange(input.kwargs, nullptr) != nullptr && chat_template->Render(input)) {
      Error& error = rendered.error();  // without them it works
      error.what += fmt::format(" ({})", error.where);
      error.where = kKwargs;
    }
    RIDGE_ASSIGN_OR_RETURN(text, std::move(rendered));
    plain = guard.TakeMarks(text);
    // The template may write BOS itself; a second one, and none, give worse answers.
    add_special = !bos || bos->empty() || !text.starts_with(*bos);
  }
  auto ids = tokenizer_->Encode(text, {.add_special = add_special,
                                       .parse_special = chat,
                                       .plain_at = plain,
                                       .most_tokens = static_cast<size_t>(runtime_->context_tokens())});
  if (!ids) {
    Error& error = ids.error();
    if (error.code == Code::kOutOfRange) {
      error.what = "the prompt does not fit the context";
      error.remedy = "shorten the prompt or give more context with -c";
    }
    return std::unexpected(std::move(error));
  }
  prompt.ids = std::move(*ids);
  if (chat) prompt.message_ends = MessageEnds(text, *request.messages);
  // The answer goes on from here: nothing closes the text.
  if (add_special && tokenizer_->add_eos() && !prompt.ids.empty()) prompt.ids.pop_back();
  prompt.bos_added = add_special && !prompt.ids.empty() && tokenizer_->bos() == prompt.ids.front();
  return prompt;
}

Error Service::BlameMessage(Error error, const TextRequest& request) const {
  if (request.messages == nullptr || error.code != Code::kOutOfRange) return error;
  // In bytes: to count the tokens of all of them would take longer than to compute what does fit.
  size_t longest = 0;
  std::string_view text;
  for (size_t i = 0; i < request.messages->size(); i++) {
    const auto& message = (*request.messages)[i];
    if (!message.is_object() || !message.contains("content") || !message["content"].is_string()) continue;
    const std::string_view content = message["content"].get_ref<const std::string&>();
    if (content.size() > text.size()) longest = i, text = content;
  }
  if (text.empty()) return error;
  const auto ids =
      tokenizer_->Encode(text, {.add_special = false, .most_tokens = static_cast<size_t>(runtime_->context_tokens())});
  if (ids) {
    error.where = fmt::format("messages[{}] is the longest, {}", longest, Count(ids->size(), "token"));
  } else if (ids.error().code == Code::kOutOfRange) {
    error.where = fmt::format("messages[{}] is the longest, {}", longest, ids.error().found);
  }
  return error;
}

Result<engine::SavedCache> Service::SaveCache(const std::string& path) {
  if (cache_key_.empty()) cache_key_ = CacheKeyOf(*runtime_);
  return engine_->SaveCache(path, cache_key_);
}

Result<engine::SavedCache> Service::RestoreCache(const std::string& path) {
  if (cache_key_.empty()) cache_key_ = CacheKeyOf(*runtime_);
  return engine_->RestoreCache(path, cache_key_);
}

Result<std::unique_ptr<TextStream>> Service::Submit(const TextRequest& request) {
  RIDGE_ASSIGN_OR_RETURN(auto streams, SubmitGroup(request, 1));
  return std::move(streams.front());
}

Result<std::vector<std::unique_ptr<TextStream>>> Service::SubmitGroup(const TextRequest& request, int64_t n) {
  const Clock::time_point begin = Clock::now();
  Prompt prompt{.ids = request.prompt_ids};
  std::vector<TokenId>& ids = prompt.ids;
  if (ids.empty()) {
    if (request.messages == nullptr && request.prompt.empty())
      return Fail(Code::kInvalidArgument, "the prompt is empty");
    Result<Prompt> tokenized = Tokenize(request);
    if (!tokenized) return std::unexpected(BlameMessage(std::move(tokenized).error(), request));
    prompt = std::move(*tokenized);
    if (ids.empty()) return Fail(Code::kInvalidArgument, "the prompt gives no tokens");
  }
  const double tokenize_ms = MsSince(begin);
  const auto prompt_n = static_cast<int64_t>(ids.size());
  const int64_t context = runtime_->request_tokens();
  if (request.whole_answer && request.max_tokens > 0 && prompt_n < context && prompt_n + request.max_tokens > context) {
    return std::unexpected(Error{
        .code = Code::kOutOfRange,
        .what = "the prompt and the answer do not fit the context",
        .found = fmt::format("{} of prompt and {} asked for", Count(prompt_n, "token"), request.max_tokens),
        .expected = fmt::format("{} at most", Count(context, "token")),
        .remedy = context < runtime_->context_tokens() ? "ask for fewer, or give a larger KV pool with --kv-memory"
                                                       : "ask for fewer, or give more context with -c"});
  }
  std::optional<Clock::time_point> deadline;
  if (request.deadline_s)
    deadline = begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*request.deadline_s));
  auto tickets = engine_->SubmitGroup({.prompt = ids,
                                       .max_tokens = request.max_tokens,
                                       .stop_tokens = request.ignore_end ? std::vector<TokenId>() : end_tokens_,
                                       .sampling = request.sampling,
                                       .logprobs = request.logprobs,
                                       .prompt_logprobs = request.prompt_logprobs,
                                       .cache_salt = request.cache_salt,
                                       .pin_s = request.cache_pin_s,
                                       .use_cache = request.use_cache,
                                       .priority = request.priority,
                                       .tenant = request.tenant,
                                       .deadline = deadline,
                                       .speculation = request.speculation,
                                       .notify = request.notify},
                                      n);
  if (!tickets) return std::unexpected(BlameMessage(std::move(tickets).error(), request));
  std::vector<std::unique_ptr<TextStream>> streams;
  try {
    streams.reserve(tickets->size());
    for (engine::Ticket& ticket : *tickets) {
      std::unique_ptr<TextStream> stream(new TextStream(engine_.get(), *tokenizer_, request.stop));
      stream->submitted_ = begin;
      stream->receipt_.prompt_n = prompt_n;
      stream->receipt_.tokenize_ms = tokenize_ms;
      stream->ticket_ = std::move(ticket);
      streams.push_back(std::move(stream));
    }
  } catch (const std::bad_alloc&) {  // they were accepted, but nobody would read them
    for (const engine::Ticket& ticket : *tickets) engine_->Cancel(ticket.id);
    throw;
  }
  streams.front()->message_ends_ = std::move(prompt.message_ends);
  streams.front()->bos_added_ = prompt.bos_added;
  streams.front()->prompt_ids_ = std::move(ids);
  return streams;
}

}  // namespace ridge::service
