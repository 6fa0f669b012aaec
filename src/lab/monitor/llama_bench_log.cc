// llama-bench in its five formats. Columns keep llama-bench's names; md's table is turned into them.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json_text.h"
#include "lab/monitor/recorded.h"

namespace ridge::lab {
namespace {

using Json = nlohmann::ordered_json;

void AddCell(Row& row, const std::string& name, const std::string& text, bool quoted = false) {
  // Hashes and names may look like numbers ("0c1e570" does not, "1234567" does).
  static constexpr std::string_view kTexts[] = {"build_commit",   "cpu_info",   "gpu_info",  "backends",
                                                "model_filename", "model_type", "test_time", "cpu_mask"};
  const auto value = std::ranges::find(kTexts, name) != std::end(kTexts) || quoted ? std::nullopt : ToNumber(text);
  if (value)
    row.Add(name, *value);
  else
    row.AddText(name, text);
}

// One record of CSV or SQL values: `quote` doubled stands for itself.
std::vector<std::string> Cells(std::string_view text, char quote) {
  std::vector<std::string> cells(1);
  bool inside = false;
  for (size_t i = 0; i < text.size(); i++) {
    const char c = text[i];
    if (inside && c == quote && i + 1 < text.size() && text[i + 1] == quote)
      cells.back() += c, i++;
    else if (c == quote)
      inside = !inside;
    else if (c == ',' && !inside)
      cells.emplace_back();
    else if (!inside && c == ' ')
      continue;
    else
      cells.back() += c;
  }
  return cells;
}

void FromJson(const Json& object, int64_t line, Recorded& out) {
  if (!object.is_object() || !object.contains("avg_ts")) return;
  Row row{.line = line};
  for (const auto& [key, value] : object.items()) {
    if (value.is_number())
      row.Add(key, value.get<double>());
    else if (value.is_boolean())
      row.Add(key, value.get<bool>() ? 1 : 0);
    else if (value.is_string())
      row.AddText(key, value.get<std::string>());
    else if (value.is_null())
      row.Add(key, {}, "null in the log");
    else
      row.AddText(key, value.dump());
  }
  if (const Field* f = row.Find("test_time")) row.time = f->text;
  out.rows.push_back(std::move(row));
}

std::string_view Trimmed(std::string_view s) {
  while (s.starts_with(' ')) s.remove_prefix(1);
  while (s.ends_with(' ')) s.remove_suffix(1);
  return s;
}

// "pp512", "tg128 @ d1024", "pp512+tg128".
void TestOf(std::string_view test, Row& row) {
  double prompt = 0, gen = 0, depth = 0;
  if (const size_t at = test.find("@ d"); at != std::string_view::npos) {
    depth = ToNumber(Trimmed(test.substr(at + 3))).value_or(0);
    test = Trimmed(test.substr(0, at));
  }
  for (size_t at = 0; at < test.size();) {
    const size_t end = std::min(test.find('+', at), test.size());
    const std::string_view part = test.substr(at, end - at);
    if (part.starts_with("pp")) prompt = ToNumber(part.substr(2)).value_or(0);
    if (part.starts_with("tg")) gen = ToNumber(part.substr(2)).value_or(0);
    at = end + 1;
  }
  row.Add("n_prompt", prompt);
  row.Add("n_gen", gen);
  row.Add("n_depth", depth);
}

std::vector<std::string_view> TableCells(std::string_view line) {
  std::vector<std::string_view> cells;
  line = Trimmed(line);
  if (!line.starts_with('|')) return cells;
  line.remove_prefix(1);
  while (!line.empty()) {
    const size_t end = line.find('|');
    if (end == std::string_view::npos) break;
    cells.push_back(Trimmed(line.substr(0, end)));
    line.remove_prefix(end + 1);
  }
  return cells;
}

void FromTable(const std::vector<std::string_view>& names, const std::vector<std::string_view>& cells, int64_t line,
               Recorded& out) {
  Row row{.line = line};
  for (size_t i = 0; i < names.size(); i++) {
    const std::string_view cell = cells[i];
    if (names[i] == "test") {
      row.AddText("test", std::string(cell));
      TestOf(cell, row);
    } else if (names[i] == "t/s") {
      const size_t plus = cell.find("±");
      row.Add("avg_ts", ToNumber(Trimmed(cell.substr(0, plus))), "no number in the log");
      row.Add("stddev_ts",
              plus == std::string_view::npos ? std::nullopt
                                             : ToNumber(Trimmed(cell.substr(plus + std::string_view("±").size()))),
              "no number in the log");
      for (Field& f : row.fields) {
        if (f.value) f.reason.clear();
      }
    } else if (names[i] == "model") {
      row.AddText("model_type", std::string(cell));
    } else if (names[i] == "threads") {
      AddCell(row, "n_threads", std::string(cell));
    } else {
      AddCell(row, FieldName(names[i]), std::string(cell));
    }
  }
  out.rows.push_back(std::move(row));
}

}  // namespace

void ParseLlamaBench(std::string_view text, Recorded& out) {
  const size_t bracket = text.find("[\n");
  if (text.find("\"avg_ts\":") != std::string_view::npos && bracket != std::string_view::npos) {
    const size_t end = text.rfind(']');
    const Json all = ParseJsonText<Json>(text.substr(bracket, end == std::string_view::npos ? end : end + 1 - bracket));
    if (all.is_array()) {
      for (const Json& object : all)
        FromJson(object,
                 static_cast<int64_t>(std::count(text.begin(), text.begin() + static_cast<int64_t>(bracket), '\n')) + 1,
                 out);
      if (!out.rows.empty()) return;
    }
  }
  std::vector<std::string> csv;
  std::vector<std::string_view> table;
  int64_t number = 0;
  for (const std::string_view line : Lines(text)) {
    number++;
    if (Words(line).empty()) continue;
    const size_t rows = out.rows.size();
    if (line.starts_with('{')) {
      FromJson(ParseJsonText<Json>(line), number, out);
    } else if (line.starts_with("INSERT INTO ") && line.find(") VALUES (") != std::string_view::npos) {
      const size_t open = line.find('('), values = line.find(") VALUES (");
      const std::vector<std::string> names = Cells(line.substr(open + 1, values - open - 1), '\'');
      std::string_view rest = line.substr(values + 10);
      rest = rest.substr(0, rest.rfind(')'));
      const std::vector<std::string> cells = Cells(rest, '\'');
      if (names.size() == cells.size()) {
        Row row{.line = number};
        for (size_t i = 0; i < names.size(); i++) AddCell(row, names[i], cells[i]);
        out.rows.push_back(std::move(row));
      }
    } else if (const auto cells = TableCells(line); !cells.empty()) {
      if (std::ranges::find(cells, "t/s") != cells.end())
        table = cells;
      else if (cells.size() == table.size() && !cells[0].starts_with("--") && !cells[0].starts_with(":-"))
        FromTable(table, cells, number, out);
    } else if (line.starts_with("build_commit,")) {
      csv = Cells(line, '"');
    } else if (!csv.empty()) {
      const std::vector<std::string> fields = Cells(line, '"');
      if (fields.size() == csv.size()) {
        Row row{.line = number};
        for (size_t i = 0; i < csv.size(); i++) AddCell(row, csv[i], fields[i]);
        out.rows.push_back(std::move(row));
      }
    }
    if (out.rows.size() == rows)
      out.other_lines++;
    else if (const Field* f = out.rows.back().Find("test_time"))
      out.rows.back().time = f->text;
  }
}

}  // namespace ridge::lab
