// Logs that other tools wrote, on this machine or elsewhere, as rows of named readings.
//
//   RIDGE_ASSIGN_OR_RETURN(Recorded log, ParseRecorded(text));            // finds out what it is
//   for (const Row& row : log.rows) ... row.fields[0].name "ram_used_mb", .value 330
//
// Guarantees: nothing is filled in: a sensor that is off, a column that says "-", are fields without a value and with the reason. What a line holds that
// the grammar does not know is kept in `unknown`, word for word; a line that is no sample is counted, not lost. Names carry their unit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ridge::lab {

enum class LogKind { kTegrastats, kDmon, kLlamaBench, kLlamaServer, kVllm, kSglang, kOllama };
std::string_view Name(LogKind kind);  // "tegrastats", "dmon", "llama-bench", "llama-server", "vllm", "sglang", "ollama"
Result<LogKind> ParseLogKind(std::string_view name);

// A longer line of tegrastats or SGLang is no sample (theirs have some hundreds): its names would cost the square of their number.
constexpr size_t kMostSampleBytes = 4096;

struct Field {
  std::string name;
  std::optional<double> value;
  std::string text;    // where it is no number
  std::string reason;  // why there is no value
};

struct Row {
  int64_t line = 0;  // of the log, from 1: its first
  std::string time;  // as the log spells it; empty: the line has none
  std::vector<Field> fields;
  std::vector<std::string> unknown;

  const Field* Find(std::string_view name) const;  // nullptr: the line does not say it
  void Add(std::string name, std::optional<double> value, std::string reason = {});
  void AddText(std::string name, std::string text);
};

struct Recorded {
  LogKind kind = LogKind::kTegrastats;
  std::vector<Row> rows;
  int64_t other_lines = 0;  // not empty, and no samples: headers, messages of the program
};

// kind not given: by what the lines look like. Errors: kInvalidData where nothing in the text is a sample.
Result<Recorded> ParseRecorded(std::string_view text, std::optional<LogKind> kind = {});

// One line of tegrastats, JetPack 4 to 7; nullopt: it is none.
std::optional<Row> ParseTegrastats(std::string_view line);

void ParseDmon(std::string_view text, Recorded& out);
void ParseLlamaBench(std::string_view text, Recorded& out);  // md, csv, json, jsonl and sql
void ParseLlamaServer(std::string_view text,
                      Recorded& out);  // llama-server, llama-cli and other tools of llama.cpp: times of requests
void ParseVllm(std::string_view text, Recorded& out);
void ParseSglang(std::string_view text, Recorded& out);  // batches
void ParseOllama(std::string_view text, Recorded& out);  // requests

// Columns in the order in which they first occur; values that are missing are empty, and `unknown` comes last.
std::string RecordedCsv(const Recorded& log);

// Helpers of the parsers.
std::vector<std::string_view> Lines(std::string_view text);
std::vector<std::string_view> Words(std::string_view line);
std::optional<double> ToNumber(std::string_view text);  // the whole text is one
std::string FieldName(std::string_view text);           // lower case; what is no letter or digit becomes one _
std::string CsvCell(std::string_view text);

}  // namespace ridge::lab
