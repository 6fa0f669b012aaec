// nvidia-smi dmon, llama.cpp's times of requests, vLLM's throughput lines.
#include <algorithm>
#include <map>

#include "lab/monitor/recorded.h"

namespace ridge::lab {
namespace {

// "%" of dmon's second header line as part of a name.
std::string UnitName(std::string_view unit) {
  if (unit == "%") return "percent";
  if (unit == "GB/s") return "gbps";
  if (unit == "MB/s") return "mbps";
  if (unit == "bool" || unit == "Idx" || unit == "#" || unit == "-") return "";
  return FieldName(unit);
}

// The number that follows `key` in the line, after blanks.
std::optional<double> After(std::string_view line, std::string_view key) {
  const size_t at = line.find(key);
  if (at == std::string_view::npos) return {};
  const std::vector<std::string_view> words = Words(line.substr(at + key.size()));
  if (words.empty()) return {};
  std::string_view word = words[0];
  while (!word.empty() && (word.back() == ',' || word.back() == '%')) word.remove_suffix(1);
  return ToNumber(word);
}

std::string_view Trimmed(std::string_view s) {
  while (s.starts_with(' ') || s.starts_with('\t')) s.remove_prefix(1);
  while (s.ends_with(' ') || s.ends_with('\t')) s.remove_suffix(1);
  return s;
}

}  // namespace

// "# gpu pwr gtemp" and "# Idx W C" come first and again every so often; -o T and -o D add Time and Date.
void ParseDmon(std::string_view text, Recorded& out) {
  std::vector<std::string> names, units;
  int64_t number = 0;
  for (const std::string_view line : Lines(text)) {
    number++;
    const std::vector<std::string_view> words = Words(line);
    if (words.empty()) continue;
    if (words[0].starts_with('#')) {
      std::vector<std::string> header;
      for (std::string_view word : words) {
        if (word.starts_with('#')) word.remove_prefix(1);
        if (!word.empty()) header.emplace_back(word);
      }
      const bool is_names = std::ranges::find(header, "gpu") != header.end();
      (is_names ? names : units) = std::move(header);
      if (is_names) units.clear();
      out.other_lines++;
      continue;
    }
    if (names.empty() || units.size() != names.size() || words.size() != names.size()) {
      out.other_lines++;
      continue;
    }
    Row row{.line = number};
    for (size_t i = 0; i < names.size(); i++) {
      if (names[i] == "Date" || names[i] == "Time") {
        row.time += (row.time.empty() ? "" : " ") + std::string(words[i]);
        continue;
      }
      const std::string unit = UnitName(units[i]);
      const std::string name = FieldName(names[i]) + (unit.empty() ? "" : "_" + unit);
      const auto value = ToNumber(words[i]);
      if (value)
        row.Add(name, *value);
      else
        row.Add(name, {}, words[i] == "-" ? "not offered by this GPU" : "the log says " + std::string(words[i]));
    }
    out.rows.push_back(std::move(row));
  }
}

// "prompt eval time = 12.34 ms / 56 tokens (…)", "eval time = … / 7 runs", "total time = …"; llama-server puts "slot print_timing: id 0 | task 3 |"
// before each, or, in older builds, before the first. A row is complete with its total.
void ParseLlamaServer(std::string_view text, Recorded& out) {
  std::map<std::string, Row> open;  // by slot and task
  std::string last;
  int64_t number = 0;
  for (const std::string_view line : Lines(text)) {
    number++;
    if (Words(line).empty()) continue;
    const size_t eq = line.find(" time =");
    const auto ms = eq == std::string_view::npos ? std::nullopt : After(line, " time =");
    const auto slot = After(line, "id "), task = After(line, "task ");
    if (slot && task)
      last = std::to_string(static_cast<int64_t>(*slot)) + "/" + std::to_string(static_cast<int64_t>(*task));
    if (!ms) {
      out.other_lines++;
      continue;
    }
    const std::string_view head = line.substr(0, eq);
    const char* what = head.ends_with("prompt eval") ? "prompt"
                       : head.ends_with("eval")      ? "predicted"
                       : head.ends_with("total")     ? "total"
                       : head.ends_with("load")      ? "load"
                                                     : nullptr;
    if (what == nullptr) {
      out.other_lines++;
      continue;
    }
    Row& row = open[last];
    if (row.line == 0) {
      row.line = number;
      // Of this line, or of the one before the times.
      if (const size_t slash = last.find('/'); slash != std::string::npos) {
        row.Add("slot", ToNumber(last.substr(0, slash)));
        row.Add("task", ToNumber(last.substr(slash + 1)));
      }
    }
    const std::string name = what;
    row.Add(name + "_ms", *ms);
    if (const auto n = After(line, " / ")) row.Add(name + "_n", *n);
    // "… , 86.21 tokens per second)"
    if (const size_t at = line.find(" tokens per second"); at != std::string_view::npos) {
      const std::vector<std::string_view> words = Words(line.substr(0, at));
      const auto rate = words.empty() ? std::nullopt : ToNumber(words.back());
      row.Add(name + "_per_second", rate, rate ? "" : "the log gives no number");
    }
    if (name == "total") {
      out.rows.push_back(std::move(row));
      open.erase(last);
      last.clear();
    }
  }
  // A server that was stopped before it wrote the total still said the rest.
  for (auto& [key, row] : open) {
    if (row.Find("predicted_ms") != nullptr || row.Find("prompt_ms") != nullptr) out.rows.push_back(std::move(row));
  }
  std::ranges::stable_sort(out.rows, {}, &Row::line);
}

// "… Engine 000: Avg prompt throughput: 8.9 tokens/s, …, Running: 1 reqs, …, GPU KV cache usage: 0.5%, Prefix cache hit rate: 12.3%"
void ParseVllm(std::string_view text, Recorded& out) {
  int64_t number = 0;
  for (const std::string_view line : Lines(text)) {
    number++;
    if (Words(line).empty()) continue;
    const size_t start = line.find("Avg prompt throughput:");
    if (start == std::string_view::npos) {
      out.other_lines++;
      continue;
    }
    Row row{.line = number};
    // "INFO 07-01 12:00:00 [loggers.py:116]": the first two words that look like a date and a clock.
    const std::vector<std::string_view> words = Words(line.substr(0, start));
    for (size_t i = 0; i + 1 < words.size(); i++) {
      if (std::ranges::count(words[i], '-') >= 1 && std::ranges::count(words[i + 1], ':') == 2) {
        row.time = std::string(words[i]) + " " + std::string(words[i + 1]);
        break;
      }
    }
    if (const size_t engine = line.find("Engine "); engine < start) {
      std::string_view id = line.substr(engine + 7);
      id = id.substr(0, id.find(':'));
      if (const auto n = ToNumber(id)) row.Add("engine", *n);
    }
    std::string_view rest = line.substr(start);
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(", "), rest.size());
      const std::string_view part = Trimmed(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 2, rest.size()));
      const size_t colon = part.rfind(": ");
      const std::vector<std::string_view> value =
          colon == std::string_view::npos ? std::vector<std::string_view>() : Words(part.substr(colon + 2));
      std::string_view digits = value.empty() ? std::string_view() : value[0];
      while (digits.ends_with('.')) digits.remove_suffix(1);
      std::string unit = value.size() > 1 ? std::string(value[1]) : "";
      while (unit.ends_with('.')) unit.pop_back();
      if (digits.ends_with('%')) digits.remove_suffix(1), unit = "percent";
      const auto n = ToNumber(digits);
      if (!n) {
        row.unknown.emplace_back(part);
        continue;
      }
      const std::string suffix = unit == "tokens/s" ? "tokens_per_second"
                                 : unit == "reqs"   ? "requests"
                                                    : FieldName(unit);
      row.Add(FieldName(part.substr(0, colon)) + (suffix.empty() ? "" : "_" + suffix), *n);
    }
    out.rows.push_back(std::move(row));
  }
}

}  // namespace ridge::lab
