// Ridge as a C++ library: load a GGUF model, submit text, read the answer as it comes, fork it, cancel it; embed texts; look at the counters.
//
//   ridge::Result<ridge::Model> model = ridge::Model::Load({.path = "model.gguf"});
//   ridge::Result<ridge::Stream> stream = model->Submit({.prompt = "The capital of France is", .max_tokens = 24});
//   ridge::Event event;
//   while (stream->Next(event) == ridge::Stream::Got::kEvent) std::cout << event.text;
//
// Guarantees
// - An answer depends on the model, the request and its seed alone: not on other requests, threads, chunking, page size, cache hits or forks, and it
//   has the bits of `ridge run` and of `ridge serve`.
// - What is asked for is kept or refused with an Error that says what, where, found, expected and the remedy. No prompt is shortened.
// - Text is UTF-8 and never cut inside a code point. Nothing of a stop string is shown.
// - No function throws. Nothing is written to stdout or stderr.
// Threads: Model and Embedder are thread-safe. A Stream belongs to one thread at a time, but for Cancel, which any thread may call.
// Lifetimes: a Stream keeps what it needs of its model alive, so handles may go in any order. Destroying a Stream cancels its request.
// Empty handles (default constructed, or moved from) may be asked everything: they answer kInvalidArgument, kEnd or nothing.
// Needs C++23. Link with the pkg-config package `ridge` or the CMake package `Ridge`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ridge/result.h"

