// The client of RunLoad: libcurl's multi interface in one thread, with a timer that wakes it when the next request is due.
#include <curl/curl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/json_text.h"
#include "lab/load/load.h"

namespace ridge::lab {
namespace {

using Json = nlohmann::json;

// Of a server that may be broken or worse.
constexpr size_t kMostDocumentBytes = 4 << 20;  // of a GET's answer, of an error's body, of one line of a stream
constexpr size_t kMostStreamBytes = 256 << 20;  // of one answer
constexpr double kMostTokens = 1e9, kMostMs = 1e9;

double Now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

double ThreadCpu() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Transfer {
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  std::string body, buffer;
  RequestRecord* record = nullptr;
  double start_s = 0, chunk_delay_s = 0;
  size_t received_bytes = 0;
  bool done = false;  // [DONE] came
  bool keep_text = false;
  std::string server_error;
  std::string too_long;  // why it was broken off
  ~Transfer() {
    if (easy != nullptr) curl_easy_cleanup(easy);
    curl_slist_free_all(headers);
  }
};

size_t OnBytes(char* bytes, size_t size, size_t count, void* user) {
  Transfer& t = *static_cast<Transfer*>(user);
  const double now = Now() - t.start_s;
  t.buffer.append(bytes, size * count);
  t.received_bytes += size * count;
  if (t.received_bytes > kMostStreamBytes) {
    t.too_long = fmt::format("broken off: an answer above {} MiB", kMostStreamBytes >> 20);
    return 0;
  }
  long status = 0;
  curl_easy_getinfo(t.easy, CURLINFO_RESPONSE_CODE, &status);
  if (status != 200) {  // the body says why
    if (t.buffer.size() <= kMostDocumentBytes) return size * count;
    t.too_long = fmt::format("broken off: HTTP {} with a body above {} MiB", status, kMostDocumentBytes >> 20);
    return 0;
  }
  size_t begin = 0;
  for (size_t end; (end = t.buffer.find('\n', begin)) != std::string::npos; begin = end + 1) {
    std::string_view line(t.buffer.data() + begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.starts_with("data:")) continue;
    line.remove_prefix(5);
    const AnswerEvent event = ParseEvent(line);
    if (event.done) t.done = true;
    if (!event.error.empty()) t.server_error = event.error;
    if (event.prompt_tokens) t.record->prompt_tokens = event.prompt_tokens;
    if (event.output_tokens) t.record->output_tokens = event.output_tokens;
    if (t.keep_text) {
      t.record->text += event.content;
      if (!event.finish_reason.empty()) t.record->finish_reason = event.finish_reason;
      if (!event.timings.empty()) t.record->timings = event.timings;
      if (event.cached_tokens) t.record->cached_tokens = event.cached_tokens;
    }
    if (event.engine_s) t.record->engine_s = event.engine_s;
    if (!event.disbelieved.empty()) t.record->disbelieved = event.disbelieved;
    if (!event.text) continue;
    if (t.chunk_delay_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(t.chunk_delay_s));
    t.record->chunks++;
    if (event.content.empty())
      t.record->other_chunks++;
    else if (!t.record->first_content_s)
      t.record->first_content_s = now;
    if (t.keep_text && !t.record->first_token_s) t.record->first_chunk = event.content;
    if (t.record->first_token_s)
      t.record->chunk_s.push_back(now);
    else
      t.record->first_token_s = now;
  }
  t.buffer.erase(0, begin);
  if (t.buffer.size() > kMostDocumentBytes) {
    t.too_long = fmt::format("broken off: a line of the stream above {} MiB", kMostDocumentBytes >> 20);
    return 0;
  }
  return size * count;
}

struct Body {
  std::string text;
  bool too_long = false;
};

size_t OnText(char* bytes, size_t size, size_t count, void* user) {
  Body& body = *static_cast<Body*>(user);
  body.too_long = body.text.size() + size * count > kMostDocumentBytes;
  if (body.too_long) return 0;
  body.text.append(bytes, size * count);
  return size * count;
}

void SetCommon(CURL* easy, const std::string& url, double timeout_s) {
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_PROXY, "");  // a proxy would be measured too
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(timeout_s * 1000));
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
}

