#include "lab/subjects/asked.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/atomic_file.h"
#include "base/json_text.h"
#include "base/read_file.h"
#include "lab/experiments/answer_flags.h"
#include "lab/load/load.h"
#include "lab/monitor/recorded.h"
#include "lab/statistics.h"

namespace ridge::lab {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

template <typename T>
Json OrNull(const std::optional<T>& v) {
  return v ? Json(*v) : Json(nullptr);
}

std::optional<double> Number(const Json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_number() ? std::optional(it->get<double>()) : std::nullopt;
}

std::string Text(const Json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_string() ? it->get<std::string>() : "";
}

// Speeds that the subject itself tells: ridge and llama.cpp have the same names.
std::optional<double> Told(const Json& request, const char* key) {
  const auto it = request.find("timings");
  return it != request.end() && it->is_object() ? Number(*it, key) : std::nullopt;
}

// What is no setting but its reason, or differs from run to run.
bool IsSetting(const std::string& key) {
  return !key.ends_with("_reason") && key != "seed" && key != "url" && key != "stop" && key != "kv_pages";
}

void Flatten(const Json& settings, Resolved& out) {
  for (const auto& [key, value] : settings.items()) {
    if (!IsSetting(key)) continue;
    Json v = value;
    if (key == "sampling" && v.is_object()) v.erase("seed");
    out[key] = v.is_string() ? v.get<std::string>() : v.dump();
  }
}

}  // namespace

