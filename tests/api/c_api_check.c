/* Uses and misuses include/ridge/ridge_c.h on a tiny model; tests/python/api_test.py runs it and compares what it prints with the program.
 *
 *   ridge_c_api_check CHAT_MODEL     lines "NAME id id ..."; status 1 and a line "FAILED ..." for each check that fails */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ridge/ridge_c.h"

static int failures = 0;

#define CHECK(condition)                                            \
  do {                                                              \
    if (!(condition)) {                                             \
      failures++;                                                   \
      printf("FAILED %s:%d: %s\n", __FILE__, __LINE__, #condition); \
    }                                                               \
  } while (0)

static void refused(ridge_status status, ridge_error* error, ridge_status wanted, const char* word, int line) {
  if (status != wanted || error == NULL || error->code != wanted || strstr(error->message, word) == NULL ||
      error->where == NULL || error->found == NULL || error->expected == NULL || error->remedy == NULL) {
    failures++;
    printf("FAILED line %d: %s, wanted %s with '%s': %s\n", line, ridge_status_name(status), ridge_status_name(wanted),
           word, error != NULL ? error->message : "no error");
  }
  ridge_error_free(error);
}
#define REFUSED(call, wanted, word)                 \
  do {                                              \
    ridge_error* error = NULL;                      \
    ridge_status status = (call);                   \
    refused(status, error, wanted, word, __LINE__); \
  } while (0)
#define NULL_ARGUMENT(call, name) REFUSED(call, RIDGE_INVALID_ARGUMENT, name)

typedef struct collected {
  char text[4096];
  size_t bytes;
  int events, most;
} collected;

static int collect(void* user_data, const ridge_event* event) {
  collected* into = (collected*)user_data;
  if (into->bytes + event->text_bytes < sizeof(into->text)) {
    memcpy(into->text + into->bytes, event->text, event->text_bytes);
    into->bytes += event->text_bytes;
  }
  into->events++;
  return into->most > 0 && into->events >= into->most;
}

static void print_ids(const char* name, const ridge_stream* stream) {
  const int32_t* ids = NULL;
  size_t count = 0, i;
  CHECK(ridge_stream_ids(stream, &ids, &count, NULL) == RIDGE_OK);
  printf("%s", name);
  for (i = 0; i < count; i++) printf(" %d", (int)ids[i]);
  printf("\n");
}

static ridge_request text_request(const char* text, int64_t max_tokens) {
  ridge_request request = ridge_request_default();
  request.prompt = text;
  request.max_tokens = max_tokens;
  request.ignore_end = 1;
  request.sampling.temperature = 0;
  return request;
}

static void life_cycle(ridge_model* model) {
  ridge_request request = text_request("the quick brown fox", 20);
  ridge_stream *stream = NULL, *fork = NULL;
  ridge_error* error = NULL;
  ridge_receipt receipt;
  collected got;
  const char* text = NULL;
  size_t bytes = 0;
  ridge_got what;
  ridge_event event;
  memset(&got, 0, sizeof(got));
  request.logprobs = 1;
  CHECK(ridge_submit(model, &request, &stream, &error) == RIDGE_OK && error == NULL);
  REFUSED(ridge_stream_receipt(stream, &receipt, &error), RIDGE_UNAVAILABLE, "receipt");
  CHECK(ridge_stream_next(stream, -1, &what, &event, NULL) == RIDGE_OK && what == RIDGE_GOT_EVENT);
  CHECK(event.text != NULL && event.text[event.text_bytes] == '\0' && event.token >= 0);
  if (event.n_logprobs > 0) CHECK(event.logprobs[0].n_top == 1 && event.logprobs[0].top[0].logprob <= 0);
  memcpy(got.text, event.text, event.text_bytes);
  got.bytes = event.text_bytes;
  CHECK(ridge_stream_run(stream, collect, &got, &error) == RIDGE_OK && error == NULL);
  CHECK(ridge_stream_text(stream, &text, &bytes, NULL) == RIDGE_OK && bytes == got.bytes &&
        memcmp(text, got.text, bytes) == 0);
  print_ids("greedy", stream);
  CHECK(ridge_stream_receipt(stream, &receipt, NULL) == RIDGE_OK);
  CHECK(receipt.reason == RIDGE_FINISH_LENGTH && receipt.generated_tokens == 20 && receipt.bytes_read > 0);
  CHECK(ridge_stream_next(stream, 0, &what, &event, NULL) == RIDGE_OK && what == RIDGE_GOT_END);
  request = text_request(NULL, 5);
  request.prompt_logprobs = 1;
  CHECK(ridge_stream_fork(stream, &request, &fork, NULL) == RIDGE_OK);
  CHECK(ridge_stream_next(fork, -1, &what, &event, NULL) == RIDGE_OK && event.n_prompt_logprobs == 1);
  CHECK(event.prompt_logprobs[0].n_top == 1 &&
        event.prompt_logprobs[0].logprob <= event.prompt_logprobs[0].top[0].logprob);
  memset(&got, 0, sizeof(got));
  CHECK(ridge_stream_run(fork, collect, &got, NULL) == RIDGE_OK && got.events >= 5);
  print_ids("fork", fork);
  ridge_stream_free(stream); /* the parent first */
  ridge_stream_free(fork);
}

static void chat(ridge_model* model) {
  ridge_message messages[2] = {{"system", "S"}, {"user", "Hi"}};
  ridge_request request = text_request(NULL, 8);
  ridge_stream* streams[3] = {NULL, NULL, NULL};
  collected got;
  size_t i;
  request.messages = messages;
  request.n_messages = 2;
  CHECK(ridge_submit_n(model, &request, 3, streams, NULL) == RIDGE_OK);
  for (i = 0; i < 3; i++) {
    memset(&got, 0, sizeof(got));
    CHECK(ridge_stream_run(streams[i], collect, &got, NULL) == RIDGE_OK);
    print_ids("chat", streams[i]);
    ridge_stream_free(streams[i]);
  }
}

static void cancel(ridge_model* model) {
  ridge_request request = text_request("the", -1);
  ridge_stream* stream = NULL;
  ridge_receipt receipt;
  ridge_got what;
  ridge_event event;
  collected got;
  memset(&got, 0, sizeof(got));
  got.most = 3;
  CHECK(ridge_submit(model, &request, &stream, NULL) == RIDGE_OK);
  REFUSED(ridge_stream_run(stream, collect, &got, &error), RIDGE_CANCELLED, "callback");
  CHECK(got.events == 3);
  CHECK(ridge_stream_cancel(stream, NULL) == RIDGE_OK && ridge_stream_cancel(stream, NULL) == RIDGE_OK);
  do {
    CHECK(ridge_stream_next(stream, -1, &what, &event, NULL) == RIDGE_OK);
  } while (what != RIDGE_GOT_END);
  CHECK(ridge_stream_receipt(stream, &receipt, NULL) == RIDGE_OK && receipt.reason == RIDGE_FINISH_CANCELLED);
  CHECK(ridge_stream_cancel(stream, NULL) == RIDGE_OK);
  ridge_stream_free(stream);
  CHECK(ridge_submit(model, &request, &stream, NULL) == RIDGE_OK);
  ridge_stream_free(stream); /* while it runs */
}

static void tokens(ridge_model* model) {
  int32_t ids[64];
  char text[64];
  size_t count = 0, bytes = 0;
  CHECK(ridge_tokenize(model, "the quick", 1, ids, 64, &count, NULL) == RIDGE_OK && count > 1 && count < 10);
  CHECK(ridge_detokenize(model, ids, count, text, sizeof(text), &bytes, NULL) == RIDGE_OK &&
        strcmp(text, "the quick") == 0 && bytes == 9);
  CHECK(ridge_detokenize(model, ids, count, text, 4, &bytes, NULL) == RIDGE_OK && strcmp(text, "the") == 0 &&
        bytes == 9);
  CHECK(ridge_detokenize(model, ids, count, NULL, 0, &bytes, NULL) == RIDGE_OK && bytes == 9);
  CHECK(ridge_tokenize(model, "the quick", 1, NULL, 0, &bytes, NULL) == RIDGE_OK && bytes == count);
  REFUSED(ridge_tokenize(model, "\xff", 1, ids, 64, &count, &error), RIDGE_INVALID_ARGUMENT, "UTF-8");
  REFUSED(ridge_tokenize(model, "a", 7, ids, 64, &count, &error), RIDGE_INVALID_ARGUMENT, "add_special");
}

static void misuse(ridge_model* model, const char* path) {
  ridge_load_options options = ridge_load_options_default();
  ridge_request request = text_request("the", 2);
  const char* stops[1] = {NULL};
  ridge_model* other = (ridge_model*)1;
  ridge_stream* stream = (ridge_stream*)1;
  ridge_embedder* embedder = NULL;
  ridge_stats stats;
  ridge_got what;
  ridge_event event;
  ridge_receipt receipt;
  int32_t id = 0;
  size_t n = 0;
  const char* text = NULL;
  const int32_t* ids = NULL;
  float vector[8];
  NULL_ARGUMENT(ridge_model_load(NULL, &other, &error), "options");
  CHECK(other == NULL);
  NULL_ARGUMENT(ridge_model_load(&options, &other, &error), "options.path");
  options.path = path;
  NULL_ARGUMENT(ridge_model_load(&options, NULL, &error), "model");
  options.struct_bytes = 3;
  REFUSED(ridge_model_load(&options, &other, &error), RIDGE_INVALID_ARGUMENT, "ridge_load_options_default");
  options = ridge_load_options_default();
  options.path = "/no/such/model.gguf";
  REFUSED(ridge_model_load(&options, &other, &error), RIDGE_NOT_FOUND, "/no/such/model.gguf");
  CHECK(ridge_model_load(&options, &other, NULL) == RIDGE_NOT_FOUND);
  options.path = path;
  options.prefix_cache = 2;
  REFUSED(ridge_model_load(&options, &other, &error), RIDGE_INVALID_ARGUMENT, "prefix_cache");
  NULL_ARGUMENT(ridge_submit(NULL, &request, &stream, &error), "model");
  CHECK(stream == NULL);
  NULL_ARGUMENT(ridge_submit(model, NULL, &stream, &error), "request");
  NULL_ARGUMENT(ridge_submit(model, &request, NULL, &error), "stream");
  request.n_stop = 1;
  NULL_ARGUMENT(ridge_submit(model, &request, &stream, &error), "request.stop");
  request.stop = stops;
  NULL_ARGUMENT(ridge_submit(model, &request, &stream, &error), "request.stop");
  request = text_request("the", 2);
  request.n_messages = 1;
  NULL_ARGUMENT(ridge_submit(model, &request, &stream, &error), "request.messages");
  request = text_request("the", 2);
  request.n_prompt_ids = 4;
  NULL_ARGUMENT(ridge_submit(model, &request, &stream, &error), "request.prompt_ids");
  request = text_request("the", 2);
  request.sampling.n_logit_bias = 1;
  NULL_ARGUMENT(ridge_submit(model, &request, &stream, &error), "logit_bias");
  request = text_request(NULL, 2);
  REFUSED(ridge_submit(model, &request, &stream, &error), RIDGE_INVALID_ARGUMENT, "one of prompt");
  request = text_request("the", 2);
  request.ignore_end = 5;
  REFUSED(ridge_submit(model, &request, &stream, &error), RIDGE_INVALID_ARGUMENT, "ignore_end");
  request.struct_bytes--;
  REFUSED(ridge_submit(model, &request, &stream, &error), RIDGE_INVALID_ARGUMENT, "ridge_request_default");
  CHECK(stream == NULL);
  NULL_ARGUMENT(ridge_stream_fork(NULL, &request, &stream, &error), "stream");
  NULL_ARGUMENT(ridge_stream_next(NULL, 0, &what, &event, &error), "stream");
  NULL_ARGUMENT(ridge_stream_run(NULL, collect, NULL, &error), "stream");
  NULL_ARGUMENT(ridge_stream_cancel(NULL, &error), "stream");
  NULL_ARGUMENT(ridge_stream_receipt(NULL, &receipt, &error), "stream");
  NULL_ARGUMENT(ridge_stream_text(NULL, &text, &n, &error), "stream");
  NULL_ARGUMENT(ridge_stream_ids(NULL, &ids, &n, &error), "stream");
  NULL_ARGUMENT(ridge_model_stats(NULL, &stats, &error), "model");
  NULL_ARGUMENT(ridge_model_stats(model, NULL, &error), "stats");
  NULL_ARGUMENT(ridge_model_close(NULL, &error), "model");
  NULL_ARGUMENT(ridge_model_get_info(NULL, NULL, &error), "model");
  NULL_ARGUMENT(ridge_model_get_info(model, NULL, &error), "info");
  NULL_ARGUMENT(ridge_tokenize(NULL, "a", 1, &id, 1, &n, &error), "model");
  NULL_ARGUMENT(ridge_tokenize(model, NULL, 1, &id, 1, &n, &error), "text");
  NULL_ARGUMENT(ridge_tokenize(model, "a", 1, NULL, 1, &n, &error), "ids");
  NULL_ARGUMENT(ridge_tokenize(model, "a", 1, &id, 1, NULL, &error), "count");
  NULL_ARGUMENT(ridge_detokenize(model, NULL, 1, NULL, 0, &n, &error), "ids");
  NULL_ARGUMENT(ridge_embedder_load(&options, NULL, 1, NULL, &error), "embedder");
  NULL_ARGUMENT(ridge_embedder_load(NULL, NULL, 1, &embedder, &error), "options");
  NULL_ARGUMENT(ridge_embed(NULL, &text, 1, vector, NULL, &error), "embedder");
  CHECK(ridge_submit(model, &(ridge_request){0}, &stream, NULL) == RIDGE_INVALID_ARGUMENT);
  CHECK(ridge_embedder_width(NULL) == 0);
  ridge_error_free(NULL);
  ridge_stream_free(NULL);
  ridge_embedder_free(NULL);
  ridge_model_free(NULL);
  CHECK(strcmp(ridge_status_name(RIDGE_OUT_OF_RANGE), "out_of_range") == 0);
  CHECK(strcmp(ridge_status_name((ridge_status)99), "unknown") == 0 && strchr(ridge_version(), '.') != NULL);
}

static void embeddings(const char* path) {
  ridge_load_options options = ridge_load_options_default();
  ridge_embedder* embedder = NULL;
  const char* texts[2] = {"the quick", "fox"};
  float* vectors;
  int64_t counts[2];
  size_t width;
  options.path = path;
  CHECK(ridge_embedder_load(&options, "mean", 1, &embedder, NULL) == RIDGE_OK);
  width = ridge_embedder_width(embedder);
  vectors = (float*)calloc(2 * width, sizeof(float));
  CHECK(ridge_embed(embedder, texts, 2, vectors, counts, NULL) == RIDGE_OK && counts[0] > counts[1]);
  CHECK(width > 0 && vectors[0] != 0 && vectors[width] != 0 &&
        memcmp(vectors, vectors + width, width * sizeof(float)) != 0);
  CHECK(ridge_embed(embedder, NULL, 0, NULL, NULL, NULL) == RIDGE_OK);
  free(vectors);
  ridge_embedder_free(embedder);
}

static void closed(const char* path) {
  ridge_load_options options = ridge_load_options_default();
  ridge_request request = text_request("the", -1);
  ridge_model* model = NULL;
  ridge_stream *stream = NULL, *fork = NULL;
  ridge_receipt receipt;
  collected got;
  memset(&got, 0, sizeof(got));
  options.path = path;
  CHECK(ridge_model_load(&options, &model, NULL) == RIDGE_OK);
  CHECK(ridge_submit(model, &request, &stream, NULL) == RIDGE_OK);
  CHECK(ridge_model_close(model, NULL) == RIDGE_OK && ridge_model_close(model, NULL) == RIDGE_OK);
  REFUSED(ridge_submit(model, &request, &fork, &error), RIDGE_UNAVAILABLE, "closed");
  request.prompt = NULL;
  REFUSED(ridge_stream_fork(stream, &request, &fork, &error), RIDGE_UNAVAILABLE, "closed");
  ridge_model_free(model); /* before its stream */
  CHECK(ridge_stream_run(stream, collect, &got, NULL) == RIDGE_OK);
  CHECK(ridge_stream_receipt(stream, &receipt, NULL) == RIDGE_OK && receipt.reason == RIDGE_FINISH_CANCELLED);
  ridge_stream_free(stream);
}

int main(int argc, char** argv) {
  ridge_load_options options = ridge_load_options_default();
  ridge_model* model = NULL;
  ridge_stats stats;
  ridge_model_info info;
  size_t i;
  if (argc != 2) return 2;
  options.path = argv[1];
  options.threads = 2;
  options.context_tokens = 30000; /* more than the model was trained for: a note */
  CHECK(ridge_model_load(&options, &model, NULL) == RIDGE_OK);
  CHECK(ridge_model_get_info(model, &info, NULL) == RIDGE_OK && strcmp(info.architecture, "llama") == 0);
  CHECK(info.threads == 2 && info.has_chat_template == 1 && info.context_tokens == 30000 && info.vocab > 256);
  for (i = 0; i < info.n_notes && strstr(info.notes[i], "20000") == NULL; i++) {
  }
  CHECK(i < info.n_notes); /* beside others, of a machine with one processor for instance */
  life_cycle(model);
  chat(model);
  cancel(model);
  tokens(model);
  misuse(model, argv[1]);
  CHECK(ridge_model_stats(model, &stats, NULL) == RIDGE_OK && stats.submitted >= 7);
  CHECK(stats.pages_free + stats.pages_held + stats.pages_cached == stats.pages);
  ridge_model_free(model);
  embeddings(argv[1]);
  closed(argv[1]);
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
