#include "lab/evidence/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <variant>

#include "base/json_text.h"

namespace ridge::lab {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = R"(
CREATE TABLE about (key TEXT, value TEXT);
CREATE TABLE environment (field TEXT, value TEXT, note TEXT);
CREATE TABLE runs (run INTEGER PRIMARY KEY, block INTEGER, arm INTEGER, value TEXT, unix_s REAL, begin_s REAL, end_s REAL, seconds REAL, cpu_seconds REAL,
                   max_rss_mb REAL, disturbed TEXT, temperature TEXT, power TEXT, subject_version TEXT, log TEXT);
CREATE TABLE resolved (run INTEGER, setting TEXT, value TEXT);
CREATE TABLE samples (run INTEGER, block INTEGER, arm INTEGER, test TEXT, value REAL, unit TEXT, higher_is_better INTEGER, disturbed TEXT);
CREATE TABLE answers (run INTEGER, prompt TEXT, answer TEXT, finish_reason TEXT, flags TEXT);
CREATE TABLE spans (run INTEGER, name TEXT, begin_s REAL, end_s REAL, placed TEXT);
CREATE TABLE monitor (run INTEGER, at_s REAL, reading TEXT, value REAL);
CREATE TABLE phases (run INTEGER, span TEXT, begin_s REAL, reading TEXT, samples INTEGER, mean REAL);
CREATE TABLE findings (test TEXT, unit TEXT, value TEXT, arm INTEGER, blocks INTEGER, left_out INTEGER, median REAL, ratio REAL, low REAL, high REAL,
                       confidence REAL, floor REAL, verdict TEXT);
)";
// Of a database from anyone: a select over its largest honest table takes a fraction of it.
constexpr int64_t kMostSteps = 2'000'000'000;
constexpr int kStepsPerCall = 100'000;

struct Close {
  void operator()(sqlite3* db) const { sqlite3_close(db); }
  void operator()(sqlite3_stmt* s) const { sqlite3_finalize(s); }
};
using Db = std::unique_ptr<sqlite3, Close>;
using Statement = std::unique_ptr<sqlite3_stmt, Close>;

Fail Broken(sqlite3* db, const char* what) {
  return Fail(Code::kInvalidData, what)
      .Where("samples.sqlite")
      .Found(db == nullptr ? "out of memory" : sqlite3_errmsg(db));
}

Result<Db> OpenMemory() {
  sqlite3* raw = nullptr;
  const int rc = sqlite3_open_v2(":memory:", &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY, nullptr);
  Db db(raw);
  if (rc != SQLITE_OK) return Broken(raw, "cannot open a database in memory");
  return db;
}

using Cell = std::variant<std::nullptr_t, int64_t, double, std::string>;
Cell Maybe(const std::optional<double>& v) { return v ? Cell(*v) : Cell(nullptr); }

class Table {
 public:
  static Result<Table> Into(sqlite3* db, const std::string& name, int columns) {
    std::string sql = "INSERT INTO " + name + " VALUES (?";
    for (int i = 1; i < columns; i++) sql += ",?";
    sqlite3_stmt* raw = nullptr;
    if (sqlite3_prepare_v2(db, (sql + ")").c_str(), -1, &raw, nullptr) != SQLITE_OK) return Broken(db, "cannot insert");
    return Table(db, Statement(raw));
  }
  Status Row(const std::vector<Cell>& cells) {
    sqlite3_stmt* s = statement_.get();
    for (size_t i = 0; i < cells.size(); i++) {
      const int at = static_cast<int>(i) + 1;
      if (const auto* v = std::get_if<int64_t>(&cells[i]))
        sqlite3_bind_int64(s, at, *v);
      else if (const auto* d = std::get_if<double>(&cells[i]))
        sqlite3_bind_double(s, at, *d);
      else if (const auto* t = std::get_if<std::string>(&cells[i]))
        sqlite3_bind_text(s, at, t->data(), static_cast<int>(t->size()), SQLITE_TRANSIENT);
      else
        sqlite3_bind_null(s, at);
    }
    if (sqlite3_step(s) != SQLITE_DONE) return Broken(db_, "cannot insert");
    sqlite3_reset(s);
    return {};
  }

 private:
  Table(sqlite3* db, Statement statement) : db_(db), statement_(std::move(statement)) {}
  sqlite3* db_;
  Statement statement_;
};

