#include "lab/evidence/spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace ridge::lab {
namespace {

using Json = nlohmann::ordered_json;

double Number(const Json& j, const char* key) {
  return j.contains(key) && j[key].is_number() ? j[key].get<double>() : 0;
}

std::string TestOf(const Json& row) {
  const double prompt = Number(row, "n_prompt"), gen = Number(row, "n_gen"), depth = Number(row, "n_depth");
  std::string name = prompt > 0 ? fmt::format("pp{}", prompt) : "";
  if (gen > 0) name += fmt::format("{}tg{}", name.empty() ? "" : "+", gen);
  return name + (depth > 0 ? fmt::format(" @ d{}", depth) : "");
}

// Repetitions of bench, each with its own stamp.
std::vector<Span> OfBench(const Json& rows) {
  std::vector<Span> spans;
  for (const Json& row : rows) {
    if (!row.is_object() || !row.contains("samples_at_s") || !row.contains("samples_ns")) continue;
    const Json &at = row["samples_at_s"], &ns = row["samples_ns"];
    if (!at.is_array() || !ns.is_array() || at.size() != ns.size()) continue;
    for (size_t i = 0; i < at.size(); i++) {
      if (!at[i].is_number() || !ns[i].is_number()) continue;
      const double begin = at[i].get<double>();
      spans.push_back({TestOf(row), begin, begin + ns[i].get<double>() * 1e-9, "stamped"});
    }
  }
  return spans;
}

// The parts of a ledger: durations in the order of the program. Sampling and detokenizing lie between the steps of decoding: they are shown after it.
void AddLedger(const Json& ledger, double end_s, std::vector<Span>& spans) {
  if (!ledger.is_object() || !ledger.contains("parts_ms") || !ledger["parts_ms"].is_object()) return;
  double total = 0;
  for (const auto& [name, ms] : ledger["parts_ms"].items()) total += ms.is_number() ? ms.get<double>() * 1e-3 : 0;
  double at = end_s - total;
  for (const auto& [name, ms] : ledger["parts_ms"].items()) {
    if (!ms.is_number() || !(ms.get<double>() > 0)) continue;
    const double seconds = ms.get<double>() * 1e-3;
    spans.push_back({name, at, at + seconds, "durations only, in the program's order, up to its end"});
    at += seconds;
  }
}

// When a request began and ended: stamped, or counted from the moment of which the client says that its clock began.
std::optional<std::pair<double, double>> TimesOf(const Json& document, const Json& request) {
  if (!request.is_object()) return std::nullopt;
  const auto number = [](const Json& j, const char* key) {
    return j.contains(key) && j[key].is_number() ? std::optional(j[key].get<double>()) : std::nullopt;
  };
  const auto began = number(request, "began_s"), ended = number(request, "ended_s");
  if (began && ended) return std::pair{*began, *ended};
  const auto zero = number(document, "clock_s"), sent = number(request, "sent_s"), done = number(request, "done_s");
  if (!zero || !sent || !done) return std::nullopt;
  return std::pair{*zero + *sent, *zero + *done};
}

constexpr size_t kMostOps = 1 << 16;  // of a step

// The traced steps of one row or ledger.
void AddSteps(const Json& document, std::vector<StepSpan>& steps) {
  if (!document.is_object() || !document.contains("op_trace")) return;
  const Json& trace = document["op_trace"];
  if (!trace.is_object() || !trace.contains("ops") || !trace["ops"].is_array() || trace["ops"].size() > kMostOps ||
      !trace.contains("steps") || !trace["steps"].is_array())
    return;
  for (const Json& step : trace["steps"]) {
    if (!step.is_object() || !step.contains("at_s") || !step["at_s"].is_number() || !step.contains("us") ||
        !step["us"].is_array() || step["us"].size() != trace["ops"].size())
      continue;
    StepSpan span{.phase = step.value("phase", Json()).is_string() ? step["phase"].get<std::string>() : "",
                  .tokens = static_cast<int64_t>(std::clamp(Number(step, "tokens"), 0.0, 1e9)),
                  .begin_s = step["at_s"].get<double>(),
                  .every = static_cast<int64_t>(std::clamp(Number(trace, "every"), 0.0, 1e9))};
    double at = span.begin_s;
    bool good = true;
    for (size_t i = 0; i < step["us"].size() && good; i++) {
      good = step["us"][i].is_number() && step["us"][i].get<double>() >= 0 && trace["ops"][i].is_string();
      if (!good) break;
      const double end = at + step["us"][i].get<double>() * 1e-6;
      span.ops.push_back({trace["ops"][i].get<std::string>(), at, end});
      at = end;
    }
    span.end_s = at;
    if (good && !span.ops.empty()) steps.push_back(std::move(span));
  }
}

bool HasRequests(const Json& j) { return j.is_object() && j.contains("requests") && j["requests"].is_array(); }

}  // namespace

