// Subjects that answer prompts: what they were asked and said, as one JSON document, and what follows from it.
//
//   AskedRun run{.subject = "serve", ...};   run.requests.push_back({...});   WriteAsked(run, files.out);
//   RIDGE_ASSIGN_OR_RETURN(RunOutput output, ParseAsked(text));
//
// Guarantees: ParseAsked gives the same figures, in the same order, for each subject: "decode" and "prefill" t/s, "first token" and "whole answer" ms
// (medians over the requests), "throughput" t/s (all tokens over the whole time); what the subject does not tell is left out. Times are those of the
// client where there is one; a program of the command line tells them itself, without loading.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/experiments/prompts.h"
#include "lab/subjects/subject.h"

namespace ridge::lab {

struct AskedRequest {
  std::string prompt_id, prompt, text, finish_reason, error;
  double sent_s = 0, done_s = 0;
  std::optional<double> began_s, ended_s;  // CLOCK_MONOTONIC_RAW: of a process of its own
  std::optional<double> first_token_s, last_token_s;
  std::optional<int64_t> prompt_tokens, output_tokens, cached_tokens;
  nlohmann::ordered_json timings;  // the subject's own account; null: none
};

struct AskedRun {
  std::string subject, version;
  nlohmann::ordered_json settings = nlohmann::ordered_json::object();  // as resolved
  std::optional<double> model_bytes;
  int64_t concurrency = 1, max_tokens = 0;
  double duration_s = 0;
  std::optional<double> clock_s;  // CLOCK_MONOTONIC_RAW at the zero of the requests' times: of a client
  std::vector<AskedRequest> requests;
  std::string not_asked;  // why there are none
};

Status WriteAsked(const AskedRun& run, const std::string& path);
Result<RunOutput> ParseAsked(std::string_view text);

// Asks an OpenAI-compatible server the questions of `work`; adds the requests and the time. Errors: what the first request that failed says.
Status AskServer(const std::string& url, const std::string& model, const Workload& work, AskedRun& run);

// What a process printed becomes its answer; it may fill the settings of `run` too.
using TakeAnswer = std::function<Result<AskedRequest>(const Question& q, const std::string& out, const std::string& log,
                                                      AskedRun& run)>;
// Asks each question of `work` with a process of its own: `command` and -p. The log holds what each wrote to stderr, and with log_output to stdout.
// Adds the requests and the time; ends at the first process that fails, whose status it returns.
Result<Usage> AskProcesses(const std::vector<std::string>& command, const Workload& work, const RunFiles& files,
                           bool log_output, AskedRun& run, const TakeAnswer& take);

// Helpers of subjects.
double RawSeconds();  // CLOCK_MONOTONIC_RAW, the clock of the monitor
Result<std::string> ReadText(const std::string& path);
std::string_view WithoutEnd(std::string_view text);  // without line breaks at its end
Status AppendLine(const std::string& path, std::string_view line);
std::optional<double> FileBytes(const std::string& path);
// The line by which a program names its version with `--version`; the program's name where it tells none.
std::string VersionOf(const std::string& program, const std::string& scratch);

}  // namespace ridge::lab