namespace ridge {

// ---- loading

struct LoadOptions {
  std::string path = {};  // a GGUF file, or the first of a split model
  int threads =
      0;  // 0: as many as physical cores that the process may use, or fewer where a probe shows that to be faster
  std::string isa = {};  // kernels of one instruction set, such as "avx2"; empty: the best
  int64_t context_tokens =
      -1;  // prompt and answer of one request; 0: what the model was trained for; -1: that, at most 4096
  int64_t chunk_tokens = 512;  // prompt tokens of one step
  int64_t running = 8;         // requests that run at once, 1 to 1024; more wait
  int64_t waiting = 1024;      // requests that may wait; more are refused
  uint64_t kv_bytes = 0;     // size of the KV pool; 0: room for `running` whole contexts, or less where memory is short
  int64_t page_tokens = 32;  // tokens of a KV page
  std::string k_type = "f16", v_type = "f16";  // f16, bf16, f32, q8_0 or q4_0
  bool prefix_cache = true;                    // prompts and answers serve later requests with the same beginning
  bool speculation = true;           // drafts of what may repeat, as long as they pay; no bit of an answer changes
  std::string panel_cache_dir = {};  // folder that keeps repacked weights, for quick loading; empty: nothing is written
};

// The model as it was loaded: every setting resolved.
struct ModelInfo {
  std::string architecture, isa;
  int threads = 0;
  int64_t vocab = 0, context_tokens = 0, chunk_tokens = 0, page_tokens = 0, kv_pages = 0;
  uint64_t kv_bytes = 0, weight_bytes = 0;
  bool has_chat_template = false;
  std::vector<std::string> notes;  // what people should know, a line each
};

// ---- requests

// How tokens are drawn. Names and defaults are those of llama.cpp and of `ridge run`; docs/sampling.md has the formulas.
struct Sampling {
  double temperature = 0.8;  // 0: greedy
  int32_t top_k = 40;        // 0: off
  double top_p = 0.95, min_p = 0.05, typical_p = 1.0, top_n_sigma = -1.0;
  double xtc_probability = 0.0, xtc_threshold = 0.1;
  int32_t repeat_last_n = 64;  // tokens of prompt and answer that the penalties look at; -1: all
  double repeat_penalty = 1.0, presence_penalty = 0.0, frequency_penalty = 0.0;
  double dry_multiplier = 0.0, dry_base = 1.75;
  int32_t dry_allowed_length = 2, dry_penalty_last_n = 64;
  std::vector<std::pair<int32_t, double>> logit_bias = {};  // (token, added to its logit); minus infinity bans it
  uint64_t seed = 0;                                        // the same seed gives the same answer
};

struct Message {
  std::string role, content;  // "system", "user", "assistant", or what else the template knows
};

// One of prompt, prompt_ids and messages is given.
struct Request {
  std::string prompt = {};               // completed as it is
  std::vector<int32_t> prompt_ids = {};  // token ids, completed as they are
  std::vector<Message> messages = {};    // a conversation, put into words by the model's chat template
  std::string template_kwargs = {};      // variables for the template, a JSON object
  int64_t max_tokens =
      -1;  // of the answer; 0: the prompt is computed only; -1: until the model ends or the context is full
  bool ignore_end = false;             // the model's end tokens do not end the answer
  std::vector<std::string> stop = {};  // each ends the answer and is not part of it
  int32_t logprobs = -1;               // alternatives per token of the answer, 0 to 20; -1: no log-probabilities
  // The same of the prompt's tokens but the first. The prompt is then computed in full, and nothing is taken from the prefix cache nor left there.
  int32_t prompt_logprobs = -1;
  std::string cache_salt = {};  // prefixes are shared only between equal salts
  bool use_cache = true;        // false: takes nothing from the prefix cache and leaves nothing there
  int32_t priority = 0;         // higher first
  std::string tenant = {};      // tenants share the engine equally
  Sampling sampling = {};
  // Called after each event and after the end, by the engine's thread: "Next has something". Must be quick, must not throw, and must not call this
  // library. Never called once the streams of the request are gone.
  std::function<void()> notify = {};
};

// A token with its natural log-probability in the model's own distribution, before temperature and filters.
struct TokenLogprob {
  int32_t token = -1;
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top = {};  // as many as were asked for, best first
};

struct Event {
  std::string text = {};                           // perhaps empty: the token gave nothing that can be shown yet
  int32_t token = -1;                              // -1: text that was held back
  std::vector<TokenLogprob> logprobs = {};         // of tokens whose text is shown by now
  std::vector<TokenLogprob> prompt_logprobs = {};  // of the prompt, from its second token on; before all else
};

enum class FinishReason { kStop, kLength, kCancelled, kFailed };

// What a request cost. Times in milliseconds; the parts of total_ms are queue, prefill and decode steps, and sampling.
struct Receipt {
  FinishReason reason = FinishReason::kFailed;
  double tokenize_ms = 0, queue_ms = 0, prefill_ms = 0, decode_ms = 0, sample_ms = 0, detokenize_ms = 0;
  double ttft_ms = -1;        // from Submit to the first token; -1: there was none
  double total_ms = 0;        // from Submit to the end of the engine's work
  int64_t prompt_tokens = 0;  // cached_tokens of them were found in the prefix cache
  int64_t cached_tokens = 0;
  int64_t computed_tokens =
      0;  // that went through the model: prompt, answer, refused drafts, repetition after preemption
  int64_t generated_tokens = 0;  // that were read
  int64_t prompt_chunks = 0;
  int64_t preemptions = 0;                           // times that the request lost its pages and was computed again
  int64_t drafts_proposed = 0, drafts_accepted = 0;  // tokens
  int64_t kv_pages = 0;                              // held at the end
  double bytes_read = 0;  // weights, by its share of each step's tokens, and its own KV: from shapes, not measured
};

// A whole answer.
struct Answer {
  std::string text = {};
  std::vector<int32_t> ids = {};
  std::vector<TokenLogprob> logprobs = {}, prompt_logprobs = {};
  Receipt receipt = {};
};

// ---- the handles

class Stream {
 public:
  enum class Got { kEvent, kEnd, kNothing };

  Stream();
  ~Stream();  // cancels what still runs, without waiting
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;

  // The next event. kNothing: none came within timeout_ms; -1 waits as long as it takes.
  Got Next(Event& event, int64_t timeout_ms = -1);
  // Reads to the end. The answer holds what Next gave before, too. Errors: the request's own, when it failed; a cancelled one is no error.
  Result<Answer> Finish();
  // Ends the request within one step. Thread-safe; again, and after the end, it changes nothing.
  void Cancel();