std::vector<Span> SpansOf(double begin_s, double end_s, std::string_view stdout_text) {
  const Json j = ParseJsonText<Json>(stdout_text);
  std::vector<Span> spans;
  if (j.is_array()) {
    spans = OfBench(j);
  } else if (HasRequests(j)) {
    for (const Json& r : j["requests"]) {
      const auto times = TimesOf(j, r);
      // Only of a process of its own: a server's phases of several requests overlap.
      if (times && r.contains("ended_s") && r["ended_s"].is_number() && r.contains("timings"))
        AddLedger(r["timings"], times->second, spans);
    }
  } else {
    AddLedger(j, end_s, spans);
  }
  std::ranges::stable_sort(spans, {}, &Span::begin_s);
  // Of a damaged or hostile file: what lies outside the run, or over its neighbour, is no phase of it.
  std::vector<Span> kept;
  double at = begin_s;
  for (Span& s : spans) {
    if (!(s.begin_s >= at && s.end_s > s.begin_s && s.end_s <= end_s)) continue;
    at = s.end_s;
    kept.push_back(std::move(s));
  }
  if (!kept.empty() && kept[0].begin_s > begin_s) {
    const bool stamped = kept[0].how == "stamped";
    kept.insert(kept.begin(), Span{stamped ? "load and warm up" : "start", begin_s, kept[0].begin_s, kept[0].how});
  }
  return kept;
}

std::vector<StepSpan> StepsOf(double begin_s, double end_s, std::string_view stdout_text) {
  const Json j = ParseJsonText<Json>(stdout_text);
  std::vector<StepSpan> steps;
  if (j.is_array()) {
    for (const Json& row : j) AddSteps(row, steps);
  } else if (HasRequests(j)) {
    for (const Json& r : j["requests"]) {
      if (r.is_object() && r.contains("timings")) AddSteps(r["timings"], steps);
    }
  } else {
    AddSteps(j, steps);
  }
  std::ranges::stable_sort(steps, {}, &StepSpan::begin_s);
  std::vector<StepSpan> kept;
  double at = begin_s;
  for (StepSpan& s : steps) {
    if (!(s.begin_s >= at && s.end_s >= s.begin_s && s.end_s <= end_s)) continue;
    at = s.end_s;
    kept.push_back(std::move(s));
  }
  return kept;
}

std::vector<RequestSpan> RequestsOf(double begin_s, double end_s, std::string_view stdout_text) {
  std::vector<RequestSpan> out;
  const Json j = ParseJsonText<Json>(stdout_text);
  if (!HasRequests(j)) return out;
  for (const Json& r : j["requests"]) {
    const auto times = TimesOf(j, r);
    if (!times || !(times->first >= begin_s && times->second >= times->first && times->second <= end_s)) continue;
    RequestSpan span{.begin_s = times->first, .end_s = times->second};
    if (r.contains("prompt_id") && r["prompt_id"].is_string()) span.prompt = r["prompt_id"].get<std::string>();
    if (j.contains("clock_s") && j["clock_s"].is_number() && r.contains("first_token_s") &&
        r["first_token_s"].is_number()) {
      const double first = j["clock_s"].get<double>() + r["first_token_s"].get<double>();
      if (first >= span.begin_s && first <= span.end_s) span.first_token_s = first;
    }
    out.push_back(std::move(span));
  }
  return out;
}

std::vector<PhaseReading> Align(const std::vector<Span>& spans, const Series& series) {
  std::vector<PhaseReading> out;
  for (size_t s = 0; s < spans.size(); s++) {
    std::vector<size_t> inside;
    for (size_t i = 0; i < series.points.size(); i++) {
      if (series.points[i].before_s >= spans[s].begin_s && series.points[i].after_s <= spans[s].end_s)
        inside.push_back(i);
    }
    // A rate counts from the sample before: that of the first one inside holds time from before the phase.
    if (!inside.empty()) inside.erase(inside.begin());
    for (size_t name = 0; name < series.names.size(); name++) {
      PhaseReading reading{s, name};
      double sum = 0;
      for (const size_t i : inside) {
        if (const auto value = series.points[i].values[name]) sum += *value, reading.samples++;
      }
      if (reading.samples >= 2) reading.mean = sum / static_cast<double>(reading.samples);
      out.push_back(reading);
    }
  }
  return out;
}

}  // namespace ridge::lab