std::string BaseOf(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  if (url.ends_with("/v1")) url.resize(url.size() - 3);
  return url;
}

class Client {
 public:
  Client(const LoadOptions& options, std::string model)
      : options_(options), base_(BaseOf(options.url)), model_(std::move(model)) {
    multi_ = curl_multi_init();
    curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, 4096L);
    timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  }
  ~Client() {
    for (auto& t : transfers_) curl_multi_remove_handle(multi_, t->easy);
    transfers_.clear();
    curl_multi_cleanup(multi_);
    if (timer_ >= 0) close(timer_);
  }

  // The requests `first`, first + 1, ...; schedule empty: closed loop.
  LoadRun Run(int64_t n, int64_t first, const std::vector<double>& schedule, int64_t limit) {
    LoadRun run{.model = model_};
    run.records.resize(static_cast<size_t>(n));
    const double cpu = ThreadCpu(), start = Now();
    timespec raw{};
    clock_gettime(CLOCK_MONOTONIC_RAW, &raw);
    run.begun_raw_s = static_cast<double>(raw.tv_sec) + static_cast<double>(raw.tv_nsec) * 1e-9;
    int64_t next = 0, done = 0;
    full_s_ = -1;
    while (done < n) {
      if (options_.cancelled && options_.cancelled()) {
        run.interrupted = true;
        break;
      }
      const double turn = Now();
      while (next < n && static_cast<int64_t>(transfers_.size()) < limit) {
        const double now = Now() - start;
        const double due = schedule.empty() ? now : schedule[static_cast<size_t>(next)];
        if (due > now) break;
        RequestRecord& record = run.records[static_cast<size_t>(next)];
        record.scheduled_s = due;
        record.held = due < full_s_;
        Start(record, first + next, start);
        next++;
        // Whoever is due while no place is free is late because of the limit.
        if (static_cast<int64_t>(transfers_.size()) >= limit) full_s_ = Now() - start;
      }
      if (static_cast<int64_t>(transfers_.size()) >= limit) full_s_ = Now() - start;
      int running = 0;
      curl_multi_perform(multi_, &running);
      done += Finish(start);
      if (options_.progress) options_.progress(done, n);
      run.longest_turn_s = std::max(run.longest_turn_s, Now() - turn);
      run.busy_s += Now() - turn;
      if (done >= n) break;
      const bool may_start = next < n && static_cast<int64_t>(transfers_.size()) < limit;
      if (may_start && (schedule.empty() || schedule[static_cast<size_t>(next)] <= Now() - start)) continue;
      Wait(may_start && !schedule.empty() ? start + schedule[static_cast<size_t>(next)] : 0);
    }
    run.duration_s = Now() - start;
    run.client_cpu_s = ThreadCpu() - cpu;
    if (run.interrupted) run.records.resize(static_cast<size_t>(next));
    for (auto& t : transfers_)
      t->record->error = "interrupted", t->record->done_s = run.duration_s, curl_multi_remove_handle(multi_, t->easy);
    transfers_.clear();
    return run;
  }

 private:
  std::string PromptOf(int64_t index) const {
    if (options_.prompts.empty() || index < 0) return SyntheticPrompt(options_, index, options_.prompt_words);
    return options_.prompts[static_cast<size_t>(index) % options_.prompts.size()];
  }

  std::string BodyOf(int64_t index, const std::string& prompt) const {
    const bool traced = options_.arrivals == Arrivals::kTrace && index >= 0;
    const auto limit = traced ? options_.trace[static_cast<size_t>(index)].max_tokens : std::nullopt;
    Json body = {{"model", model_},
                 {"max_tokens", limit.value_or(options_.max_tokens)},
                 {"stream", true},
                 {"stream_options", {{"include_usage", true}}},
                 {"temperature", 0}};
    if (options_.chat)
      body["messages"] = Json::array({{{"role", "user"}, {"content", prompt}}});
    else
      body["prompt"] = prompt;
    if (options_.ignore_eos) body["ignore_eos"] = true;
    return body.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  void Start(RequestRecord& record, int64_t index, double start) {
    auto t = std::make_unique<Transfer>();
    t->easy = curl_easy_init();
    std::string prompt = PromptOf(index);
    t->body = BodyOf(index, prompt);
    t->record = &record;
    if (options_.keep_text) record.prompt = std::move(prompt);
    t->start_s = start;
    t->keep_text = options_.keep_text;
    t->chunk_delay_s = options_.chunk_delay_s;
    SetCommon(t->easy, base_ + (options_.chat ? "/v1/chat/completions" : "/v1/completions"), options_.timeout_s);
    t->headers = curl_slist_append(t->headers, "Content-Type: application/json");
    t->headers = curl_slist_append(t->headers, "Expect:");
    if (!options_.api_key.empty())
      t->headers = curl_slist_append(t->headers, ("Authorization: Bearer " + options_.api_key).c_str());
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
    curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(t->body.size()));
    curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, t->body.data());
    curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, OnBytes);
    curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t.get());
    curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t.get());
    record.sent_s = Now() - start;
    curl_multi_add_handle(multi_, t->easy);
    transfers_.push_back(std::move(t));
  }

  int64_t Finish(double start) {
    int64_t finished = 0;
    int left = 0;
    while (CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode result = message->data.result;
      char* user = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &user);
      Transfer* t = reinterpret_cast<Transfer*>(user);
      RequestRecord& r = *t->record;
      r.done_s = Now() - start;
      curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &r.status);
      if (!t->too_long.empty())
        r.error = t->too_long;
      else if (result != CURLE_OK)
        r.error = curl_easy_strerror(result);
      else if (r.status != 200)
        r.error = fmt::format("HTTP {}{}", r.status, ErrorOf(t->buffer));
      else if (!t->server_error.empty())
        r.error = t->server_error;
      else if (!t->done)
        r.error = "the stream ended without [DONE]";
      else if (!r.first_token_s)
        r.error = "an answer without text";
      curl_multi_remove_handle(multi_, t->easy);
      std::erase_if(transfers_, [&](const auto& p) { return p.get() == t; });
      finished++;
    }
    return finished;
  }

  static std::string ErrorOf(const std::string& body) {
    const Json j = ParseJsonText<Json>(body);
    if (j.is_object() && j.contains("error") && j["error"].is_object() && j["error"].contains("message") &&
        j["error"]["message"].is_string())
      return ": " + j["error"]["message"].get<std::string>();
    return body.empty() ? "" : ": " + body.substr(0, 120);
  }

  void Wait(double due) {
    int timeout_ms = 200;
    curl_waitfd extra = {.fd = timer_, .events = CURL_WAIT_POLLIN, .revents = 0};
    if (due > 0) {
      // curl waits in whole milliseconds; the timer is exact.
      itimerspec at = {};
      const double left = std::max(1e-6, due - Now());
      at.it_value.tv_sec = static_cast<time_t>(left);
      at.it_value.tv_nsec = static_cast<long>((left - std::floor(left)) * 1e9);
      timerfd_settime(timer_, 0, &at, nullptr);
    }
    curl_multi_poll(multi_, &extra, due > 0 ? 1 : 0, timeout_ms, nullptr);
    uint64_t fired = 0;
    if (due > 0 && read(timer_, &fired, sizeof(fired)) < 0) fired = 0;
  }

  const LoadOptions& options_;
  std::string base_, model_;
  CURLM* multi_ = nullptr;
  int timer_ = -1;
  double full_s_ = -1;  // when all places were last taken
  std::vector<std::unique_ptr<Transfer>> transfers_;
};