Status WriteAsked(const AskedRun& run, const std::string& path) {
  Json requests = Json::array();
  for (const AskedRequest& r : run.requests) {
    requests.push_back({{"prompt_id", r.prompt_id},
                        {"prompt", r.prompt},
                        {"text", r.text},
                        {"finish_reason", r.finish_reason},
                        {"error", r.error.empty() ? Json(nullptr) : Json(r.error)},
                        {"sent_s", r.sent_s},
                        {"first_token_s", OrNull(r.first_token_s)},
                        {"last_token_s", OrNull(r.last_token_s)},
                        {"done_s", r.done_s},
                        {"began_s", OrNull(r.began_s)},
                        {"ended_s", OrNull(r.ended_s)},
                        {"prompt_tokens", OrNull(r.prompt_tokens)},
                        {"output_tokens", OrNull(r.output_tokens)},
                        {"cached_tokens", OrNull(r.cached_tokens)},
                        {"timings", r.timings}});
  }
  const Json j = {{"subject", run.subject},
                  {"version", run.version},
                  {"settings", run.settings},
                  {"model_bytes", OrNull(run.model_bytes)},
                  {"concurrency", run.concurrency},
                  {"max_tokens", run.max_tokens},
                  {"clock_s", OrNull(run.clock_s)},
                  {"duration_s", run.duration_s},
                  {"not_asked", run.not_asked.empty() ? Json(nullptr) : Json(run.not_asked)},
                  {"requests", std::move(requests)}};
  RIDGE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  RIDGE_RETURN_IF_ERROR(file.Write(j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n"));
  return file.Commit();
}

Result<RunOutput> ParseAsked(std::string_view text) {
  const Json j = ParseJsonText<Json>(text);
  if (!j.is_object() || !j.contains("requests") || !j["requests"].is_array() || !j.contains("settings"))
    return Fail(Code::kInvalidData, "no record of requests").Expected("the document that the lab writes");
  RunOutput out;
  out.subject_version = Text(j, "version");
  Flatten(j["settings"], out.resolved);
  for (const char* key : {"subject", "version"}) out.resolved[key] = Text(j, key);
  if (const auto n = Number(j, "max_tokens")) out.resolved["max_tokens"] = fmt::format("{}", *n);
  if (const auto n = Number(j, "concurrency")) out.resolved["concurrency"] = fmt::format("{}", *n);
  std::vector<double> decode, prefill, first, whole;
  double tokens = 0;
  for (const Json& r : j["requests"]) {
    Answer answer{
        .prompt_id = Text(r, "prompt_id"), .text = Text(r, "text"), .finish_reason = Text(r, "finish_reason")};
    if (!Text(r, "error").empty()) {
      answer.flags = {"failed"};
      out.answers.push_back(std::move(answer));
      continue;
    }
    answer.flags = FlagsOf(answer);
    out.answers.push_back(std::move(answer));
    const auto sent = Number(r, "sent_s"), begin = Number(r, "first_token_s"), end = Number(r, "last_token_s"),
               done = Number(r, "done_s"), n = Number(r, "output_tokens");
    tokens += n.value_or(0);
    if (sent && begin) first.push_back((*begin - *sent) * 1e3);
    if (sent && done && *done >= *sent) whole.push_back((*done - *sent) * 1e3);
    if (const auto told = Told(r, "predicted_per_second"))
      decode.push_back(*told);
    else if (begin && end && n && *n > 1 && *end > *begin)
      decode.push_back((*n - 1) / (*end - *begin));
    if (const auto told = Told(r, "prompt_per_second")) prefill.push_back(*told);
  }
  const auto add = [&](const char* test, std::vector<double>& values, const char* unit, bool higher) {
    if (values.empty()) return std::optional<double>();
    const double median = Median(values);
    out.tests.push_back({test, median, unit, higher});
    return std::optional(median);
  };
  Measures& m = out.measures;
  m.decode_per_second = add("decode", decode, "t/s", true);
  m.prefill_per_second = add("prefill", prefill, "t/s", true);
  m.ttft_ms = add("first token", first, "ms", false);
  add("whole answer", whole, "ms", false);
  if (const auto s = Number(j, "duration_s"); s && *s > 0 && tokens > 0)
    out.tests.push_back({"throughput", tokens / *s, "t/s", true});
  m.model_bytes = Number(j, "model_bytes");
  if (const std::string why = Text(j, "not_asked"); !why.empty()) m.missing["quality"] = why;
  const auto missing = [&](const char* key, const auto& value, const char* why) {
    if (!value) m.missing[key] = why;
  };
  missing("ttft_ms", m.ttft_ms, "the subject tells no first token");
  missing("prefill_per_second", m.prefill_per_second, "the subject tells no times of the prompt");
  missing("decode_per_second", m.decode_per_second, "the answers are too short");
  missing("model_bytes", m.model_bytes, "the model's file is not known here");
  return out;
}

Status AskServer(const std::string& url, const std::string& model, const Workload& work, AskedRun& run) {
  const std::vector<Question> questions = QuestionsOf(work);
  LoadOptions options{.url = url, .model = model, .requests = static_cast<int64_t>(questions.size())};
  options.concurrency = work.concurrency;
  options.max_tokens = work.max_tokens;
  options.ignore_eos = work.ignore_eos;
  options.chat = work.chat;
  options.keep_text = true;
  options.prompt_words = 16;  // of the warm-up: any context has room for it
  for (const Question& q : questions) options.prompts.push_back(q.text);
  RIDGE_ASSIGN_OR_RETURN(const LoadRun load, RunLoad(options));
  run.concurrency = work.concurrency;
  run.max_tokens = work.max_tokens;
  run.duration_s = load.duration_s;
  run.clock_s = load.begun_raw_s;
  std::string failed;
  for (size_t i = 0; i < load.records.size(); i++) {
    const RequestRecord& r = load.records[i];
    AskedRequest asked{.prompt_id = questions[i].id,
                       .prompt = questions[i].text,
                       .text = r.text,
                       .finish_reason = r.finish_reason,
                       .error = r.error,
                       .sent_s = r.sent_s,
                       .done_s = r.done_s,
                       .first_token_s = r.first_token_s,
                       .prompt_tokens = r.prompt_tokens,
                       .output_tokens = r.output_tokens,
                       .cached_tokens = r.cached_tokens};
    if (r.first_token_s) asked.last_token_s = r.chunk_s.empty() ? *r.first_token_s : r.chunk_s.back();
    if (!r.timings.empty()) asked.timings = ParseJsonText<Json>(r.timings);
    // An answer that ends at once has no text, and is an answer all the same.
    if (asked.error == "an answer without text") asked.error.clear();
    if (!asked.error.empty() && failed.empty()) failed = asked.error;
    run.requests.push_back(std::move(asked));
  }
  if (!failed.empty()) return Fail(Code::kUnavailable, "the server did not answer").Where(url).Found(failed);
  return {};
}

double RawSeconds() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

Result<std::string> ReadText(const std::string& path) { return ReadFile(path, {.most_bytes = uint64_t{512} << 20}); }

std::string_view WithoutEnd(std::string_view text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

Status AppendLine(const std::string& path, std::string_view line) {
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file << line << "\n" << std::flush;
  if (!file) return Fail(Code::kUnavailable, "cannot write the file").Where(path);
  return {};
}

std::optional<double> FileBytes(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  return error ? std::nullopt : std::optional(static_cast<double>(size));
}

std::string VersionOf(const std::string& program, const std::string& scratch) {
  std::string version = fs::path(program).filename().string();
  if (RunProcess({program, "--version"}, scratch, scratch)) {
    const std::string text = ReadText(scratch).value_or("");
    for (const std::string_view line : Lines(text)) {
      if (line.find("version") == std::string_view::npos && line.find("ridge") == std::string_view::npos) continue;
      // "ridge 0.1.0", "version: 7000 (abcdef0)"
      const bool named = line.starts_with(version + " ");
      version = named ? std::string(line)
                      : version + " " + std::string(line.starts_with("version: ") ? line.substr(9) : line);
      break;
    }
  }
  std::error_code ignored;
  fs::remove(scratch, ignored);
  return version;
}

}  // namespace ridge::lab
