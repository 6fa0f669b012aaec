#include "lab/monitor/recorded.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

namespace ridge::lab {
namespace {

constexpr LogKind kKinds[] = {LogKind::kTegrastats, LogKind::kDmon,   LogKind::kLlamaBench, LogKind::kLlamaServer,
                              LogKind::kVllm,       LogKind::kSglang, LogKind::kOllama};

Recorded ParseAs(LogKind kind, std::string_view text) {
  Recorded out{.kind = kind};
  switch (kind) {
    case LogKind::kTegrastats: {
      int64_t number = 0;
      for (const std::string_view line : Lines(text)) {
        number++;
        if (auto row = ParseTegrastats(line)) {
          row->line = number;
          out.rows.push_back(std::move(*row));
        } else if (!Words(line).empty()) {
          out.other_lines++;
        }
      }
      break;
    }
    case LogKind::kDmon: ParseDmon(text, out); break;
    case LogKind::kLlamaBench: ParseLlamaBench(text, out); break;
    case LogKind::kLlamaServer: ParseLlamaServer(text, out); break;
    case LogKind::kVllm: ParseVllm(text, out); break;
    case LogKind::kSglang: ParseSglang(text, out); break;
    case LogKind::kOllama: ParseOllama(text, out); break;
  }
  return out;
}

}  // namespace

std::string_view Name(LogKind kind) {
  switch (kind) {
    case LogKind::kTegrastats: return "tegrastats";
    case LogKind::kDmon: return "dmon";
    case LogKind::kLlamaBench: return "llama-bench";
    case LogKind::kLlamaServer: return "llama-server";
    case LogKind::kVllm: return "vllm";
    case LogKind::kSglang: return "sglang";
    case LogKind::kOllama: return "ollama";
  }
  return "";
}

Result<LogKind> ParseLogKind(std::string_view name) {
  std::string all;
  for (const LogKind kind : kKinds) {
    if (name == Name(kind)) return kind;
    all += (all.empty() ? "" : ", ") + std::string(Name(kind));
  }
  return Fail(Code::kUsage, "unknown kind of log").Where("--format").Found(std::string(name)).Expected(all);
}

const Field* Row::Find(std::string_view name) const {
  const auto it = std::ranges::find(fields, name, &Field::name);
  return it == fields.end() ? nullptr : &*it;
}

void Row::Add(std::string name, std::optional<double> value, std::string reason) {
  // A name that occurs twice in a line (tegrastats' NC rails) is numbered, before its unit.
  if (Find(name) != nullptr) {
    const size_t unit = name.rfind('_');
    const std::string stem = name.substr(0, unit), tail = unit == std::string::npos ? "" : name.substr(unit);
    int n = 2;
    while (Find(fmt::format("{}_{}{}", stem, n, tail)) != nullptr) n++;
    name = fmt::format("{}_{}{}", stem, n, tail);
  }
  fields.push_back({.name = std::move(name), .value = value, .text = {}, .reason = std::move(reason)});
}

void Row::AddText(std::string name, std::string text) {
  fields.push_back({.name = std::move(name), .value = {}, .text = std::move(text), .reason = {}});
}

Result<Recorded> ParseRecorded(std::string_view text, std::optional<LogKind> kind) {
  if (kind) {
    Recorded log = ParseAs(*kind, text);
    if (!log.rows.empty()) return log;
    return Fail(Code::kInvalidData, "the log holds no sample").Expected(fmt::format("lines of {}", Name(*kind)));
  }
  Recorded best;
  for (const LogKind k : kKinds) {
    Recorded log = ParseAs(k, text);
    if (log.rows.size() > best.rows.size()) best = std::move(log);
  }
  if (!best.rows.empty()) return best;
  return Fail(Code::kInvalidData, "the log holds no sample of a known tool")
      .Expected("tegrastats, nvidia-smi dmon, llama-bench, llama-server, vLLM, SGLang or Ollama");
}

std::string RecordedCsv(const Recorded& log) {
  std::vector<std::string> columns;
  std::map<std::string, size_t> index;
  for (const Row& row : log.rows) {
    for (const Field& f : row.fields) {
      if (index.emplace(f.name, columns.size()).second) columns.push_back(f.name);
    }
  }
  std::string out = "line,time";
  for (const std::string& c : columns) out += "," + CsvCell(c);
  out += ",unknown\n";
  for (const Row& row : log.rows) {
    out += fmt::format("{},{}", row.line, CsvCell(row.time));
    std::vector<std::string> cells(columns.size());
    for (const Field& f : row.fields) cells[index[f.name]] = f.value ? fmt::format("{}", *f.value) : CsvCell(f.text);
    for (const std::string& c : cells) out += "," + c;
    std::string unknown;
    for (const std::string& u : row.unknown) unknown += (unknown.empty() ? "" : " ") + u;
    out += "," + CsvCell(unknown) + "\n";
  }
  return out;
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < line.size();) {
    if (line[at] == ' ' || line[at] == '\t') {
      at++;
      continue;
    }
    const size_t end = std::min(line.find_first_of(" \t", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

std::optional<double> ToNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return {};
  if (value - value != 0) return {};  // inf, nan: words, here
  return value;
}

std::string FieldName(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool upper = c >= 'A' && c <= 'Z', plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (upper || plain)
      out += upper ? static_cast<char>(c + 32) : c;
    else if (!out.empty() && out.back() != '_')
      out += '_';
  }
  if (out.ends_with('_')) out.pop_back();
  return out;
}

std::string CsvCell(std::string_view text) {
  if (text.find_first_of(",\"\n\r") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

}  // namespace ridge::lab
