// include/ridge/ridge.h over the service: options and requests are copied into its types, exceptions end here.
#include <fmt/format.h>

#include <chrono>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/json_text.h"
#include "ridge/ridge.h"
#include "service/embedder.h"
#include "service/service.h"
#include "text/utf8.h"

namespace ridge {
namespace {

using Json = nlohmann::ordered_json;
using service::Service;
using service::TextStream;

constexpr int64_t kDraftRows = 32;  // drafted tokens that a step may verify, of all sequences
constexpr int64_t kMostRunning = 1024, kMostWaiting = 1'000'000;
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

// What `function` returns; an exception becomes an error.
template <class Function>
auto Guarded(Function function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return Fail(Code::kResourceExhausted, "out of memory");
  } catch (const std::exception& fault) {
    return Fail(Code::kInternal, "internal fault").Found(fault.what());
  }
}

Fail Wrong(const char* where, std::string found, std::string expected) {
  return Fail(Code::kInvalidArgument, "wrong value").Where(where).Found(std::move(found)).Expected(std::move(expected));
}

Status CheckRange(const char* where, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return {};
  return Wrong(where, std::to_string(value), fmt::format("{} to {}", least, most));
}

Status CheckText(const std::string& text, const std::string& where) {
  const auto at = text::FirstInvalidUtf8(text);
  if (!at) return {};
  return Fail(Code::kInvalidArgument, "the text is not UTF-8")
      .Where(fmt::format("{}, byte {}", where, *at))
      .Found(fmt::format("0x{:02X}", static_cast<unsigned char>(text[*at])))
      .Remedy("convert it to UTF-8");
}

Result<backend::KvType> KvTypeOf(const char* where, const std::string& name) {
  auto type = backend::ParseKvType(name);
  if (!type) type.error().where = where;
  return type;
}

Result<service::RuntimeOptions> RuntimeOptionsOf(const LoadOptions& o) {
  RIDGE_RETURN_IF_ERROR(CheckRange("running", o.running, 1, kMostRunning));
  RIDGE_RETURN_IF_ERROR(CheckRange("waiting", o.waiting, 1, kMostWaiting));
  RIDGE_RETURN_IF_ERROR(CheckRange("context_tokens", o.context_tokens, -1, INT32_MAX));
  RIDGE_RETURN_IF_ERROR(CheckRange("chunk_tokens", o.chunk_tokens, o.running, 65536));
  service::RuntimeOptions options{.path = o.path,
                                  .isa = o.isa,
                                  .chunk_tokens = o.chunk_tokens,
                                  .logit_rows = o.running + kDraftRows,
                                  .drafts = o.speculation ? kDraftRows : 0,
                                  .sequences = o.running,
                                  .page_tokens = o.page_tokens,
                                  .panel_cache_dir = o.panel_cache_dir};
  if (o.threads != 0) options.threads = o.threads;
  if (o.context_tokens >= 0) options.context_tokens = o.context_tokens;
  if (o.kv_bytes > 0) options.kv_bytes = o.kv_bytes;
  RIDGE_ASSIGN_OR_RETURN(options.k_type, KvTypeOf("k_type", o.k_type));
  RIDGE_ASSIGN_OR_RETURN(options.v_type, KvTypeOf("v_type", o.v_type));
  return options;
}

// The errors of Runtime::Load name flags of the command line.
Error InOwnWords(Error error) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"-t", "threads"},       {"-c", "context_tokens"},     {"-ub", "chunk_tokens"},
      {"--isa", "isa"},        {"--kv-page", "page_tokens"}, {"--kv-memory", "kv_bytes"},
      {"--pooling", "pooling"}};
  for (const auto& [flag, name] : kNames) {
    if (error.where == flag || error.where.starts_with(std::string(flag) + " "))
      error.where = std::string(name) + error.where.substr(flag.size());
  }
  return error;
}

sampling::SamplingParams SamplingOf(const Sampling& s) {
  sampling::SamplingParams p{.temperature = s.temperature,
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
                             .seed = s.seed};
  for (const auto& [token, bias] : s.logit_bias) p.logit_bias.push_back({token, bias});
  return p;
}

