// The long tables of a report, most of them folded: settings, runs, answers, the machine.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/json_text.h"
#include "lab/evidence/report.h"

namespace ridge::lab {
namespace {

using Json = nlohmann::ordered_json;

TableCell Without(std::string text) { return {.text = std::move(text), .missing = true}; }

}  // namespace

DataTable AcceptanceTable(const std::vector<Accepted>& accepted, const Wording& w) {
  DataTable t{
      .columns = {{w("Asked for", "验收项")}, {w("Met", "达标")}, {w("There", "已有")}, {w("Missing", "缺少")}}};
  for (const Accepted& a : accepted) {
    const auto join = [&](const std::vector<Bilingual>& all) {
      std::string text;
      for (const Bilingual& one : all) text += (text.empty() ? "" : w("; ", "；")) + one.In(w);
      return text;
    };
    t.rows.push_back({{a.title.In(w)},
                      {.text = a.ok ? w("yes", "是") : w("no", "否"), .tone = a.ok ? "good" : "bad"},
                      {join(a.have)},
                      {join(a.lacks)}});
  }
  return t;
}

DataTable ResolvedTable(const BundleEvidence& e, const Wording& w) {
  DataTable t{.columns = {{w("Setting", "设置")}},
              .folded = true,
              .caption = w("All settings as the subject resolved them", "对象实际采用的全部设置")};
  std::set<std::string> keys;
  std::vector<size_t> arms;
  for (size_t arm = 0; arm < Arms(e.experiment); arm++) {
    const auto runs = RunsOf(e, arm);
    if (arm == 1 || runs.empty()) continue;
    arms.push_back(arm);
    t.columns.push_back({ArmLabel(e, arm)});
    for (const auto& [key, value] : runs[0]->record.output.resolved) keys.insert(key);
  }
  for (const std::string& key : keys) {
    std::vector<TableCell> row = {{key}};
    std::set<std::string> values;
    for (const size_t arm : arms) {
      const Resolved& settings = RunsOf(e, arm)[0]->record.output.resolved;
      const auto it = settings.find(key);
      values.insert(it == settings.end() ? "" : it->second);
      row.push_back(it == settings.end() ? Without(w("not told", "未说明")) : TableCell{ShortValue(it->second)});
    }
    for (size_t i = 1; values.size() > 1 && i < row.size(); i++) row[i].tone = "good";
    t.rows.push_back(std::move(row));
  }
  return t;
}

DataTable RunsTable(const BundleEvidence& e, const Wording& w) {
  DataTable t{.columns = {{w("Run", "运行"), true},
                          {w("Block", "区块"), true},
                          {w("Value", "参数值")},
                          {w("Wall time", "用时"), true},
                          {w("CPU time", "CPU 时间"), true},
                          {w("Samples", "监控样本"), true},
                          {w("Disturbance", "干扰")},
                          {w("Log", "日志")}},
              .folded = true,
              .caption = w(fmt::format("All {} runs in the order in which they were made", e.runs.size()),
                           fmt::format("全部 {} 次运行，按执行顺序", e.runs.size()))};
  for (const EvidenceRun& r : e.runs)
    t.rows.push_back({{std::to_string(r.plan.number)},
                      {std::to_string(r.plan.block)},
                      {ShortValue(ValueOf(e.experiment, r.plan.arm)) + (r.plan.arm == 1 ? " (A/A)" : "") +
                       (r.plan.asks ? w(", asked for its quality", "，仅提问以判断质量") : "")},
                      {fmt::format("{:.2f} s", r.record.seconds)},
                      r.record.cpu_seconds ? TableCell{fmt::format("{:.2f} s", *r.record.cpu_seconds)} : Without("-"),
                      r.series ? TableCell{std::to_string(r.series->points.size())} : Without(r.no_series),
                      {.text = w.Reason(r.record.disturbed), .tone = r.record.disturbed.empty() ? "" : "bad"},
                      {r.log}});
  return t;
}

DataTable EnvironmentTable(const BundleEvidence& e, const Wording& w) {
  DataTable t{
      .columns = {{w("Field", "字段")}, {w("Value", "值")}, {w("From, or why it is not known", "来源，或未知的原因")}},
      .folded = true,
      .caption = w("The machine: the 35 fields that MLPerf asks for", "设备：MLPerf 要求的 35 个字段")};
  const Json j = ParseJsonText<Json>(e.environment_json);
  if (!j.is_object() || !j.contains("mlperf") || !j["mlperf"].is_object()) return t;
  for (const auto& [field, answer] : j["mlperf"].items()) {
    if (!answer.is_object()) continue;
    const auto text = [&](const char* key) -> std::string {
      if (!answer.contains(key)) return "";
      return answer[key].is_string() ? answer[key].get<std::string>()
                                     : answer[key].dump(-1, ' ', false, Json::error_handler_t::replace);
    };
    const bool known = answer.contains("value") && !answer["value"].is_null();
    t.rows.push_back(
        {{field}, known ? TableCell{text("value")} : Without("null"), {w.Reason(text(known ? "from" : "reason"))}});
  }
  return t;
}

DataTable AnswersTable(const BundleEvidence& e, const Wording& w) {
  DataTable t{.columns = {{w("Prompt", "提示")},
                          {w("Value", "参数值")},
                          {w("Answer", "回答")},
                          {w("End", "结束")},
                          {w("Flags", "标记")}},
              .folded = true,
              .caption = w("What was answered, as in the first run of each value", "回答内容（每个取值的第一次运行）")};
  constexpr size_t kMostBytes = 600;
  for (size_t arm = 0; arm < Arms(e.experiment); arm++) {
    const auto runs = AskedOf(e, arm);
    if (arm == 1 || runs.empty()) continue;
    for (const Answer& a : runs[0]->record.output.answers) {
      std::string text = a.text, flags;
      if (text.size() > kMostBytes) {
        size_t cut = kMostBytes;
        while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) cut--;
        text = text.substr(0, cut) + w(fmt::format(" … ({} bytes; all of it in {})", a.text.size(), runs[0]->out),
                                       fmt::format(" …（共 {} 字节，全文见 {}）", a.text.size(), runs[0]->out));
      }
      for (const std::string& f : a.flags) flags += (flags.empty() ? "" : w("; ", "；")) + w.Flag(f);
      t.rows.push_back({{a.prompt_id},
                        {ShortValue(ValueOf(e.experiment, arm))},
                        {text},
                        a.finish_reason.empty() ? Without(w("not told", "未说明")) : TableCell{a.finish_reason},
                        {.text = flags, .tone = flags.empty() ? "" : "bad"}});
    }
  }
  return t;
}

}  // namespace ridge::lab
