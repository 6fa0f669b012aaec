#include "lab/evidence/spans.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

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

// The ledger of run: durations in the order of the program. Sampling and detokenizing lie between the steps of decoding: they are shown after it.
std::vector<Span> OfLedger(const Json& document, double end_s) {
  std::vector<Span> spans;
  if (!document.contains("parts_ms") || !document["parts_ms"].is_object()) return spans;
  double total = 0;
  for (const auto& [name, ms] : document["parts_ms"].items()) {
    if (!ms.is_number() || !(ms.get<double>() > 0)) continue;
    spans.push_back({name, total, total + ms.get<double>() * 1e-3,
                     "durations only, in the program's order, up to the end of the run"});
    total += ms.get<double>() * 1e-3;
  }
  for (Span& s : spans) s.begin_s += end_s - total, s.end_s += end_s - total;
  return spans;
}

}  // namespace

std::vector<Span> SpansOf(double begin_s, double end_s, std::string_view stdout_text) {
  const Json j = Json::parse(stdout_text, nullptr, false);
  std::vector<Span> spans = j.is_array() ? OfBench(j) : j.is_object() ? OfLedger(j, end_s) : std::vector<Span>();
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