Receipt ReceiptOf(const service::Receipt& r) {
  return {.reason = static_cast<FinishReason>(r.reason),
          .tokenize_ms = r.tokenize_ms,
          .queue_ms = r.queue_ms,
          .prefill_ms = r.prompt_ms,
          .decode_ms = r.predicted_ms,
          .sample_ms = r.sample_ms,
          .detokenize_ms = r.detokenize_ms,
          .ttft_ms = r.ttft_ms.value_or(-1),
          .total_ms = r.total_ms,
          .prompt_tokens = r.prompt_n,
          .cached_tokens = r.cache_n,
          .computed_tokens = r.computed_n,
          .generated_tokens = r.predicted_n,
          .prompt_chunks = r.prompt_chunks,
          .preemptions = r.preemptions,
          .drafts_proposed = r.drafts_proposed,
          .drafts_accepted = r.drafts_accepted,
          .kv_pages = r.kv_pages,
          .bytes_read = r.bytes_read};
}
static_assert(static_cast<int>(FinishReason::kStop) == static_cast<int>(engine::FinishReason::kStop) &&
              static_cast<int>(FinishReason::kLength) == static_cast<int>(engine::FinishReason::kLength) &&
              static_cast<int>(FinishReason::kCancelled) == static_cast<int>(engine::FinishReason::kCancelled) &&
              static_cast<int>(FinishReason::kFailed) == static_cast<int>(engine::FinishReason::kFailed));

TokenLogprob LogprobOf(service::ScoredToken& scored) {
  return {.token = scored.token, .logprob = scored.logprob, .top = std::move(scored.top)};
}

Error Empty(const char* what) {
  return std::move(Fail(Code::kInvalidArgument, fmt::format("the {} is empty", what))
                       .Remedy("use one that was loaded or submitted, and not moved from"))
      .Take();
}

}  // namespace

// ---- Model

namespace {

// The user's notify, which the engine may call for a moment after its streams are gone.
struct Notifier {
  std::mutex mutex;
  std::function<void()> call;
};

}  // namespace

struct Model::Impl : std::enable_shared_from_this<Model::Impl> {
  std::unique_ptr<Service> service;
  LoadOptions options;
  std::mutex mutex;
  bool closed = false;
  std::set<TextStream*> live;  // of streams that exist

  bool Enter(TextStream* stream) {
    const std::lock_guard lock(mutex);
    return !closed && live.insert(stream).second;
  }
  void Leave(TextStream* stream) {
    const std::lock_guard lock(mutex);
    live.erase(stream);
  }
  Result<std::vector<std::unique_ptr<Stream::Impl>>> Start(const Request& request, std::vector<int32_t> ids, int64_t n);
};

struct Stream::Impl {
  // Shared by the streams of a request: the last one turns notify off.
  struct Lease {
    std::shared_ptr<Notifier> notifier;
    ~Lease() {
      const std::lock_guard lock(notifier->mutex);
      notifier->call = nullptr;
    }
  };
  std::shared_ptr<Model::Impl> model;  // destroyed last
  std::unique_ptr<TextStream> stream;
  std::vector<int32_t> prompt_ids;
  std::string text;
  std::vector<TokenLogprob> logprobs, prompt_logprobs;
  bool ended = false;
  std::optional<Error> error;
  std::shared_ptr<Lease> lease;

  ~Impl() {
    if (stream) model->Leave(stream.get());
  }
};

