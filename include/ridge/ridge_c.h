/* Ridge as a C library: the life cycle of ridge/ridge.h with opaque handles, status codes and plain structs. C99 and C++.
 *
 *   ridge_load_options options = ridge_load_options_default();
 *   options.path = "model.gguf";
 *   ridge_model *model = NULL;
 *   ridge_error *error = NULL;
 *   if (ridge_model_load(&options, &model, &error) != RIDGE_OK) { puts(error->message); ridge_error_free(error); return 1; }
 *   ridge_request request = ridge_request_default();
 *   request.prompt = "The capital of France is";
 *   ridge_stream *stream = NULL;
 *   if (ridge_submit(model, &request, &stream, &error) == RIDGE_OK) ridge_stream_run(stream, print_event, NULL, &error);
 *   ridge_stream_free(stream);
 *   ridge_model_free(model);
 *
 * Guarantees
 * - What ridge/ridge.h guarantees of answers, limits and text holds here: it is what is called.
 * - No exception and no signal crosses; nothing is printed. A callback may throw (C++): its request is cancelled and RIDGE_INTERNAL comes back.
 * - A NULL where a handle, a struct or a place for a result is needed is RIDGE_INVALID_ARGUMENT, which names it. `error` may always be NULL; else
 *   it is set to a struct of the caller's (ridge_error_free) when a function fails, and to NULL when it does not.
 * - A result is written only on RIDGE_OK; else handles are set to NULL.
 * - Handles go in any order, each once: a stream keeps what it needs of its model alive. Freeing NULL does nothing. Freeing a stream that runs
 *   cancels it. After ridge_model_close everything that needs the engine is RIDGE_UNAVAILABLE.
 * - Strings and arrays given to a function are copied before it returns; those in a struct of a stream live as each function says.
 * Threads: a model or an embedder may be used by all threads at once; a stream by one at a time, but for ridge_stream_cancel. */
#ifndef RIDGE_RIDGE_C_H_
#define RIDGE_RIDGE_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status and errors */

typedef enum ridge_status {
  RIDGE_OK = 0,
  RIDGE_USAGE,
  RIDGE_INVALID_ARGUMENT, /* a value that can never work */
  RIDGE_INVALID_DATA,     /* a file that breaks its format */
  RIDGE_NOT_FOUND,
  RIDGE_ALREADY_EXISTS,
  RIDGE_PERMISSION_DENIED,
  RIDGE_UNSUPPORTED,  /* valid, but not implemented by this build */
  RIDGE_OUT_OF_RANGE, /* too long, too large for the given limits */
  RIDGE_RESOURCE_EXHAUSTED,
  RIDGE_UNAVAILABLE, /* the model is closed, or it is not known yet */
  RIDGE_CANCELLED,
  RIDGE_INTERNAL /* a fault of ours, or a callback that threw */
} ridge_status;

/* No member is NULL; what there is nothing to say about is "". message says all of it in one line. */
typedef struct ridge_error {
  ridge_status code;
  const char *what, *where, *found, *expected, *remedy, *message;
} ridge_error;

const char* ridge_status_name(ridge_status status); /* "invalid_argument"; never NULL */
void ridge_error_free(ridge_error* error);
const char* ridge_version(void); /* "0.1.0" */

/* ---- loading: members as in ridge::LoadOptions */

typedef struct ridge_load_options {
  size_t struct_bytes; /* set by ridge_load_options_default; so in all structs that begin with it */
  const char* path;    /* a GGUF file, or the first of a split model */
  const char* isa;     /* NULL: the best; so in all strings: NULL is "not given" */
  int32_t threads;     /* 0: chosen */
  int64_t context_tokens, chunk_tokens, running, waiting, page_tokens;
  uint64_t kv_bytes; /* 0: chosen */
  const char *k_type, *v_type;
  int prefix_cache, speculation; /* 0 or 1 */
  const char* panel_cache_dir;
} ridge_load_options;
ridge_load_options ridge_load_options_default(void);

typedef struct ridge_model ridge_model;
ridge_status ridge_model_load(const ridge_load_options* options, ridge_model** model, ridge_error** error);
/* Cancels all that runs and refuses what comes; again it does nothing. The handle stays to be freed. */
ridge_status ridge_model_close(ridge_model* model, ridge_error** error);
void ridge_model_free(ridge_model* model);