Status Fill(sqlite3* db, const BundleEvidence& e) {
  const Experiment& x = e.experiment;
  RIDGE_ASSIGN_OR_RETURN(Table about, Table::Into(db, "about", 2));
  for (const auto& [key, value] :
       {std::pair{"name", x.name}, {"question", x.question}, {"flag", x.flag}, {"hardware", e.hardware}})
    RIDGE_RETURN_IF_ERROR(about.Row({std::string(key), value}));
  RIDGE_ASSIGN_OR_RETURN(Table environment, Table::Into(db, "environment", 3));
  const Json j = ParseJsonText<Json>(e.environment_json);
  if (j.is_object() && j.contains("mlperf") && j["mlperf"].is_object()) {
    for (const auto& [field, answer] : j["mlperf"].items()) {
      if (!answer.is_object() || !answer.contains("value")) continue;
      const Json& v = answer["value"];
      const auto text = [](const Json& t) {
        return t.is_string() ? t.get<std::string>() : t.dump(-1, ' ', false, Json::error_handler_t::replace);
      };
      const char* note = answer.contains("reason") ? "reason" : "from";
      RIDGE_RETURN_IF_ERROR(environment.Row({field, v.is_null() ? Cell(nullptr) : Cell(text(v)),
                                             answer.contains(note) ? Cell(text(answer[note])) : Cell(nullptr)}));
    }
  }
  RIDGE_ASSIGN_OR_RETURN(Table runs, Table::Into(db, "runs", 15));
  RIDGE_ASSIGN_OR_RETURN(Table resolved, Table::Into(db, "resolved", 3));
  RIDGE_ASSIGN_OR_RETURN(Table answers, Table::Into(db, "answers", 5));
  RIDGE_ASSIGN_OR_RETURN(Table spans, Table::Into(db, "spans", 5));
  RIDGE_ASSIGN_OR_RETURN(Table monitor, Table::Into(db, "monitor", 4));
  RIDGE_ASSIGN_OR_RETURN(Table phases, Table::Into(db, "phases", 6));
  for (const EvidenceRun& r : e.runs) {
    const int64_t n = r.plan.number;
    RIDGE_RETURN_IF_ERROR(runs.Row({n, r.plan.block, static_cast<int64_t>(r.plan.arm), ValueOf(x, r.plan.arm),
                                    r.record.unix_s, r.record.begin_s, r.record.end_s, r.record.seconds,
                                    Maybe(r.record.cpu_seconds), Maybe(r.record.max_rss_mb), r.record.disturbed,
                                    r.record.temperature, r.record.power, r.record.output.subject_version, r.log}));
    for (const auto& [key, value] : r.record.output.resolved) RIDGE_RETURN_IF_ERROR(resolved.Row({n, key, value}));
    for (const Answer& a : r.record.output.answers) {
      std::string flags;
      for (const std::string& f : a.flags) flags += (flags.empty() ? "" : "; ") + f;
      RIDGE_RETURN_IF_ERROR(answers.Row({n, a.prompt_id, a.text, a.finish_reason, flags}));
    }
    for (const Span& s : r.spans) RIDGE_RETURN_IF_ERROR(spans.Row({n, s.name, s.begin_s, s.end_s, s.how}));
    if (!r.series) continue;
    for (const Series::Point& p : r.series->points) {
      for (size_t i = 0; i < r.series->names.size(); i++) {
        if (p.values[i]) RIDGE_RETURN_IF_ERROR(monitor.Row({n, p.before_s, r.series->names[i], *p.values[i]}));
      }
    }
    for (const PhaseReading& p : Align(r.spans, *r.series)) {
      const Span& s = r.spans[p.span];
      RIDGE_RETURN_IF_ERROR(
          phases.Row({n, s.name, s.begin_s, r.series->names[p.name], static_cast<int64_t>(p.samples), Maybe(p.mean)}));
    }
  }
  RIDGE_ASSIGN_OR_RETURN(Table samples, Table::Into(db, "samples", 8));
  for (const RunSample& s : e.samples)
    RIDGE_RETURN_IF_ERROR(samples.Row({s.number, s.block, static_cast<int64_t>(s.arm), s.test, s.value, s.unit,
                                       static_cast<int64_t>(s.higher_is_better), s.disturbed}));
  RIDGE_ASSIGN_OR_RETURN(Table findings, Table::Into(db, "findings", 13));
  for (const Finding& f : e.findings)
    RIDGE_RETURN_IF_ERROR(
        findings.Row({f.test, f.unit, f.value, static_cast<int64_t>(f.arm), f.blocks, f.left_out, Maybe(f.median),
                      Maybe(f.ratio), Maybe(f.low), Maybe(f.high), f.confidence, f.floor, f.verdict}));
  return {};
}

