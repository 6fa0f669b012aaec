// include/ridge/ridge_c.h over ridge.h: arguments are checked and copied, errors become structs of the caller's, exceptions end here.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "ridge/ridge.h"
#include "ridge/ridge_c.h"

struct ridge_model {
  ridge::Model model;
  ridge::ModelInfo info;
  std::vector<const char*> notes;  // of info
};

struct ridge_stream {
  ridge::Stream stream;
  ridge::Event event = {};
  std::vector<ridge_token_logprob> logprobs = {}, prompt_logprobs = {};  // views into event
  std::vector<std::vector<ridge_top_logprob>> tops = {};
};

struct ridge_embedder {
  ridge::Embedder embedder;
};

namespace {

using ridge::Code;
using ridge::Error;
using ridge::Fail;
using ridge::Result;
using ridge::Status;

static_assert(static_cast<int>(Code::kUsage) + 1 == RIDGE_USAGE &&
              static_cast<int>(Code::kOutOfRange) + 1 == RIDGE_OUT_OF_RANGE &&
              static_cast<int>(Code::kInternal) + 1 == RIDGE_INTERNAL);
static_assert(static_cast<int>(ridge::FinishReason::kFailed) == RIDGE_FINISH_FAILED);

ridge_status StatusOf(Code code) { return static_cast<ridge_status>(static_cast<int>(code) + 1); }

// The struct and its strings in one piece. Without memory for it there is only the status.
ridge_error* NewError(const Error& error) noexcept {
  try {
    const std::string parts[] = {error.what, error.where, error.found, error.expected, error.remedy, error.Message()};
    size_t bytes = sizeof(ridge_error);
    for (const std::string& part : parts) bytes += part.size() + 1;
    char* memory = static_cast<char*>(::operator new(bytes));
    ridge_error* made = new (memory) ridge_error{};
    made->code = StatusOf(error.code);
    char* at = memory + sizeof(ridge_error);
    const char** members[] = {&made->what, &made->where, &made->found, &made->expected, &made->remedy, &made->message};
    for (size_t i = 0; i < std::size(parts); i++) {
      std::memcpy(at, parts[i].c_str(), parts[i].size() + 1);
      *members[i] = at;
      at += parts[i].size() + 1;
    }
    return made;
  } catch (const std::exception&) {
    return nullptr;
  }
}

// Every function of the API runs in here.
template <class Function>
ridge_status Call(ridge_error** error, Function function) noexcept {
  if (error != nullptr) *error = nullptr;
  Status done;
  try {
    done = function();
  } catch (const std::bad_alloc&) {
    done = Fail(Code::kResourceExhausted, "out of memory");
  } catch (const std::exception& fault) {
    done = Fail(Code::kInternal, "an exception reached the API").Found(fault.what());
  } catch (...) {
    done = Fail(Code::kInternal, "an exception reached the API");
  }
  if (done) return RIDGE_OK;
  if (error != nullptr) *error = NewError(done.error());
  return StatusOf(done.error().code);
}

Status NotNull(const void* pointer, const char* name) {
  if (pointer != nullptr) return {};
  return Fail(Code::kInvalidArgument, "the argument is NULL").Where(name);
}

// An array may be NULL when it has no elements.
Status Array(const void* pointer, size_t count, const char* name) {
  return count == 0 ? Status() : NotNull(pointer, name);
}

Status CheckStruct(size_t found, size_t expected, const char* name) {
  if (found == expected) return {};
  return Fail(Code::kInvalidArgument, "the struct is not one of this version")
      .Where(fmt::format("{}.struct_bytes", name))
      .Found(std::to_string(found))
      .Expected(std::to_string(expected))
      .Remedy(fmt::format("begin with ridge_{}_default()", name));
}

std::string Text(const char* text) { return text == nullptr ? std::string() : std::string(text); }

Result<bool> Flag(int value, const char* name) {
  if (value == 0 || value == 1) return value == 1;
  return Fail(Code::kInvalidArgument, "wrong value").Where(name).Found(std::to_string(value)).Expected("0 or 1");
}

Result<ridge::LoadOptions> OptionsOf(const ridge_load_options* o) {
  RIDGE_RETURN_IF_ERROR(NotNull(o, "options"));
  RIDGE_RETURN_IF_ERROR(CheckStruct(o->struct_bytes, sizeof(*o), "load_options"));
  RIDGE_RETURN_IF_ERROR(NotNull(o->path, "options.path"));
  ridge::LoadOptions options{.path = o->path,
                             .threads = o->threads,
                             .isa = Text(o->isa),
                             .context_tokens = o->context_tokens,
                             .chunk_tokens = o->chunk_tokens,
                             .running = o->running,
                             .waiting = o->waiting,
                             .kv_bytes = o->kv_bytes,
                             .page_tokens = o->page_tokens,
                             .panel_cache_dir = Text(o->panel_cache_dir)};
  if (o->k_type != nullptr) options.k_type = o->k_type;
  if (o->v_type != nullptr) options.v_type = o->v_type;
  RIDGE_ASSIGN_OR_RETURN(options.prefix_cache, Flag(o->prefix_cache, "options.prefix_cache"));
  RIDGE_ASSIGN_OR_RETURN(options.speculation, Flag(o->speculation, "options.speculation"));
  return options;
}

Result<ridge::Request> RequestOf(const ridge_request* r) {
  RIDGE_RETURN_IF_ERROR(NotNull(r, "request"));
  RIDGE_RETURN_IF_ERROR(CheckStruct(r->struct_bytes, sizeof(*r), "request"));
  RIDGE_RETURN_IF_ERROR(Array(r->prompt_ids, r->n_prompt_ids, "request.prompt_ids"));
  RIDGE_RETURN_IF_ERROR(Array(r->messages, r->n_messages, "request.messages"));
  RIDGE_RETURN_IF_ERROR(Array(r->stop, r->n_stop, "request.stop"));
  const ridge_sampling& s = r->sampling;
  RIDGE_RETURN_IF_ERROR(Array(s.logit_bias, s.n_logit_bias, "request.sampling.logit_bias"));
  ridge::Request request{.prompt = Text(r->prompt),
                         .template_kwargs = Text(r->template_kwargs),
                         .max_tokens = r->max_tokens,
                         .logprobs = r->logprobs,
                         .prompt_logprobs = r->prompt_logprobs,
                         .cache_salt = Text(r->cache_salt),
                         .priority = r->priority,
                         .tenant = Text(r->tenant),
                         .sampling = {.temperature = s.temperature,
                                      .top_k = s.top_k,
                                      .top_p = s.top_p,
                                      .min_p = s.min_p,
                                      .typical_p = s.typical_p,
                                      .top_n_sigma = s.top_n_sigma,
                                      .xtc_probability = s.xtc_probability,
                                      .xtc_threshold = s.xtc_threshold,
                                      .repeat_last_n = s.repeat_last_n,
                                      .repeat_penalty = s.repeat_penalty,
                                      .presence_penalty = s.presence_penalty,
                                      .frequency_penalty = s.frequency_penalty,
                                      .dry_multiplier = s.dry_multiplier,
                                      .dry_base = s.dry_base,
                                      .dry_allowed_length = s.dry_allowed_length,
                                      .dry_penalty_last_n = s.dry_penalty_last_n,
                                      .seed = s.seed}};
  RIDGE_ASSIGN_OR_RETURN(request.ignore_end, Flag(r->ignore_end, "request.ignore_end"));
  RIDGE_ASSIGN_OR_RETURN(request.use_cache, Flag(r->use_cache, "request.use_cache"));
  if (r->n_prompt_ids > 0) request.prompt_ids.assign(r->prompt_ids, r->prompt_ids + r->n_prompt_ids);
  for (size_t i = 0; i < r->n_messages; i++) {
    RIDGE_RETURN_IF_ERROR(NotNull(r->messages[i].role, "request.messages.role"));
    RIDGE_RETURN_IF_ERROR(NotNull(r->messages[i].content, "request.messages.content"));
    request.messages.push_back({.role = r->messages[i].role, .content = r->messages[i].content});
  }
  for (size_t i = 0; i < r->n_stop; i++) {
    RIDGE_RETURN_IF_ERROR(NotNull(r->stop[i], "request.stop"));
    request.stop.emplace_back(r->stop[i]);
  }
  for (size_t i = 0; i < s.n_logit_bias; i++)
    request.sampling.logit_bias.emplace_back(s.logit_bias[i].token, s.logit_bias[i].bias);
  if (r->notify != nullptr) request.notify = [notify = r->notify, data = r->notify_user_data] { notify(data); };
  return request;
}

ridge::Stream::Got Read(ridge_stream& stream, int64_t timeout_ms, ridge_event& event) {
  const ridge::Stream::Got got = stream.stream.Next(stream.event, timeout_ms);
  // Inner arrays keep their place when the outer ones grow.
  stream.tops.clear();
  const auto view = [&stream](const std::vector<ridge::TokenLogprob>& from, std::vector<ridge_token_logprob>& to) {
    to.clear();
    for (const ridge::TokenLogprob& scored : from) {
      std::vector<ridge_top_logprob>& top = stream.tops.emplace_back();
      for (const auto& [token, logprob] : scored.top) top.push_back({.token = token, .logprob = logprob});
      to.push_back({.token = scored.token, .logprob = scored.logprob, .top = top.data(), .n_top = top.size()});
    }
  };
  view(stream.event.logprobs, stream.logprobs);
  view(stream.event.prompt_logprobs, stream.prompt_logprobs);
  event = {.text = stream.event.text.c_str(),
           .text_bytes = stream.event.text.size(),
           .token = stream.event.token,
           .logprobs = stream.logprobs.data(),
           .n_logprobs = stream.logprobs.size(),
           .prompt_logprobs = stream.prompt_logprobs.data(),
           .n_prompt_logprobs = stream.prompt_logprobs.size()};
  return got;
}

Status FailureOf(const ridge_stream& stream) {
  const std::optional<Error> error = stream.stream.error();
  return error ? Status(std::unexpected(*error)) : Status();
}

}  // namespace