/* The model as it was loaded: every setting resolved. Strings live as long as the model's handle. */
typedef struct ridge_model_info {
  const char *architecture, *isa;
  int32_t threads;
  int64_t vocab, context_tokens, chunk_tokens, page_tokens, kv_pages;
  uint64_t kv_bytes, weight_bytes;
  int has_chat_template;
  const char* const* notes; /* [n_notes], what people should know, a line each */
  size_t n_notes;
} ridge_model_info;
ridge_status ridge_model_get_info(const ridge_model* model, ridge_model_info* info, ridge_error** error);

/* count: set to the number of tokens, of which the first `capacity` are written to ids [capacity] (NULL when capacity is 0). add_special: with the
 * tokens that the model wants at both ends. */
ridge_status ridge_tokenize(const ridge_model* model, const char* text, int add_special, int32_t* ids, size_t capacity,
                            size_t* count, ridge_error** error);
/* The text of ids [count], UTF-8 with a NUL at its end: bytes is set to its length without that, and text [capacity] holds as much as fits. */
ridge_status ridge_detokenize(const ridge_model* model, const int32_t* ids, size_t count, char* text, size_t capacity,
                              size_t* bytes, ridge_error** error);

/* ---- requests: members as in ridge::Request and ridge::Sampling */

typedef struct ridge_message {
  const char *role, *content;
} ridge_message;

typedef struct ridge_logit_bias {
  int32_t token;
  double bias;
} ridge_logit_bias;

typedef struct ridge_sampling {
  double temperature;
  int32_t top_k;
  double top_p, min_p, typical_p, top_n_sigma, xtc_probability, xtc_threshold;
  int32_t repeat_last_n;
  double repeat_penalty, presence_penalty, frequency_penalty;
  double dry_multiplier, dry_base;
  int32_t dry_allowed_length, dry_penalty_last_n;
  const ridge_logit_bias* logit_bias; /* [n_logit_bias] */
  size_t n_logit_bias;
  uint64_t seed;
} ridge_sampling;

typedef struct ridge_request {
  size_t struct_bytes;
  const char* prompt;        /* one of these three */
  const int32_t* prompt_ids; /* [n_prompt_ids] */
  size_t n_prompt_ids;
  const ridge_message* messages; /* [n_messages] */
  size_t n_messages;
  const char* template_kwargs; /* a JSON object */
  int64_t max_tokens;
  int ignore_end;          /* 0 or 1 */
  const char* const* stop; /* [n_stop] */
  size_t n_stop;
  int32_t logprobs, prompt_logprobs; /* -1: none */
  const char* cache_salt;
  int use_cache; /* 0 or 1 */
  int32_t priority;
  const char* tenant;
  ridge_sampling sampling;
  /* Called by the engine's thread after each event and after the end, or NULL. Must be quick, must not throw, and must not call this library. Never
   * called once the streams of the request are freed. */
  void (*notify)(void* user_data);
  void* notify_user_data;
} ridge_request;
ridge_request ridge_request_default(void);

typedef struct ridge_stream ridge_stream;
ridge_status ridge_submit(ridge_model* model, const ridge_request* request, ridge_stream** stream, ridge_error** error);
/* n answers to one prompt, which is computed once: streams [n]. All are taken or none is. */
ridge_status ridge_submit_n(ridge_model* model, const ridge_request* request, size_t n, ridge_stream** streams,
                            ridge_error** error);
/* A request that goes on where `stream` is: see ridge::Stream::Fork. */
ridge_status ridge_stream_fork(const ridge_stream* stream, const ridge_request* more, ridge_stream** fork,
                               ridge_error** error);

/* ---- reading */

typedef struct ridge_top_logprob {
  int32_t token;
  float logprob;
} ridge_top_logprob;

typedef struct ridge_token_logprob {
  int32_t token;
  float logprob;
  const ridge_top_logprob* top; /* [n_top], best first */
  size_t n_top;
} ridge_token_logprob;