Result<std::vector<std::unique_ptr<Stream::Impl>>> Model::Impl::Start(const Request& request, std::vector<int32_t> ids,
                                                                      int64_t n) {
  const int given = (request.prompt.empty() ? 0 : 1) + (ids.empty() ? 0 : 1) + (request.messages.empty() ? 0 : 1);
  if (given != 1) {
    return Fail(Code::kInvalidArgument, "a request has one of prompt, prompt_ids and messages")
        .Found(given == 0 ? "none" : std::to_string(given));
  }
  RIDGE_RETURN_IF_ERROR(CheckText(request.prompt, "prompt"));
  for (const std::string& stop : request.stop) {
    if (stop.empty()) return Wrong("stop", "an empty text", "texts that are not empty");
    RIDGE_RETURN_IF_ERROR(CheckText(stop, "stop"));
  }
  RIDGE_RETURN_IF_ERROR(CheckRange("max_tokens", request.max_tokens, -1, INT32_MAX));
  RIDGE_RETURN_IF_ERROR(CheckRange("n", n, 1, options.waiting));
  service::TextRequest asked{
      .prompt = request.prompt,
      .prompt_ids = std::move(ids),
      .max_tokens = request.max_tokens,
      .ignore_end = request.ignore_end,
      .stop = request.stop,
      .whole_answer = true,
      .logprobs = request.logprobs,
      .prompt_logprobs = request.prompt_logprobs,
      .cache_salt = request.cache_salt,
      .use_cache = request.use_cache,
      .priority = request.priority,
      .tenant = request.tenant,
      .speculation = options.speculation ? engine::Speculation::kAuto : engine::Speculation::kOff,
      .sampling = SamplingOf(request.sampling)};
  std::shared_ptr<Stream::Impl::Lease> lease;
  if (request.notify) {
    auto notifier = std::make_shared<Notifier>();
    notifier->call = request.notify;
    asked.notify = [notifier] {
      const std::lock_guard lock(notifier->mutex);
      if (notifier->call) notifier->call();
    };
    lease = std::make_shared<Stream::Impl::Lease>(std::move(notifier));
  }
  Json messages = Json::array(), kwargs;
  for (size_t i = 0; i < request.messages.size(); i++) {
    const Message& m = request.messages[i];
    RIDGE_RETURN_IF_ERROR(CheckText(m.role, fmt::format("messages[{}].role", i)));
    RIDGE_RETURN_IF_ERROR(CheckText(m.content, fmt::format("messages[{}].content", i)));
    messages.push_back({{"role", m.role}, {"content", m.content}});
  }
  if (!request.messages.empty()) asked.messages = &messages;
  if (!request.template_kwargs.empty()) {
    if (request.messages.empty()) return Wrong("template_kwargs", "no messages", "messages beside it");
    kwargs = ParseJsonText<Json>(request.template_kwargs);
    if (!kwargs.is_object()) return Wrong("template_kwargs", "something else", "a JSON object");
    asked.template_kwargs = &kwargs;
  }
  {
    const std::lock_guard lock(mutex);
    if (closed) return Fail(Code::kUnavailable, "the model is closed");
  }
  RIDGE_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<TextStream>> started, service->SubmitGroup(asked, n));
  const std::vector<int32_t> prompt_ids = started.front()->prompt_ids();
  std::vector<std::unique_ptr<Stream::Impl>> streams;
  for (std::unique_ptr<TextStream>& stream : started) {
    auto impl = std::make_unique<Stream::Impl>();
    impl->model = shared_from_this();
    impl->prompt_ids = prompt_ids;
    impl->lease = lease;
    impl->stream = std::move(stream);
    if (!Enter(impl->stream.get())) impl->stream->Cancel();  // closed meanwhile
    streams.push_back(std::move(impl));
  }
  return streams;
}

