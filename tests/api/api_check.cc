// Uses and misuses include/ridge/ridge.h on a tiny model; tests/python/api_test.py runs it and compares what it prints with the program.
//
//   ridge_api_check CHAT_MODEL BASE_MODEL     one line "NAME id id ..." per answer; status 1 and a line "FAILED ..." for each check that fails
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ridge/ridge.h"
#include "ridge/ridge_c.h"

namespace {

using ridge::Code;
using ridge::Model;
using ridge::Request;
using ridge::Stream;

int failures = 0;

#define CHECK(condition)                                                 \
  do {                                                                   \
    if (!(condition)) {                                                  \
      failures++;                                                        \
      std::printf("FAILED %s:%d: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                    \
  } while (0)

template <class T>
void Refused(const ridge::Result<T>& result, Code code, const std::string& word, int line) {
  if (!result && result.error().code == code && result.error().Message().find(word) != std::string::npos) return;
  failures++;
  std::printf("FAILED line %d: wanted %s with '%s', got %s\n", line, std::string(ridge::Name(code)).c_str(),
              word.c_str(), result ? "no error" : result.error().Message().c_str());
}
#define REFUSED(expr, code, word) Refused(expr, code, word, __LINE__)

void Print(const char* name, const std::vector<int32_t>& ids) {
  std::printf("%s", name);
  for (const int32_t id : ids) std::printf(" %d", id);
  std::printf("\n");
}

const std::string kPrompt = "the quick brown fox and the lazy dog, again and again and again";

Request Sampled(int64_t n, uint64_t seed = 7) {
  return {.prompt = kPrompt, .max_tokens = n, .ignore_end = true, .sampling = {.temperature = 0.9, .seed = seed}};
}

ridge::Answer Finish(ridge::Result<Stream> stream) {
  CHECK(stream.has_value());
  if (!stream) return {};
  ridge::Result<ridge::Answer> answer = stream->Finish();
  CHECK(answer.has_value());
  return answer ? *answer : ridge::Answer();
}

void Idle(const Model& model) {
  for (int i = 0; i < 2000 && (model.stats().running > 0 || model.stats().waiting > 0); i++)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const ridge::Stats s = model.stats();
  CHECK(s.running == 0 && s.waiting == 0 && s.pages_held == 0);
  CHECK(s.pages_free + s.pages_held + s.pages_cached == s.pages);
  CHECK(s.submitted == s.finished);
  CHECK(s.prompt_tokens_submitted ==
        s.prompt_tokens_computed + s.prompt_tokens_cached + s.prompt_tokens_dropped + s.prompt_tokens_pending);
}

void Answers(const Model& model) {
  Print("greedy", Finish(model.Submit({.prompt = kPrompt, .max_tokens = 20, .sampling = {.temperature = 0}})).ids);
  const ridge::Answer sampled = Finish(model.Submit(Sampled(30)));
  Print("sampled", sampled.ids);
  CHECK(sampled.receipt.reason == ridge::FinishReason::kLength && sampled.ids.size() == 30);
  Print("chat",
        Finish(model.Submit(
                   {.messages = {{"system", "S"}, {"user", "Hi"}}, .max_tokens = 8, .sampling = {.temperature = 0}}))
            .ids);
  const auto ids = model.Tokenize(kPrompt);
  CHECK(ids && model.Detokenize(*ids) == kPrompt);
  Print("of_ids", Finish(model.Submit({.prompt_ids = *ids, .max_tokens = 20, .sampling = {.temperature = 0}})).ids);

  // Read in steps, with text and log-probabilities that join to the whole.
  Request request = Sampled(30);
  request.logprobs = 2;
  std::atomic<int> notified = 0;
  request.notify = [&notified] { notified++; };
  auto stream = model.Submit(request);
  CHECK(stream.has_value() && !stream->receipt());
  std::string text;
  size_t scored = 0;
  ridge::Event event;
  while (stream->Next(event) == Stream::Got::kEvent) {
    text += event.text;
    for (const ridge::TokenLogprob& t : event.logprobs) {
      scored++;
      CHECK(t.logprob <= 0 && t.top.size() == 2);
    }
  }
  CHECK(stream->Next(event) == Stream::Got::kEnd && text == stream->text() && text == sampled.text);
  CHECK(stream->ids() == sampled.ids && stream->prompt_ids() == *ids && scored == 30);
  CHECK(notified >= 30);
  const auto again = stream->Finish();
  CHECK(again && again->text == text && again->logprobs.size() == 30);

  const ridge::Receipt r = *stream->receipt();
  CHECK(r.prompt_tokens == static_cast<int64_t>(ids->size()) && r.cached_tokens == r.prompt_tokens - 1);
  CHECK(r.generated_tokens == 30 && r.computed_tokens >= 1 + 29 && r.kv_pages >= (r.prompt_tokens + 29) / 32);
  CHECK(r.ttft_ms > 0 && r.total_ms >= r.ttft_ms && r.total_ms + 1e-6 >= r.queue_ms + r.prefill_ms + r.decode_ms);
  CHECK(r.drafts_accepted <= r.drafts_proposed && r.bytes_read > 0);

  // What was generated has the same log-probabilities where it is a prompt.
  Request scored_request{.prompt_ids = *ids, .max_tokens = 0, .prompt_logprobs = 2};
  scored_request.prompt_ids.insert(scored_request.prompt_ids.end(), sampled.ids.begin(), sampled.ids.end());
  const ridge::Answer scores = Finish(model.Submit(scored_request));
  CHECK(scores.ids.empty() && scores.receipt.cached_tokens == 0);
  CHECK(scores.prompt_logprobs.size() + 1 == scored_request.prompt_ids.size());
  for (size_t i = 0; i < 30; i++) {
    const ridge::TokenLogprob& made = again->logprobs[i];
    const ridge::TokenLogprob& found = scores.prompt_logprobs[ids->size() - 1 + i];
    CHECK(made.token == found.token && made.logprob == found.logprob && made.top == found.top);
  }

  Request none = Sampled(0);
  none.use_cache = false;
  const ridge::Answer only = Finish(model.Submit(none));
  CHECK(only.ids.empty() && only.receipt.computed_tokens == only.receipt.prompt_tokens);
  // One step reads every weight but the output matrix once; of 20 more tokens alone each reads them all.
  Request some = Sampled(21);
  some.use_cache = false;
  const double one = only.receipt.bytes_read, more = Finish(model.Submit(some)).receipt.bytes_read;
  CHECK(one > 0 && more > 10 * one && more < 60 * one);
}

void Forks(const Model& model) {
  const uint64_t before = model.stats().prompt_tokens_computed;
  Request request = Sampled(20);
  request.prompt = "one prompt for three answers, which is longer than a page of thirty two tokens, to be sure of it";
  auto three = model.Submit(request, 3);
  CHECK(three && three->size() == 3);
  std::vector<ridge::Answer> answers;
  for (Stream& stream : *three) answers.push_back(*stream.Finish());
  CHECK(model.stats().prompt_tokens_computed - before <= three->front().prompt_ids().size() + 2);
  CHECK(answers[0].ids == Finish(model.Submit(request)).ids);
  CHECK(answers[0].ids != answers[1].ids && answers[1].ids != answers[2].ids);

  // A fork of a running request goes on as the request itself does, as long as nothing differs.
  auto parent = model.Submit(Sampled(40));
  ridge::Event event;
  while (parent->ids().size() < 9) CHECK(parent->Next(event) == Stream::Got::kEvent);
  Request rest = Sampled(31);
  rest.prompt.clear();
  auto fork = parent->Fork(rest);
  Request other = rest;
  other.sampling.seed = 8;
  auto different = parent->Fork(other);
  const ridge::Answer whole = *parent->Finish(), forked = Finish(std::move(fork));
  CHECK(std::vector<int32_t>(whole.ids.begin() + 9, whole.ids.end()) == forked.ids);
  CHECK(forked.receipt.cached_tokens >= 32);
  CHECK(Finish(std::move(different)).ids != forked.ids);

  // Of a finished one with more text: the same as the whole text in one prompt.
  Request more{.prompt = " and then", .max_tokens = 10, .sampling = {.temperature = 0}};
  const ridge::Answer after = Finish(parent->Fork(more));
  std::vector<int32_t> ids = parent->prompt_ids();
  ids.insert(ids.end(), whole.ids.begin(), whole.ids.end());
  const auto tail = *model.Tokenize(" and then", false);
  ids.insert(ids.end(), tail.begin(), tail.end());
  CHECK(after.ids == Finish(model.Submit({.prompt_ids = ids, .max_tokens = 10, .sampling = {.temperature = 0}})).ids);
  CHECK(after.receipt.cached_tokens + static_cast<int64_t>(tail.size()) + 2 >= after.receipt.prompt_tokens);

  // The end token stays out.
  Request ends = Sampled(5);
  ends.ignore_end = false;
  ends.sampling.logit_bias = {{2, 1000.0}};
  auto ended = model.Submit(ends);
  CHECK(ended->Finish()->ids == std::vector<int32_t>{2});
  CHECK(ended->Fork(rest)->prompt_ids() == ended->prompt_ids());

  REFUSED(parent->Fork({.messages = {{"user", "x"}}}), Code::kInvalidArgument, "messages");
  REFUSED(parent->Fork({.prompt = "a", .prompt_ids = {5}}), Code::kInvalidArgument, "one of prompt");
}

void CancelAndDestroy(const Model& model) {
  auto stream = model.Submit(Sampled(-1));
  ridge::Event event;
  CHECK(stream->Next(event) == Stream::Got::kEvent);
  std::thread canceller([&] { stream->Cancel(); });
  canceller.join();
  stream->Cancel();
  const auto answer = stream->Finish();
  CHECK(answer && answer->receipt.reason == ridge::FinishReason::kCancelled && !stream->error());
  stream->Cancel();
  CHECK(stream->Next(event) == Stream::Got::kEnd);
  for (int i = 0; i < 20; i++) {
    auto running = model.Submit(Sampled(-1, static_cast<uint64_t>(i)));
    CHECK(running.has_value());
    if (i % 2 == 0) running->Next(event);
    if (i % 3 == 0) *running = *model.Submit(Sampled(2));  // assigning over a running one ends it
  }
  Idle(model);
}

// Who destroys the streams of a request may destroy what its notify looks at.
void NotifyAfterTheEnd(const Model& model) {
  std::atomic<bool> gone = false;
  std::atomic<int> calls = 0, late = 0;
  for (int i = 0; i < 100; i++) {
    gone = false;
    Request request = Sampled(-1, static_cast<uint64_t>(i));
    request.notify = [&] { (gone ? late : calls)++; };
    {
      auto two = model.Submit(request, 2);
      ridge::Event event;
      for (int n = 0; n < 3; n++) two->front().Next(event);  // the calls for two of them are over then
      two->pop_back();
    }
    gone = true;
    if (i % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  Idle(model);
  CHECK(calls > 100 && late == 0);
}

void Threads(const Model& model) {
  const std::vector<int32_t> alone = Finish(model.Submit(Sampled(30))).ids;
  std::vector<std::thread> threads;
  std::vector<int> same(6);
  for (size_t t = 0; t < same.size(); t++) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 4; i++) {
        auto stream = model.Submit(Sampled(30));
        const auto answer = stream->Finish();
        same[t] += answer && answer->ids == alone ? 1 : 0;
        (void)model.stats();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int n : same) CHECK(n == 4);
  Idle(model);
}

void WrongRequests(const Model& model, const Model& base) {
  REFUSED(model.Submit({}), Code::kInvalidArgument, "one of prompt");
  REFUSED(model.Submit({.prompt = "a", .prompt_ids = {5}}), Code::kInvalidArgument, "one of prompt");
  REFUSED(model.Submit({.prompt = "a\xff"}), Code::kInvalidArgument, "byte 1");
  REFUSED(model.Submit({.prompt_ids = {1 << 30}}), Code::kInvalidArgument, "vocabulary");
  REFUSED(model.Submit({.prompt_ids = {-1}}), Code::kInvalidArgument, "vocabulary");
  REFUSED(model.Submit({.prompt = "a", .max_tokens = -2}), Code::kInvalidArgument, "max_tokens");
  REFUSED(model.Submit({.prompt = "a", .max_tokens = 100000}), Code::kOutOfRange, "context");
  REFUSED(model.Submit({.prompt = std::string(30000, 'x')}), Code::kOutOfRange, "30000 tokens");
  REFUSED(model.Submit({.prompt = "a", .stop = {""}}), Code::kInvalidArgument, "stop");
  REFUSED(model.Submit({.prompt = "a", .logprobs = 21}), Code::kInvalidArgument, "logprobs");
  REFUSED(model.Submit({.prompt = "a", .prompt_logprobs = 21}), Code::kInvalidArgument, "prompt_logprobs");
  REFUSED(model.Submit({.prompt = "a", .template_kwargs = "{}"}), Code::kInvalidArgument, "template_kwargs");
  REFUSED(model.Submit({.messages = {{"user", "x"}}, .template_kwargs = "[1"}), Code::kInvalidArgument,
          "template_kwargs");
  REFUSED(model.Submit({.prompt = "a", .sampling = {.temperature = -1}}), Code::kInvalidArgument, "temperature");
  REFUSED(model.Submit({.prompt = "a", .sampling = {.logit_bias = {{1 << 20, 1.0}}}}), Code::kInvalidArgument,
          "logit_bias");
  REFUSED(model.Submit({.prompt = "a"}, 0), Code::kInvalidArgument, "n: ");
  REFUSED(model.Submit({.prompt = "a"}, 1 << 30), Code::kInvalidArgument, "n: ");
  REFUSED(base.Submit({.messages = {{"user", "x"}}}), Code::kUnsupported, "chat template");
  REFUSED(model.Tokenize("\xff"), Code::kInvalidArgument, "UTF-8");
  CHECK(model.Detokenize({-1, 1 << 30}).empty());
}

void WrongLoads(const std::string& path) {
  REFUSED(Model::Load({.path = "/no/such/model.gguf"}), Code::kNotFound, "/no/such/model.gguf");
  REFUSED(Model::Load({}), Code::kNotFound, "");
  REFUSED(Model::Load({.path = "/dev/null"}), Code::kInvalidArgument, "regular file");
  REFUSED(Model::Load({.path = path, .threads = -1}), Code::kOutOfRange, "threads");
  REFUSED(Model::Load({.path = path, .isa = "mmx"}), Code::kInvalidArgument, "mmx");
  REFUSED(Model::Load({.path = path, .context_tokens = -2}), Code::kInvalidArgument, "context_tokens");
  REFUSED(Model::Load({.path = path, .chunk_tokens = 4}), Code::kInvalidArgument, "chunk_tokens");
  REFUSED(Model::Load({.path = path, .running = 0}), Code::kInvalidArgument, "running");
  REFUSED(Model::Load({.path = path, .waiting = 0}), Code::kInvalidArgument, "waiting");
  REFUSED(Model::Load({.path = path, .kv_bytes = 1}), Code::kOutOfRange, "kv_bytes");
  REFUSED(Model::Load({.path = path, .k_type = "q7"}), Code::kInvalidArgument, "k_type");
  REFUSED(ridge::Embedder::Load({.path = path, .running = 2}), Code::kInvalidArgument, "running");
  REFUSED(ridge::Embedder::Load({.path = path}, {.pooling = "max"}), Code::kUsage, "pooling");
}

void EmptyHandles() {
  Model model;
  Stream stream;
  ridge::Embedder embedder;
  ridge::Event event;
  REFUSED(model.Submit({.prompt = "a"}), Code::kInvalidArgument, "empty");
  REFUSED(model.Tokenize("a"), Code::kInvalidArgument, "empty");
  CHECK(model.Detokenize({5}).empty() && model.stats().pages == 0 && model.info().vocab == 0);
  model.Close();
  CHECK(stream.Next(event) == Stream::Got::kEnd);
  stream.Cancel();
  REFUSED(stream.Finish(), Code::kInvalidArgument, "empty");
  REFUSED(stream.Fork({}), Code::kInvalidArgument, "empty");
  CHECK(!stream.receipt() && !stream.error() && stream.ids().empty() && stream.prompt_ids().empty() &&
        stream.text().empty());
  REFUSED(embedder.Embed({"a"}), Code::kInvalidArgument, "empty");
  CHECK(embedder.width() == 0);
}

// The model's handle goes first; what runs goes on. Then a closed model.
void Lifetimes(const std::string& path) {
  Stream stream;
  std::vector<int32_t> expected;
  {
    auto model = Model::Load({.path = path, .threads = 1, .running = 2});
    CHECK(model.has_value());
    expected = Finish(model->Submit(Sampled(60))).ids;
    stream = *model->Submit(Sampled(60));
  }
  const auto answer = stream.Finish();
  CHECK(answer && answer->ids == expected);
  CHECK(Finish(stream.Fork({.max_tokens = 3, .sampling = {.temperature = 0}})).ids.size() == 3);

  auto model = Model::Load({.path = path, .threads = 1, .context_tokens = 20000});
  auto running = model->Submit(Sampled(-1));
  ridge::Event event;
  CHECK(running->Next(event) == Stream::Got::kEvent);
  model->Close();
  const auto ended = running->Finish();
  CHECK(ended && ended->receipt.reason == ridge::FinishReason::kCancelled);
  model->Close();
  REFUSED(model->Submit({.prompt = "a"}), Code::kUnavailable, "closed");
  REFUSED(running->Fork({}), Code::kUnavailable, "closed");
  CHECK(model->Tokenize("the").has_value());
  Idle(*model);
}

void Embeddings(const std::string& path) {
  auto embedder = ridge::Embedder::Load({.path = path});
  CHECK(embedder.has_value());
  const auto two = embedder->Embed({"the quick", "fox"});
  CHECK(two && two->size() == 2 && static_cast<int64_t>(two->at(0).values.size()) == embedder->width());
  CHECK(two->at(0).values == embedder->Embed({"the quick"})->at(0).values);
  std::printf("embedding");
  for (const float v : two->at(0).values) std::printf(" %.17g", static_cast<double>(v));
  std::printf("\n");
  REFUSED(embedder->Embed({"a", ""}), Code::kInvalidArgument, "input[1]");
  REFUSED(embedder->Embed({"a", "\xff"}), Code::kInvalidArgument, "input[1]");
  REFUSED(embedder->Embed({std::string(5000, 'x')}), Code::kOutOfRange, "input[0]");
}

// What only C++ can do to the C functions.
int Throws(void*, const ridge_event*) { throw std::runtime_error("a callback's own"); }

void ThrowingCallback(const std::string& path) {
  ridge_load_options options = ridge_load_options_default();
  options.path = path.c_str();
  ridge_model* model = nullptr;
  ridge_stream* stream = nullptr;
  ridge_error* error = nullptr;
  CHECK(ridge_model_load(&options, &model, nullptr) == RIDGE_OK);
  ridge_request request = ridge_request_default();
  request.prompt = "the";
  CHECK(ridge_submit(model, &request, &stream, nullptr) == RIDGE_OK);
  CHECK(ridge_stream_run(stream, Throws, nullptr, &error) == RIDGE_INTERNAL);
  CHECK(error != nullptr && std::strstr(error->message, "callback threw") != nullptr);
  ridge_error_free(error);
  ridge_stream_free(stream);
  ridge_model_free(model);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  auto model = Model::Load({.path = argv[1], .threads = 2, .context_tokens = 20000, .running = 6});
  auto base = Model::Load({.path = argv[2], .threads = 1, .running = 1});
  CHECK(model.has_value() && base.has_value());
  if (!model || !base) {
    std::printf("FAILED %s\n", (!model ? model : base).error().Message().c_str());
    return 1;
  }
  const ridge::ModelInfo info = model->info();
  CHECK(info.architecture == "llama" && info.threads == 2 && info.has_chat_template && info.context_tokens == 20000);
  CHECK(info.kv_pages * info.page_tokens >= 6 * 20000 && info.kv_bytes > 0 && info.weight_bytes > 0);
  Answers(*model);
  Forks(*model);
  CancelAndDestroy(*model);
  NotifyAfterTheEnd(*model);
  Threads(*model);
  WrongRequests(*model, *base);
  Idle(*model);
  WrongLoads(argv[1]);
  EmptyHandles();
  Lifetimes(argv[1]);
  Embeddings(argv[2]);
  ThrowingCallback(argv[1]);
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