Result<std::string> Get(const std::string& url, const std::string& api_key, double timeout_s, long& status) {
  std::unique_ptr<CURL, void (*)(CURL*)> easy(curl_easy_init(), curl_easy_cleanup);
  Body body;
  SetCommon(easy.get(), url, timeout_s);
  curl_slist* headers = nullptr;
  if (!api_key.empty()) headers = curl_slist_append(headers, ("Authorization: Bearer " + api_key).c_str());
  curl_easy_setopt(easy.get(), CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(easy.get(), CURLOPT_WRITEFUNCTION, OnText);
  curl_easy_setopt(easy.get(), CURLOPT_WRITEDATA, &body);
  const CURLcode result = curl_easy_perform(easy.get());
  curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
  curl_slist_free_all(headers);
  if (body.too_long)
    return Fail(Code::kOutOfRange, "the server's answer is too long")
        .Where(url)
        .Expected(fmt::format("{} MiB at most", kMostDocumentBytes >> 20))
        .Remedy("is this an OpenAI-compatible server?");
  if (result != CURLE_OK)
    return Fail(Code::kUnavailable, "the server does not answer")
        .Where(url)
        .Found(curl_easy_strerror(result))
        .Remedy("start it, or check the address");
  return std::move(body.text);
}

Result<std::string> FirstModel(const LoadOptions& options) {
  const std::string url = BaseOf(options.url) + "/v1/models";
  long status = 0;
  RIDGE_ASSIGN_OR_RETURN(const std::string text, Get(url, options.api_key, std::min(options.timeout_s, 30.0), status));
  const Json j = ParseJsonText<Json>(text);
  if (status == 200 && j.is_object() && j.contains("data") && j["data"].is_array() && !j["data"].empty() &&
      j["data"][0].is_object() && j["data"][0].contains("id") && j["data"][0]["id"].is_string())
    return j["data"][0]["id"].get<std::string>();
  return Fail(Code::kUnavailable, "the server names no model")
      .Where(url)
      .Found(fmt::format("HTTP {}", status))
      .Remedy("give its name with --model");
}

}  // namespace