  // A request that goes on where this one is: its prompt, what was read of its answer so far, without the end token, and then more.prompt or
  // more.prompt_ids, if any; all else of `more` holds as for any request. The pages of the common part are shared. The same seed and sampling with no
  // text of its own gives the same rest. Before, during or after the run. Errors: those of Model::Submit; kInvalidArgument for messages.
  Result<Stream> Fork(const Request& more) const;

  // After kEnd; before it nothing is known.
  std::optional<Receipt> receipt() const;
  std::optional<Error> error() const;  // of a request that failed

  const std::vector<int32_t>& prompt_ids() const;
  const std::vector<int32_t>& ids() const;  // generated and read so far
  const std::string& text() const;          // shown so far

 private:
  friend class Model;
  struct Impl;
  explicit Stream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One consistent snapshot, at most one step old. Laws: pages_free + pages_held + pages_cached = pages; submitted = finished + running + waiting;
// prompt_tokens_submitted = computed + cached + dropped + pending.
struct Stats {
  int64_t running = 0, waiting = 0;
  int64_t pages = 0, pages_free = 0, pages_held = 0, pages_cached = 0;
  uint64_t submitted = 0, finished = 0, steps = 0, preemptions = 0;
  uint64_t prompt_tokens_submitted = 0, prompt_tokens_computed = 0, prompt_tokens_cached = 0, prompt_tokens_dropped = 0,
           prompt_tokens_pending = 0;
  uint64_t generated_tokens = 0, drafts_proposed = 0, drafts_accepted = 0;
};

class Model {
 public:
  // Errors: kNotFound, kInvalidData (the file), kUnsupported (its family, or a model that gives embeddings), kResourceExhausted (memory, before a
  // weight is read), kInvalidArgument and kOutOfRange (options, by name).
  static Result<Model> Load(const LoadOptions& options);

  Model();
  ~Model();  // what still runs goes on for its streams
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  // Never waits for a step. Errors: kInvalidArgument (a field, by name), kOutOfRange (longer than the context, with figures), kUnsupported (messages
  // without a template), kResourceExhausted (too many wait, no memory), kUnavailable (closed).
  Result<Stream> Submit(const Request& request) const;
  // n answers to one prompt, which is computed once and whose pages are shared: all are taken or none is. Answer i draws as the only answer does with
  // another draw stream: the first is that of Submit.
  Result<std::vector<Stream>> Submit(const Request& request, int64_t n) const;

  // add_special: with the tokens that the model wants at both ends. Text never becomes a control token.
  Result<std::vector<int32_t>> Tokenize(const std::string& text, bool add_special = true) const;
  std::string Detokenize(const std::vector<int32_t>& ids) const;  // broken UTF-8 becomes U+FFFD

  Stats stats() const;
  ModelInfo info() const;

  // Cancels all that runs and refuses what comes. Memory is given back when the last handle is gone. Thread-safe; again it changes nothing.
  void Close() const;

 private:
  struct Impl;
  explicit Model(std::shared_ptr<Impl> impl);
  friend class Stream;
  std::shared_ptr<Impl> impl_;
};

// ---- embeddings

struct EmbedOptions {
  std::string pooling =
      {};  // "mean", "cls", "last"; empty: what the file says, else mean of an encoder and last of a decoder
  bool normalize = true;  // to length 1
};

struct Embedding {
  std::vector<float> values = {};  // [width]
  int64_t tokens = 0;              // of the text
};

class Embedder {
 public:
  // An encoder, or any decoder, whose last hidden state it takes. running, waiting, kv_bytes, prefix_cache and speculation have no meaning here: anything
  // but their defaults is refused. Errors: those of Model::Load.
  static Result<Embedder> Load(const LoadOptions& options, const EmbedOptions& embed = {});

  Embedder();
  ~Embedder();
  Embedder(Embedder&&) noexcept;
  Embedder& operator=(Embedder&&) noexcept;

  // A vector for each text, which does not depend on the texts beside it. Calls take turns. Errors: kInvalidArgument and kOutOfRange (longer than the
  // context), which name the text, "input[2]".
  Result<std::vector<Embedding>> Embed(const std::vector<std::string>& texts) const;
  int64_t width() const;

 private:
  struct Impl;
  explicit Embedder(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace ridge