extern "C" {

const char* ridge_status_name(ridge_status status) {
  if (status == RIDGE_OK) return "ok";
  if (status < RIDGE_OK || status > RIDGE_INTERNAL) return "unknown";
  return ridge::Name(static_cast<Code>(static_cast<int>(status) - 1)).data();  // of a literal
}

void ridge_error_free(ridge_error* error) { ::operator delete(error); }

const char* ridge_version(void) { return RIDGE_VERSION; }

ridge_load_options ridge_load_options_default(void) {
  const ridge::LoadOptions o;
  ridge_load_options out = {};
  out.struct_bytes = sizeof(out);
  out.threads = o.threads;
  out.context_tokens = o.context_tokens;
  out.chunk_tokens = o.chunk_tokens;
  out.running = o.running;
  out.waiting = o.waiting;
  out.page_tokens = o.page_tokens;
  out.kv_bytes = o.kv_bytes;
  out.prefix_cache = o.prefix_cache ? 1 : 0;
  out.speculation = o.speculation ? 1 : 0;
  return out;
}

ridge_request ridge_request_default(void) {
  const ridge::Request r;
  const ridge::Sampling& s = r.sampling;
  ridge_request out = {};
  out.struct_bytes = sizeof(out);
  out.max_tokens = r.max_tokens;
  out.logprobs = r.logprobs;
  out.prompt_logprobs = r.prompt_logprobs;
  out.use_cache = r.use_cache ? 1 : 0;
  out.sampling = {.temperature = s.temperature,
                  .top_k = s.top_k,
                  .top_p = s.top_p,
                  .min_p = s.min_p,
                  .typical_p = s.typical_p,
                  .top_n_sigma = s.top_n_sigma,
                  .xtc_probability = s.xtc_probability,
                  .xtc_threshold = s.xtc_threshold,
                  .repeat_last_n = s.repeat_last_n,
                  .repeat_penalty = s.repeat_penalty,
                  .presence_penalty = s.presence_penalty,
                  .frequency_penalty = s.frequency_penalty,
                  .dry_multiplier = s.dry_multiplier,
                  .dry_base = s.dry_base,
                  .dry_allowed_length = s.dry_allowed_length,
                  .dry_penalty_last_n = s.dry_penalty_last_n,
                  .logit_bias = nullptr,
                  .n_logit_bias = 0,
                  .seed = s.seed};
  return out;
}

ridge_status ridge_model_load(const ridge_load_options* options, ridge_model** model, ridge_error** error) {
  if (model != nullptr) *model = nullptr;
  return Call(error, [&]() -> Status {
    RIDGE_RETURN_IF_ERROR(NotNull(model, "model"));
    RIDGE_ASSIGN_OR_RETURN(const ridge::LoadOptions asked, OptionsOf(options));
    RIDGE_ASSIGN_OR_RETURN(ridge::Model loaded, ridge::Model::Load(asked));
    auto made = std::make_unique<ridge_model>();
    made->info = loaded.info();
    for (const std::string& note : made->info.notes) made->notes.push_back(note.c_str());
    made->model = std::move(loaded);
    *model = made.release();
    return {};
  });
}

ridge_status ridge_model_close(ridge_model* model, ridge_error** error) {
  return Call(error, [&]() -> Status {
    RIDGE_RETURN_IF_ERROR(NotNull(model, "model"));
    model->model.Close();
    return {};
  });
}

void ridge_model_free(ridge_model* model) { delete model; }

ridge_status ridge_model_get_info(const ridge_model* model, ridge_model_info* info, ridge_error** error) {
  return Call(error, [&]() -> Status {
    RIDGE_RETURN_IF_ERROR(NotNull(model, "model"));
    RIDGE_RETURN_IF_ERROR(NotNull(info, "info"));
    const ridge::ModelInfo& i = model->info;
    *info = {.architecture = i.architecture.c_str(),
             .isa = i.isa.c_str(),
             .threads = i.threads,
             .vocab = i.vocab,
             .context_tokens = i.context_tokens,
             .chunk_tokens = i.chunk_tokens,
             .page_tokens = i.page_tokens,
             .kv_pages = i.kv_pages,
             .kv_bytes = i.kv_bytes,
             .weight_bytes = i.weight_bytes,
             .has_chat_template = i.has_chat_template ? 1 : 0,
             .notes = model->notes.data(),
             .n_notes = model->notes.size()};
    return {};
  });
}

ridge_status ridge_tokenize(const ridge_model* model, const char* text, int add_special, int32_t* ids, size_t capacity,
                            size_t* count, ridge_error** error) {
  return Call(error, [&]() -> Status {
    RIDGE_RETURN_IF_ERROR(NotNull(model, "model"));
    RIDGE_RETURN_IF_ERROR(NotNull(text, "text"));
    RIDGE_RETURN_IF_ERROR(NotNull(count, "count"));
    RIDGE_RETURN_IF_ERROR(Array(ids, capacity, "ids"));
    RIDGE_ASSIGN_OR_RETURN(const bool special, Flag(add_special, "add_special"));
    RIDGE_ASSIGN_OR_RETURN(const std::vector<int32_t> found, model->model.Tokenize(text, special));
    std::copy_n(found.begin(), std::min(capacity, found.size()), ids);
    *count = found.size();
    return {};
  });
}

ridge_status ridge_detokenize(const ridge_model* model, const int32_t* ids, size_t count, char* text, size_t capacity,
                              size_t* bytes, ridge_error** error) {
  return Call(error, [&]() -> Status {
    RIDGE_RETURN_IF_ERROR(NotNull(model, "model"));
    RIDGE_RETURN_IF_ERROR(Array(ids, count, "ids"));
    RIDGE_RETURN_IF_ERROR(Array(text, capacity, "text"));
    RIDGE_RETURN_IF_ERROR(NotNull(bytes, "bytes"));
    const std::string found = model->model.Detokenize(std::vector<int32_t>(ids, ids + count));
    if (capacity > 0) {
      const size_t n = std::min(capacity - 1, found.size());
      std::memcpy(text, found.data(), n);
      text[n] = '\0';
    }
    *bytes = found.size();
    return {};
  });
}

ridge_status ridge_submit(ridge_model* model, const ridge_request* request, ridge_stream** stream,
                          ridge_error** error) {
  return ridge_submit_n(model, request, 1, stream, error);
}

ridge_status ridge_submit_n(ridge_model* model, const ridge_request* request, size_t n, ridge_stream** streams,
                            ridge_error** error) {
  if (streams != nullptr) std::fill_n(streams, n, nullptr);
  return Call(error, [&]() -> Status {
    RIDGE_RETURN_IF_ERROR(NotNull(model, "model"));
    RIDGE_RETURN_IF_ERROR(NotNull(streams, "streams"));
    RIDGE_ASSIGN_OR_RETURN(const ridge::Request asked, RequestOf(request));
    const int64_t many = n > static_cast<size_t>(INT64_MAX) ? INT64_MAX : static_cast<int64_t>(n);
    RIDGE_ASSIGN_OR_RETURN(std::vector<ridge::Stream> started, model->model.Submit(asked, many));
    std::vector<std::unique_ptr<ridge_stream>> made;
    for (ridge::Stream& stream : started) made.emplace_back(new ridge_stream{.stream = std::move(stream)});
    for (size_t i = 0; i < n; i++) streams[i] = made[i].release();
    return {};
  });
}

ridge_status ridge_stream_fork(const ridge_stream* stream, const ridge_request* more, ridge_stream** fork,
                               ridge_error** error) {
  if (fork != nullptr) *fork = nullptr;
  return Call(error, [&]() -> Status {
    RIDGE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    RIDGE_RETURN_IF_ERROR(NotNull(fork, "fork"));
    RIDGE_ASSIGN_OR_RETURN(const ridge::Request asked, RequestOf(more));
    RIDGE_ASSIGN_OR_RETURN(ridge::Stream started, stream->stream.Fork(asked));
    *fork = new ridge_stream{.stream = std::move(started)};
    return {};
  });
}

ridge_status ridge_stream_next(ridge_stream* stream, int64_t timeout_ms, ridge_got* got, ridge_event* event,
                               ridge_error** error) {
  return Call(error, [&]() -> Status {
    RIDGE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    RIDGE_RETURN_IF_ERROR(NotNull(got, "got"));
    RIDGE_RETURN_IF_ERROR(NotNull(event, "event"));
    switch (Read(*stream, timeout_ms, *event)) {
      case ridge::Stream::Got::kEvent: *got = RIDGE_GOT_EVENT; return {};
      case ridge::Stream::Got::kNothing: *got = RIDGE_GOT_NOTHING; return {};
      case ridge::Stream::Got::kEnd: *got = RIDGE_GOT_END; break;
    }
    return FailureOf(*stream);
  });
}

ridge_status ridge_stream_run(ridge_stream* stream, ridge_on_event on_event, void* user_data, ridge_error** error) {
  return Call(error, [&]() -> Status {
    RIDGE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    RIDGE_RETURN_IF_ERROR(NotNull(reinterpret_cast<const void*>(on_event), "on_event"));
    ridge_event event;
    while (Read(*stream, -1, event) != ridge::Stream::Got::kEnd) {
      int wants_end = 0;
      try {
        wants_end = on_event(user_data, &event);
      } catch (...) {
        stream->stream.Cancel();
        return Fail(Code::kInternal, "the callback threw an exception").Where("on_event");
      }
      if (wants_end == 0) continue;
      stream->stream.Cancel();
      return Fail(Code::kCancelled, "the callback ended the request").Where("on_event");
    }
    return FailureOf(*stream);
  });
}

ridge_status ridge_stream_cancel(ridge_stream* stream, ridge_error** error) {
  return Call(error, [&]() -> Status {
    RIDGE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    stream->stream.Cancel();
    return {};
  });
}

void ridge_stream_free(ridge_stream* stream) { delete stream; }

ridge_status ridge_stream_receipt(const ridge_stream* stream, ridge_receipt* receipt, ridge_error** error) {
  return Call(error, [&]() -> Status {
    RIDGE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    RIDGE_RETURN_IF_ERROR(NotNull(receipt, "receipt"));
    const std::optional<ridge::Receipt> r = stream->stream.receipt();
    if (!r) return Fail(Code::kUnavailable, "there is no receipt before the end of the request was read");
    *receipt = {.reason = static_cast<ridge_finish_reason>(r->reason),
                .tokenize_ms = r->tokenize_ms,
                .queue_ms = r->queue_ms,
                .prefill_ms = r->prefill_ms,
                .decode_ms = r->decode_ms,
                .sample_ms = r->sample_ms,
                .detokenize_ms = r->detokenize_ms,
                .ttft_ms = r->ttft_ms,
                .total_ms = r->total_ms,
                .prompt_tokens = r->prompt_tokens,
                .cached_tokens = r->cached_tokens,
                .computed_tokens = r->computed_tokens,
                .generated_tokens = r->generated_tokens,
                .prompt_chunks = r->prompt_chunks,
                .preemptions = r->preemptions,
                .drafts_proposed = r->drafts_proposed,
                .drafts_accepted = r->drafts_accepted,
                .kv_pages = r->kv_pages,
                .bytes_read = r->bytes_read};
    return {};
  });
}

ridge_status ridge_stream_text(const ridge_stream* stream, const char** text, size_t* bytes, ridge_error** error) {
  return Call(error, [&]() -> Status {
    RIDGE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    RIDGE_RETURN_IF_ERROR(NotNull(text, "text"));
    RIDGE_RETURN_IF_ERROR(NotNull(bytes, "bytes"));
    *text = stream->stream.text().c_str();
    *bytes = stream->stream.text().size();
    return {};
  });
}

ridge_status ridge_stream_ids(const ridge_stream* stream, const int32_t** ids, size_t* count, ridge_error** error) {
  return Call(error, [&]() -> Status {
    RIDGE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    RIDGE_RETURN_IF_ERROR(NotNull(ids, "ids"));
    RIDGE_RETURN_IF_ERROR(NotNull(count, "count"));
    *ids = stream->stream.ids().data();
    *count = stream->stream.ids().size();
    return {};
  });
}

ridge_status ridge_model_stats(const ridge_model* model, ridge_stats* stats, ridge_error** error) {
  return Call(error, [&]() -> Status {
    RIDGE_RETURN_IF_ERROR(NotNull(model, "model"));
    RIDGE_RETURN_IF_ERROR(NotNull(stats, "stats"));
    const ridge::Stats s = model->model.stats();
    *stats = {.running = s.running,
              .waiting = s.waiting,
              .pages = s.pages,
              .pages_free = s.pages_free,
              .pages_held = s.pages_held,
              .pages_cached = s.pages_cached,
              .submitted = s.submitted,
              .finished = s.finished,
              .steps = s.steps,
              .preemptions = s.preemptions,
              .prompt_tokens_submitted = s.prompt_tokens_submitted,
              .prompt_tokens_computed = s.prompt_tokens_computed,
              .prompt_tokens_cached = s.prompt_tokens_cached,
              .prompt_tokens_dropped = s.prompt_tokens_dropped,
              .prompt_tokens_pending = s.prompt_tokens_pending,
              .generated_tokens = s.generated_tokens,
              .drafts_proposed = s.drafts_proposed,
              .drafts_accepted = s.drafts_accepted};
    return {};
  });
}

ridge_status ridge_embedder_load(const ridge_load_options* options, const char* pooling, int normalize,
                                 ridge_embedder** embedder, ridge_error** error) {
  if (embedder != nullptr) *embedder = nullptr;
  return Call(error, [&]() -> Status {
    RIDGE_RETURN_IF_ERROR(NotNull(embedder, "embedder"));
    RIDGE_ASSIGN_OR_RETURN(const ridge::LoadOptions asked, OptionsOf(options));
    RIDGE_ASSIGN_OR_RETURN(const bool to_length_1, Flag(normalize, "normalize"));
    RIDGE_ASSIGN_OR_RETURN(ridge::Embedder loaded,
                           ridge::Embedder::Load(asked, {.pooling = Text(pooling), .normalize = to_length_1}));
    *embedder = new ridge_embedder{std::move(loaded)};
    return {};
  });
}

size_t ridge_embedder_width(const ridge_embedder* embedder) {
  return embedder == nullptr ? 0 : static_cast<size_t>(embedder->embedder.width());
}

ridge_status ridge_embed(const ridge_embedder* embedder, const char* const* texts, size_t n, float* vectors,
                         int64_t* tokens, ridge_error** error) {
  return Call(error, [&]() -> Status {
    RIDGE_RETURN_IF_ERROR(NotNull(embedder, "embedder"));
    RIDGE_RETURN_IF_ERROR(Array(texts, n, "texts"));
    RIDGE_RETURN_IF_ERROR(Array(vectors, n, "vectors"));
    std::vector<std::string> copied;
    for (size_t i = 0; i < n; i++) {
      RIDGE_RETURN_IF_ERROR(NotNull(texts[i], "texts"));
      copied.emplace_back(texts[i]);
    }
    RIDGE_ASSIGN_OR_RETURN(const std::vector<ridge::Embedding> found, embedder->embedder.Embed(copied));
    for (size_t i = 0; i < n; i++) {
      std::ranges::copy(found[i].values, vectors + i * found[i].values.size());
      if (tokens != nullptr) tokens[i] = found[i].tokens;
    }
    return {};
  });
}

void ridge_embedder_free(ridge_embedder* embedder) { delete embedder; }

}  // extern "C"
