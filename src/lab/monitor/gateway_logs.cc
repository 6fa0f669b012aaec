// SGLang's lines about batches, Ollama's lines about requests.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "lab/monitor/recorded.h"

namespace ridge::lab {
namespace {

std::string_view Trimmed(std::string_view s) {
  while (s.starts_with(' ') || s.starts_with('\t')) s.remove_prefix(1);
  while (s.ends_with(' ') || s.ends_with('\t') || s.ends_with(',') || s.ends_with('.')) s.remove_suffix(1);
  return s;
}

struct Named {
  std::string_view said;
  const char* name;
};
// Others keep the words of the log, with _ between.
constexpr Named kSglang[] = {{"#running-req", "running_requests"},
                             {"#queue-req", "waiting_requests"},
                             {"#new-seq", "new_sequences"},
                             {"#new-token", "prompt_tokens"},
                             {"#cached-token", "cached_tokens"},
                             {"#token", "kv_tokens"},
                             {"token usage", "kv_usage_share"},
                             {"cache hit rate", "prefix_cache_hit_rate_percent"},
                             {"gen throughput (token/s)", "generation_throughput_tokens_per_second"},
                             {"input throughput (token/s)", "prompt_throughput_tokens_per_second"}};

// Go's durations: "1m43s", "56.4s", "7.31ms", "453.235µs", "1h2m3.5s".
std::optional<double> GoMilliseconds(std::string_view text) {
  double ms = 0;
  if (text.empty()) return {};
  while (!text.empty()) {
    const size_t end = text.find_first_not_of("0123456789.");
    if (end == 0 || end == std::string_view::npos) return {};
    const auto n = ToNumber(text.substr(0, end));
    text.remove_prefix(end);
    const size_t next = std::min(text.find_first_of("0123456789"), text.size());
    const std::string_view unit = text.substr(0, next);
    text.remove_prefix(next);
    const double scale = unit == "h"                                              ? 3600e3
                         : unit == "m"                                            ? 60e3
                         : unit == "s"                                            ? 1e3
                         : unit == "ms"                                           ? 1
                         : unit == "us" || unit == "\u00b5s" || unit == "\u03bcs" ? 1e-3
                         : unit == "ns"                                           ? 1e-6
                                                                                  : 0;
    if (!n || scale == 0) return {};
    ms += *n * scale;
  }
  return ms;
}

}  // namespace

// "[2025-02-27 04:46:39 TP0] Decode batch. #running-req: 8, #token: 62531, token usage: 0.12, …"; newer versions have a comma after "batch".
void ParseSglang(std::string_view text, Recorded& out) {
  int64_t number = 0;
  for (const std::string_view line : Lines(text)) {
    number++;
    if (Words(line).empty()) continue;
    const size_t decode = line.find("Decode batch"), prefill = line.find("Prefill batch");
    const size_t start = std::min(decode, prefill);
    if (start == std::string_view::npos || line.find("#running-req:") == std::string_view::npos ||
        line.size() > kMostSampleBytes) {
      out.other_lines++;
      continue;
    }
    Row row{.line = number};
    const size_t open = line.find('['), close = line.find(']');
    if (open < close && close < start) {
      std::vector<std::string_view> words = Words(line.substr(open + 1, close - open - 1));
      for (const std::string_view word : words) {
        const bool clock = std::ranges::count(word, ':') == 2, date = std::ranges::count(word, '-') == 2;
        if (clock || date)
          row.time += (row.time.empty() ? "" : " ") + std::string(word);
        else
          row.AddText("rank", std::string(word));
      }
    }
    row.AddText("batch", decode < prefill ? "decode" : "prefill");
    std::string_view rest = line.substr(line.find("batch", start) + 5);
    while (!rest.empty() && (rest[0] == '.' || rest[0] == ',' || rest[0] == ' ')) rest.remove_prefix(1);
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(", "), rest.size());
      const std::string_view part = Trimmed(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 2, rest.size()));
      if (part.empty()) continue;
      const size_t colon = part.rfind(": ");
      if (colon == std::string_view::npos) {
        row.unknown.emplace_back(part);
        continue;
      }
      const std::string_view key = Trimmed(part.substr(0, colon));
      std::string_view value = Trimmed(part.substr(colon + 2));
      const auto* known = std::ranges::find(kSglang, key, &Named::said);
      const std::string name = known != std::end(kSglang) ? known->name : FieldName(key);
      if (value.ends_with('%')) value.remove_suffix(1);
      if (const auto n = ToNumber(value))
        row.Add(name, *n);
      else if (value == "inf" || value == "nan")
        row.Add(name, {}, "the log says " + std::string(value));
      else
        row.AddText(name, std::string(value));
    }
    out.rows.push_back(std::move(row));
  }
}

// "[GIN] 2025/12/23 - 10:34:40 | 200 | 57.956598944s | 127.0.0.1 | POST "/api/chat""
void ParseOllama(std::string_view text, Recorded& out) {
  int64_t number = 0;
  for (const std::string_view line : Lines(text)) {
    number++;
    if (Words(line).empty()) continue;
    const size_t start = line.find("[GIN] ");
    std::vector<std::string_view> parts;
    for (std::string_view rest = start == std::string_view::npos ? "" : line.substr(start + 6); !rest.empty();) {
      const size_t bar = std::min(rest.find('|'), rest.size());
      parts.push_back(Trimmed(rest.substr(0, bar)));
      rest.remove_prefix(std::min(bar + 1, rest.size()));
    }
    const auto status = parts.size() == 5 ? ToNumber(parts[1]) : std::nullopt;
    const std::vector<std::string_view> request = parts.size() == 5 ? Words(parts[4]) : std::vector<std::string_view>();
    if (!status || request.size() < 2) {
      out.other_lines++;
      continue;
    }
    Row row{.line = number};
    for (const std::string_view word : Words(parts[0])) {
      if (word != "-") row.time += (row.time.empty() ? "" : " ") + std::string(word);
    }
    std::string_view path = request[1];
    while (path.starts_with('"')) path.remove_prefix(1);
    while (path.ends_with('"')) path.remove_suffix(1);
    row.Add("status", *status);
    const auto ms = GoMilliseconds(parts[2]);
    row.Add("total_ms", ms, ms ? "" : "the log says " + std::string(parts[2]));
    row.AddText("method", std::string(request[0]));
    row.AddText("path", std::string(path));
    out.rows.push_back(std::move(row));
  }
}

}  // namespace ridge::lab
