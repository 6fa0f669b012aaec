// Load on an OpenAI-compatible server, and latencies as those who wait feel them.
//
//   LoadOptions o{.url = "http://127.0.0.1:8080", .requests = 700, .rate = 20};
//   RIDGE_ASSIGN_OR_RETURN(LoadRun run, RunLoad(o));   LoadReport report = Report(o, run);
//
// Guarantees: with a rate (open loop) each request has a moment at which it is to be sent that no answer can delay, and latencies count from it; those
// that count from the actual send are given beside. A percentile is given only where there are enough samples for it. What the client itself cost is
// measured, and a run in which it was the bottleneck is not valid. One thread; nothing is retried; redirects are not followed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ridge::lab {

enum class Arrivals { kPoisson, kConstant, kTrace };

// A request of a trace: what happened once, to be sent again at the same distances.
struct TracedRequest {
  double at_s = 0;                       // from the first
  std::string prompt;                    // empty: a synthetic one
  std::optional<int64_t> prompt_tokens;  // of the synthetic one, where the trace tells lengths
  std::optional<int64_t> max_tokens;
};
// Lines of a trace in the order of their times: a number of seconds, or an object with "at_s" (or "timestamp" in ms) and perhaps "prompt", "max_tokens" (or
// "output_length"), "input_length". Errors: kInvalidData with the line.
Result<std::vector<TracedRequest>> ParseTrace(std::string_view text);

struct LoadOptions {
  std::string url;    // scheme, host, port; a path as far as /v1 is taken off
  std::string model;  // empty: the first that /v1/models names
  std::string api_key;
  bool chat = true;        // /v1/chat/completions, else /v1/completions
  int64_t requests = 100;  // measured ones
  int64_t warmup = 1;      // before them, one after the other
  double rate = 0;         // requests a second (open loop); 0: closed loop
  Arrivals arrivals = Arrivals::kPoisson;
  int64_t concurrency =
      0;  // requests in flight at most; closed loop: always so many. 0: no limit (open loop), 1 (closed)
  int64_t max_tokens = 64;
  int64_t prompt_words = 64;         // of each synthetic prompt, all different
  std::vector<std::string> prompts;  // in turn, instead of synthetic ones
  std::vector<TracedRequest> trace;  // with kTrace, one for each of `requests`; its times instead of a rate
  uint64_t seed = 1;
  double timeout_s = 300;
  bool ignore_eos = false;
  bool keep_text = false;    // RequestRecord::text and its companions
  double chunk_delay_s = 0;  // the client takes so long over each chunk of text, as a slow one does
  std::function<bool()> cancelled = {};
  std::function<void(int64_t done, int64_t of)> progress = {};
};

// Times in seconds since the run began.
struct RequestRecord {
  double scheduled_s = 0, sent_s = 0, done_s = 0;
  std::optional<double> first_token_s;    // the first text of any channel: content, reasoning, tool call
  std::optional<double> first_content_s;  // the first that a reader sees as the answer
  std::vector<double> chunk_s;            // of each later one
  long status = 0;
  std::string error;  // empty: it was answered in full
  bool held = false;  // it waited for one of `concurrency` places, so its send is late by intention
  std::optional<int64_t> prompt_tokens, output_tokens;  // as the server counts
  int64_t chunks = 0;
  int64_t other_chunks = 0;         // of them without content: reasoning, tool calls
  int64_t first_chunk_tokens = 1;   // where a tokenizer has counted them
  std::string prompt, first_chunk;  // with keep_text
  // With keep_text: the answer's content (reasoning not), why it ended, and what the server itself tells of its times ("ridge", "timings"), as JSON.
  std::string text, finish_reason, timings;
  std::optional<int64_t> cached_tokens;
  // What the server says its engine took: `ridge.total_ms` less tokenizer and queue, or prompt_ms and predicted_ms of llama-server's `timings`.
  std::optional<double> engine_s;
  std::string disbelieved;  // a count of the server that cannot be: "completion_tokens -5"; chunks are counted instead
};

struct LoadRun {
  std::string model;
  std::vector<RequestRecord> records;
  double duration_s = 0;
  double begun_raw_s = 0;     // CLOCK_MONOTONIC_RAW at the zero of all times
  double client_cpu_s = 0;    // of the thread that sends and reads
  double longest_turn_s = 0;  // of its loop, without waiting
  double busy_s = 0;          // all its turns
  bool interrupted = false;
};

Result<LoadRun> RunLoad(const LoadOptions& options);

// The body of a GET that is answered with 200. No redirect is followed, no proxy used.
Result<std::string> GetText(const std::string& url, const std::string& api_key, double timeout_s);

// Samples that a percentile needs to be certain at 99 %: MLPerf's early stopping with no sample above it (0: not known).
int64_t SamplesFor(double percentile);

struct Distribution {
  int64_t n = 0;
  std::optional<double> mean, least, most;
  std::map<std::string, std::optional<double>>
      percentiles;  // "p50" "p75" "p90" "p95" "p97" "p99"; none: too few samples
};
Distribution DistributionOf(std::vector<double> values);

struct LoadReport {
  int64_t completed = 0, failed = 0;
  double duration_s = 0, request_throughput = 0;
  std::optional<double> output_throughput;  // tokens/s
  int64_t prompt_tokens = 0, output_tokens = 0;
  std::string tokens_from;  // "usage", "chunks" or "both": how output tokens were counted
  // In ms. `scheduled` counts from the moment at which a request was to be sent, `sent` from when it was.
  Distribution ttft_scheduled, ttft_sent, content_scheduled, e2e_scheduled, e2e_sent, gap, tpot;
  Distribution dispatch;  // lateness of sends that no limit held back
  double client_cpu_percent = 0, longest_turn_ms = 0;
  int64_t held = 0;
  std::vector<std::string> invalid;  // why the run says nothing about the server; empty: valid
  std::map<std::string, int64_t> errors;
  std::map<std::string, int64_t> disbelieved;  // counts of the server that cannot be, and how often
};
LoadReport Report(const LoadOptions& options, const LoadRun& run);

bool IsOpen(const LoadOptions& options);  // whether requests have moments of their own

// Moments at which the requests are to be sent, in seconds; empty for a closed loop.
std::vector<double> Schedule(const LoadOptions& options);

// A prompt of so many words that no other of the run begins like.
std::string SyntheticPrompt(const LoadOptions& options, int64_t index, int64_t words);

// One event of an answer, for tests: whether it holds text, and the counts that it tells.
struct AnswerEvent {
  bool text = false, done = false;
  std::optional<int64_t> prompt_tokens, output_tokens, cached_tokens;
  std::string content, finish_reason, timings;
  std::optional<double> engine_s;
  std::string error;
  std::string disbelieved;  // a count that is no whole number from 0 to 1e9
};
AnswerEvent ParseEvent(std::string_view data);

}  // namespace ridge::lab