// Words that tokenize alike everywhere, drawn so that no two prompts share a beginning: a prefix cache is not what is measured.
std::string SyntheticPrompt(const LoadOptions& options, int64_t index, int64_t words) {
  static constexpr const char* kWords[] = {"river", "stone", "light", "paper", "winter", "table",  "green",  "seven",
                                           "music", "north", "glass", "bread", "silver", "garden", "letter", "cloud"};
  std::mt19937_64 random(options.seed * 1000003 + static_cast<uint64_t>(index + 1000));
  std::string text = fmt::format("Story {}:", random() % 1000000);
  for (int64_t w = 0; w < words; w++) text += std::string(" ") + kWords[random() % std::size(kWords)];
  return text;
}

Result<std::string> GetText(const std::string& url, const std::string& api_key, double timeout_s) {
  curl_global_init(CURL_GLOBAL_DEFAULT);
  long status = 0;
  RIDGE_ASSIGN_OR_RETURN(std::string text, Get(url, api_key, timeout_s, status));
  if (status != 200)
    return Fail(Code::kUnavailable, "the server refuses").Where(url).Found(fmt::format("HTTP {}", status));
  return text;
}

AnswerEvent ParseEvent(std::string_view data) {
  AnswerEvent event;
  while (data.starts_with(' ')) data.remove_prefix(1);
  if (data == "[DONE]") {
    event.done = true;
    return event;
  }
  const Json j = ParseJsonText<Json>(data);
  if (!j.is_object()) {
    event.error = "an event that is no JSON object";
    return event;
  }
  if (const auto e = j.find("error"); e != j.end() && !e->is_null())
    event.error = e->is_object() && e->contains("message") && (*e)["message"].is_string()
                      ? (*e)["message"].get<std::string>()
                      : e->dump();
  // A count that cannot be is none, and told.
  const auto count = [&](const Json& object, const char* key) -> std::optional<int64_t> {
    const auto it = object.find(key);
    if (it == object.end() || it->is_null()) return {};
    if (it->is_number()) {
      const double v = it->get<double>();
      if (v >= 0 && v <= kMostTokens && v == std::floor(v)) return static_cast<int64_t>(v);
    }
    event.disbelieved =
        fmt::format("{} {}", key, it->dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40));
    return {};
  };
  if (const auto u = j.find("usage"); u != j.end() && u->is_object()) {
    event.prompt_tokens = count(*u, "prompt_tokens");
    event.output_tokens = count(*u, "completion_tokens");
    const auto details = u->find("prompt_tokens_details");
    if (details != u->end() && details->is_object()) event.cached_tokens = count(*details, "cached_tokens");
  }
  for (const char* key : {"ridge", "timings"}) {
    if (const auto it = j.find(key); it != j.end() && it->is_object())
      event.timings = it->dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  const auto text = [](const Json& object, const char* key) {
    const auto it = object.find(key);
    return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  const auto ms = [](const Json& object, const char* key) {
    const auto it = object.find(key);
    const double v = it != object.end() && it->is_number() ? it->get<double>() : -1;
    return v >= 0 && v <= kMostMs ? std::optional(v) : std::nullopt;
  };
  if (const auto r = j.find("ridge"); r != j.end() && r->is_object()) {
    // What the request was before it was the engine's: its text, and its wait for others.
    const double before = ms(*r, "tokenize_ms").value_or(0) + ms(*r, "queue_ms").value_or(0);
    if (const auto total = ms(*r, "total_ms")) event.engine_s = std::max(0.0, *total - before) / 1e3;
  } else if (const auto t = j.find("timings"); t != j.end() && t->is_object()) {
    const auto prompt = ms(*t, "prompt_ms"), predicted = ms(*t, "predicted_ms");
    if (prompt && predicted) event.engine_s = (*prompt + *predicted) / 1e3;
  }
  const auto filled = [](const Json& object, const char* key) {
    const auto it = object.find(key);
    return it != object.end() &&
           ((it->is_string() && !it->get_ref<const std::string&>().empty()) || (it->is_array() && !it->empty()));
  };
  const auto choices = j.find("choices");
  if (choices == j.end() || !choices->is_array()) return event;
  for (const Json& choice : *choices) {
    if (!choice.is_object()) continue;
    if (filled(choice, "text")) event.text = true;
    event.content += text(choice, "text");
    if (std::string reason = text(choice, "finish_reason"); !reason.empty()) event.finish_reason = std::move(reason);
    const auto delta = choice.find("delta");
    if (delta == choice.end() || !delta->is_object()) continue;
    event.content += text(*delta, "content");
    for (const char* channel : {"content", "reasoning_content", "reasoning", "tool_calls", "refusal"})
      event.text = event.text || filled(*delta, channel);
  }
  return event;
}

Result<LoadRun> RunLoad(const LoadOptions& options) {
  curl_global_init(CURL_GLOBAL_DEFAULT);
  std::string model = options.model;
  if (model.empty()) {
    RIDGE_ASSIGN_OR_RETURN(model, FirstModel(options));
  }
  Client client(options, model);
  if (options.warmup > 0) {
    const LoadRun warm = client.Run(options.warmup, -options.warmup, {}, 1);
    for (const RequestRecord& r : warm.records) {
      if (r.error.empty() || warm.interrupted) continue;
      return Fail(Code::kUnavailable, "the server did not answer the first request").Where(options.url).Found(r.error);
    }
    if (warm.interrupted) return Fail(Code::kCancelled, "interrupted");
  }
  const int64_t none = options.requests + 1;
  const int64_t limit = options.concurrency > 0 ? options.concurrency : IsOpen(options) ? none : 1;
  return client.Run(options.requests, 0, Schedule(options), limit);
}

}  // namespace ridge::lab