/* Pointers live until the stream is read again or freed. */
typedef struct ridge_event {
  const char* text; /* [text_bytes] and a NUL behind it; perhaps "" */
  size_t text_bytes;
  int32_t token;                       /* -1: text that was held back */
  const ridge_token_logprob* logprobs; /* [n_logprobs] */
  size_t n_logprobs;
  const ridge_token_logprob* prompt_logprobs; /* [n_prompt_logprobs], of the prompt from its second token on */
  size_t n_prompt_logprobs;
} ridge_event;

typedef enum ridge_got { RIDGE_GOT_EVENT = 0, RIDGE_GOT_END, RIDGE_GOT_NOTHING } ridge_got;

/* The next event; NOTHING when none came within timeout_ms (-1: wait as long as it takes). At the end of a request that failed its own error comes
 * back, and got is RIDGE_GOT_END. */
ridge_status ridge_stream_next(ridge_stream* stream, int64_t timeout_ms, ridge_got* got, ridge_event* event,
                               ridge_error** error);
/* Calls on_event for each event up to the end, on the caller's thread. A return of other than 0 cancels the request and ends this call with
 * RIDGE_CANCELLED; the stream may be read on. */
typedef int (*ridge_on_event)(void* user_data, const ridge_event* event);
ridge_status ridge_stream_run(ridge_stream* stream, ridge_on_event on_event, void* user_data, ridge_error** error);
/* Ends the request within one step. From any thread; again, and after the end, it changes nothing. */
ridge_status ridge_stream_cancel(ridge_stream* stream, ridge_error** error);
void ridge_stream_free(ridge_stream* stream);

typedef enum ridge_finish_reason {
  RIDGE_FINISH_STOP = 0,
  RIDGE_FINISH_LENGTH,
  RIDGE_FINISH_CANCELLED,
  RIDGE_FINISH_FAILED
} ridge_finish_reason;

/* Members as in ridge::Receipt. */
typedef struct ridge_receipt {
  ridge_finish_reason reason;
  double tokenize_ms, queue_ms, prefill_ms, decode_ms, sample_ms, detokenize_ms;
  double ttft_ms; /* -1: there was no token */
  double total_ms;
  int64_t prompt_tokens, cached_tokens, computed_tokens, generated_tokens, prompt_chunks, preemptions;
  int64_t drafts_proposed, drafts_accepted, kv_pages;
  double bytes_read;
} ridge_receipt;

/* RIDGE_UNAVAILABLE before the end was read. */
ridge_status ridge_stream_receipt(const ridge_stream* stream, ridge_receipt* receipt, ridge_error** error);
/* All that was read so far; these live until the stream is read again or freed. */
ridge_status ridge_stream_text(const ridge_stream* stream, const char** text, size_t* bytes, ridge_error** error);
ridge_status ridge_stream_ids(const ridge_stream* stream, const int32_t** ids, size_t* count, ridge_error** error);

/* ---- counters: members as in ridge::Stats */

typedef struct ridge_stats {
  int64_t running, waiting;
  int64_t pages, pages_free, pages_held, pages_cached;
  uint64_t submitted, finished, steps, preemptions;
  uint64_t prompt_tokens_submitted, prompt_tokens_computed, prompt_tokens_cached, prompt_tokens_dropped,
      prompt_tokens_pending;
  uint64_t generated_tokens, drafts_proposed, drafts_accepted;
} ridge_stats;
ridge_status ridge_model_stats(const ridge_model* model, ridge_stats* stats, ridge_error** error);

/* ---- embeddings */

typedef struct ridge_embedder ridge_embedder;
/* pooling: "mean", "cls", "last", or NULL for what the file says; normalize: to length 1. */
ridge_status ridge_embedder_load(const ridge_load_options* options, const char* pooling, int normalize,
                                 ridge_embedder** embedder, ridge_error** error);
size_t ridge_embedder_width(const ridge_embedder* embedder); /* 0 of NULL */
/* texts [n]; vectors [n, width]; tokens [n] or NULL: how many each text had. */
ridge_status ridge_embed(const ridge_embedder* embedder, const char* const* texts, size_t n, float* vectors,
                         int64_t* tokens, ridge_error** error);
void ridge_embedder_free(ridge_embedder* embedder);

#ifdef __cplusplus
}
#endif

#endif /* RIDGE_RIDGE_C_H_ */