Model::Model() = default;
Model::Model(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

Result<Model> Model::Load(const LoadOptions& options) {
  return Guarded([&]() -> Result<Model> {
    RIDGE_ASSIGN_OR_RETURN(const service::RuntimeOptions runtime_options, RuntimeOptionsOf(options));
    auto runtime = service::Runtime::Load(runtime_options);
    if (!runtime) return std::unexpected(InOwnWords(std::move(runtime).error()));
    auto impl = std::make_shared<Impl>();
    impl->options = options;
    auto service = Service::Create(std::move(*runtime), {.max_running = options.running,
                                                         .max_waiting = static_cast<size_t>(options.waiting),
                                                         .prefix_cache = options.prefix_cache});
    if (!service) return std::unexpected(InOwnWords(std::move(service).error()));
    impl->service = std::move(*service);
    return Model(std::move(impl));
  });
}

Result<Stream> Model::Submit(const Request& request) const {
  RIDGE_ASSIGN_OR_RETURN(std::vector<Stream> streams, Submit(request, 1));
  return std::move(streams.front());
}

Result<std::vector<Stream>> Model::Submit(const Request& request, int64_t n) const {
  return Guarded([&]() -> Result<std::vector<Stream>> {
    if (!impl_) return std::unexpected(Empty("model"));
    RIDGE_ASSIGN_OR_RETURN(auto impls, impl_->Start(request, request.prompt_ids, n));
    std::vector<Stream> streams;
    for (auto& impl : impls) streams.push_back(Stream(std::move(impl)));
    return streams;
  });
}

Result<std::vector<int32_t>> Model::Tokenize(const std::string& text, bool add_special) const {
  return Guarded([&]() -> Result<std::vector<int32_t>> {
    if (!impl_) return std::unexpected(Empty("model"));
    RIDGE_RETURN_IF_ERROR(CheckText(text, "text"));
    return impl_->service->tokenizer().Encode(text, {.add_special = add_special});
  });
}

std::string Model::Detokenize(const std::vector<int32_t>& ids) const {
  const Result<std::string> text = Guarded([&]() -> Result<std::string> {
    if (!impl_) return std::string();
    return text::ReplaceInvalidUtf8(impl_->service->tokenizer().Decode(ids, /*special=*/true));
  });
  return text.value_or(std::string());
}

Stats Model::stats() const {
  if (!impl_) return {};
  const engine::EngineStats s = impl_->service->Stats();
  return {.running = s.running,
          .waiting = s.waiting,
          .pages = s.pages_capacity,
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
}

ModelInfo Model::info() const {
  if (!impl_) return {};
  const service::Runtime& r = impl_->service->runtime();
  return {.architecture = r.model().config().architecture,
          .isa = r.program().isa(),
          .threads = r.program().n_threads(),
          .vocab = r.model().graph().vocab(),
          .context_tokens = r.context_tokens(),
          .chunk_tokens = r.chunk_tokens(),
          .page_tokens = r.state_options().page_tokens,
          .kv_pages = r.state_options().n_pages,
          .kv_bytes = impl_->service->kv_bytes(),
          .weight_bytes = r.program().weight_bytes(),
          .has_chat_template = impl_->service->has_template(),
          .notes = r.notes()};
}

void Model::Close() const {
  if (!impl_) return;
  const std::lock_guard lock(impl_->mutex);
  impl_->closed = true;
  for (TextStream* stream : impl_->live) stream->Cancel();
}

// ---- Stream

Stream::Stream() = default;
Stream::Stream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Stream::~Stream() = default;
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;

Stream::Got Stream::Next(Event& event, int64_t timeout_ms) {
  const auto next = [&]() -> Result<Got> {
    event = {};
    if (!impl_ || impl_->ended) return Got::kEnd;
    service::TextEvent got;
    const auto timeout = timeout_ms < 0 ? kForever : std::min(kForever, std::chrono::milliseconds(timeout_ms));
    switch (impl_->stream->Next(timeout, got)) {
      case TextStream::Got::kNothing: return Got::kNothing;
      case TextStream::Got::kEnd:
        impl_->ended = true;
        impl_->error = impl_->stream->error();
        return Got::kEnd;
      case TextStream::Got::kEvent: break;
    }
    impl_->text += got.text;
    event.text = std::move(got.text);
    event.token = got.token;
    for (service::ScoredToken& scored : got.scored) event.logprobs.push_back(LogprobOf(scored));
    for (service::ScoredToken& scored : got.prompt) event.prompt_logprobs.push_back(LogprobOf(scored));
    impl_->prompt_logprobs.insert(impl_->prompt_logprobs.end(), event.prompt_logprobs.begin(),
                                  event.prompt_logprobs.end());
    impl_->logprobs.insert(impl_->logprobs.end(), event.logprobs.begin(), event.logprobs.end());
    return Got::kEvent;
  };
  Result<Got> got = Guarded(next);
  if (got) return *got;
  impl_->ended = true;  // without memory for its answer the request has failed
  impl_->error = std::move(got).error();
  impl_->stream->Cancel();
  return Got::kEnd;
}

Result<Answer> Stream::Finish() {
  if (!impl_) return std::unexpected(Empty("stream"));
  return Guarded([&]() -> Result<Answer> {
    Event event;
    while (Next(event) != Got::kEnd) {
    }
    if (impl_->error) return std::unexpected(*impl_->error);
    return Answer{.text = impl_->text,
                  .ids = impl_->stream->ids(),
                  .logprobs = impl_->logprobs,
                  .prompt_logprobs = impl_->prompt_logprobs,
                  .receipt = ReceiptOf(impl_->stream->receipt())};
  });
}

void Stream::Cancel() {
  if (impl_) impl_->stream->Cancel();
}

Result<Stream> Stream::Fork(const Request& more) const {
  return Guarded([&]() -> Result<Stream> {
    if (!impl_) return std::unexpected(Empty("stream"));
    if (!more.messages.empty() || !more.template_kwargs.empty())
      return Wrong("messages", "a conversation", "prompt or prompt_ids, or neither: a fork goes on in the same text");
    if (!more.prompt.empty() && !more.prompt_ids.empty())
      return Fail(Code::kInvalidArgument, "a fork has one of prompt and prompt_ids").Found("2");
    const text::Tokenizer& tokenizer = impl_->model->service->tokenizer();
    std::vector<int32_t> ids = impl_->prompt_ids;
    ids.insert(ids.end(), impl_->stream->ids().begin(), impl_->stream->ids().end());
    if (impl_->stream->at_end_token()) ids.pop_back();
    if (!more.prompt.empty()) {
      RIDGE_RETURN_IF_ERROR(CheckText(more.prompt, "prompt"));
      RIDGE_ASSIGN_OR_RETURN(const std::vector<int32_t> text, tokenizer.Encode(more.prompt, {.add_special = false}));
      ids.insert(ids.end(), text.begin(), text.end());
    }
    ids.insert(ids.end(), more.prompt_ids.begin(), more.prompt_ids.end());
    Request request = more;
    request.prompt.clear();
    RIDGE_ASSIGN_OR_RETURN(auto impls, impl_->model->Start(request, std::move(ids), 1));
    return Stream(std::move(impls.front()));
  });
}

std::optional<Receipt> Stream::receipt() const {
  if (!impl_ || !impl_->ended) return std::nullopt;
  return ReceiptOf(impl_->stream->receipt());
}

std::optional<Error> Stream::error() const { return impl_ ? impl_->error : std::nullopt; }

const std::vector<int32_t>& Stream::prompt_ids() const {
  static const std::vector<int32_t> kNone;
  return impl_ ? impl_->prompt_ids : kNone;
}

const std::vector<int32_t>& Stream::ids() const {
  static const std::vector<int32_t> kNone;
  return impl_ ? impl_->stream->ids() : kNone;
}

const std::string& Stream::text() const {
  static const std::string kNone;
  return impl_ ? impl_->text : kNone;
}

// ---- Embedder

struct Embedder::Impl {
  std::unique_ptr<service::Embedder> embedder;
};

Embedder::Embedder() = default;
Embedder::Embedder(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Embedder::~Embedder() = default;
Embedder::Embedder(Embedder&&) noexcept = default;
Embedder& Embedder::operator=(Embedder&&) noexcept = default;

Result<Embedder> Embedder::Load(const LoadOptions& options, const EmbedOptions& embed) {
  return Guarded([&]() -> Result<Embedder> {
    const LoadOptions defaults;
    const std::pair<const char*, bool> kept[] = {{"running", options.running == defaults.running},
                                                 {"waiting", options.waiting == defaults.waiting},
                                                 {"kv_bytes", options.kv_bytes == defaults.kv_bytes},
                                                 {"prefix_cache", options.prefix_cache == defaults.prefix_cache},
                                                 {"speculation", options.speculation == defaults.speculation}};
    for (const auto& [name, same] : kept) {
      if (!same)
        return Fail(Code::kInvalidArgument, "has no meaning for embeddings").Where(name).Remedy("leave it out");
    }
    RIDGE_ASSIGN_OR_RETURN(service::RuntimeOptions runtime_options, RuntimeOptionsOf(options));
    runtime_options.embeddings = true;
    runtime_options.sequences = 1;
    // An encoder takes a text in one step, so that only a size that was asked for binds it.
    if (options.chunk_tokens == defaults.chunk_tokens) runtime_options.chunk_tokens = std::nullopt;
    if (options.context_tokens < 0) runtime_options.context_tokens = 0;
    service::EmbedderOptions how{.pooling = std::nullopt, .normalize = embed.normalize};
    if (!embed.pooling.empty()) {
      auto pooling = service::ParsePooling(embed.pooling);
      if (!pooling) return std::unexpected(InOwnWords(std::move(pooling).error()));
      how.pooling = *pooling;
    }
    auto runtime = service::Runtime::Load(runtime_options);
    if (!runtime) return std::unexpected(InOwnWords(std::move(runtime).error()));
    auto impl = std::make_shared<Impl>();
    auto embedder = service::Embedder::Create(std::move(*runtime), how);
    if (!embedder) return std::unexpected(InOwnWords(std::move(embedder).error()));
    impl->embedder = std::move(*embedder);
    return Embedder(std::move(impl));
  });
}

Result<std::vector<Embedding>> Embedder::Embed(const std::vector<std::string>& texts) const {
  return Guarded([&]() -> Result<std::vector<Embedding>> {
    if (!impl_) return std::unexpected(Empty("embedder"));
    for (size_t i = 0; i < texts.size(); i++) RIDGE_RETURN_IF_ERROR(CheckText(texts[i], fmt::format("input[{}]", i)));
    RIDGE_ASSIGN_OR_RETURN(std::vector<service::Embedding> found, impl_->embedder->Embed(texts));
    std::vector<Embedding> out;
    for (service::Embedding& e : found) out.push_back({.values = std::move(e.values), .tokens = e.tokens});
    return out;
  });
}

int64_t Embedder::width() const { return impl_ ? impl_->embedder->width() : 0; }

}  // namespace ridge