struct Budget {
  int64_t calls = 0;
};

// Text of one column, exact: a double as its shortest form that reads back the same.
std::string CellText(sqlite3_stmt* s, int column) {
  switch (sqlite3_column_type(s, column)) {
    case SQLITE_INTEGER: return fmt::format("{}", sqlite3_column_int64(s, column));
    case SQLITE_FLOAT: return fmt::format("{}", sqlite3_column_double(s, column));
    case SQLITE_NULL: return "null";
    default: {
      const auto* bytes = static_cast<const char*>(sqlite3_column_blob(s, column));
      const size_t n = static_cast<size_t>(sqlite3_column_bytes(s, column));
      std::string quoted = "'";
      for (size_t i = 0; i < n; i++) {
        const char c = bytes[i];
        if (c == '\'' || c == '\\') quoted += '\\';
        if (c == '\n')
          quoted += "\\n";
        else
          quoted += c;
      }
      return quoted + "'";
    }
  }
}

Status Select(sqlite3* db, const std::string& sql, std::string& out) {
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v2(db, sql.c_str(), -1, &raw, nullptr) != SQLITE_OK) return Broken(db, "cannot be read");
  const Statement statement(raw);
  int rc = SQLITE_ROW;
  while ((rc = sqlite3_step(raw)) == SQLITE_ROW) {
    for (int c = 0; c < sqlite3_column_count(raw); c++) out += (c == 0 ? "" : ",") + CellText(raw, c);
    out += "\n";
  }
  return rc == SQLITE_DONE ? Status() : Broken(db, "cannot be read");
}

}  // namespace

Result<std::string> DatabaseOf(const BundleEvidence& evidence) {
  RIDGE_ASSIGN_OR_RETURN(const Db db, OpenMemory());
  const auto run = [&](const char* sql) -> Status {
    return sqlite3_exec(db.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK ? Status()
                                                                               : Broken(db.get(), "cannot be written");
  };
  RIDGE_RETURN_IF_ERROR(run(kSchema));
  RIDGE_RETURN_IF_ERROR(run("BEGIN"));
  RIDGE_RETURN_IF_ERROR(Fill(db.get(), evidence));
  RIDGE_RETURN_IF_ERROR(run("COMMIT"));
  sqlite3_int64 size = 0;
  unsigned char* bytes = sqlite3_serialize(db.get(), "main", &size, 0);
  if (bytes == nullptr) return Broken(db.get(), "cannot be written");
  std::string text(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  sqlite3_free(bytes);
  return text;
}

Result<std::string> DatabaseText(std::string_view bytes) {
  RIDGE_ASSIGN_OR_RETURN(const Db db, OpenMemory());
  auto* copy = static_cast<unsigned char*>(sqlite3_malloc64(bytes.size() + 1));
  if (copy == nullptr) return Fail(Code::kResourceExhausted, "out of memory");
  std::memcpy(copy, bytes.data(), bytes.size());
  const sqlite3_int64 size = static_cast<sqlite3_int64>(bytes.size());
  // Frees the copy, also where it fails.
  if (sqlite3_deserialize(db.get(), "main", copy, size, size,
                          SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_READONLY) != SQLITE_OK)
    return Broken(db.get(), "no database");
  // What stands in the file is data, never something to run: a schema may hold views and functions, and one that never ends.
  sqlite3_db_config(db.get(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db.get(), SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_db_config(db.get(), SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  Budget budget{kMostSteps / kStepsPerCall};
  sqlite3_progress_handler(
      db.get(), kStepsPerCall, [](void* b) { return --static_cast<Budget*>(b)->calls < 0 ? 1 : 0; }, &budget);
  std::string text;
  RIDGE_RETURN_IF_ERROR(Select(db.get(), "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid", text));
  for (const char* table :
       {"about", "environment", "runs", "resolved", "samples", "answers", "spans", "monitor", "phases", "findings"}) {
    text += std::string("-- ") + table + "\n";
    RIDGE_RETURN_IF_ERROR(Select(db.get(), std::string("SELECT * FROM ") + table + " ORDER BY rowid", text));
  }
  return text;
}

}  // namespace ridge::lab
