#include "lab/roofline/roofline_json.h"

#include <cmath>
#include <exception>

namespace ridge::lab {
namespace {

using Json = nlohmann::ordered_json;

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

std::optional<double> Optional(const Json& value) {
  return value.is_null() ? std::nullopt : std::optional<double>(value.get<double>());
}

Json PeakTable(const Roofline& r, std::optional<double> PeakRow::* field) {
  Json table = Json::object();
  for (const PeakRow& row : r.peaks) table[row.isa] = OrNull(row.*field);
  return table;
}

// A rate that was measured is a number above 0.
double Rate(const Json& value) {
  const double rate = value.get<double>();
  if (!(rate > 0) || !std::isfinite(rate)) throw std::out_of_range("a rate that is not above 0");
  return rate;
}

void ReadPeaks(const Json& table, std::optional<double> PeakRow::* field, Roofline& r) {
  for (const auto& [isa, value] : table.items()) {
    PeakRow* row = nullptr;
    for (PeakRow& known : r.peaks) {
      if (known.isa == isa) row = &known;
    }
    if (row == nullptr) row = &r.peaks.emplace_back(PeakRow{.isa = isa});
    if (!value.is_null()) row->*field = Rate(value);
  }
}

Roofline Parse(const Json& j) {
  Roofline r;
  r.fingerprint = j.at("fingerprint").get<std::string>();
  r.build = j.at("build").get<std::string>();
  r.measured_at = j.at("measured_at").get<std::string>();
  r.threads = j.at("threads").get<int>();
  if (r.threads < 1) throw std::out_of_range("threads");
  r.isa = j.at("isa").get<std::string>();
  for (const auto& [threads, gbps] : j.at("read_gbps").items())
    r.read.push_back({std::stoi(threads), Rate(gbps), j.at("read_patterns").at(threads).get<std::string>()});
  if (r.read.empty()) throw std::out_of_range("read_gbps is empty");
  ReadPeaks(j.at("int8_gops"), &PeakRow::int8_gops, r);
  ReadPeaks(j.at("bf16_gflops"), &PeakRow::bf16_gflops, r);
  ReadPeaks(j.at("fp32_gflops"), &PeakRow::fp32_gflops, r);
  for (const auto& [type, f] : j.at("formats").items()) {
    r.formats.push_back({type, f.at("kernel").get<std::string>(), f.at("integer").get<bool>(),
                         Rate(f.at("layout_ratio")), Rate(f.at("gbps_memory")), Rate(f.at("gbps_l2")),
                         f.contains("gbps_decode") ? Rate(f["gbps_decode"]) : 0});
  }
  // Of a version that did not measure it: nothing.
  for (const Json& a : j.value("attention", Json::array()))
    r.attention.push_back({a.at("kv_type").get<std::string>(), a.at("head_dim").get<int64_t>(),
                           a.at("group").get<int64_t>(), Rate(a.at("tokens_per_s"))});
  if (j.contains("dispatch_us")) r.dispatch_us = Rate(j["dispatch_us"]);
  const Json& m = j.at("machine");
  r.machine = {.cpu = m.at("cpu").get<std::string>(),
               .features = m.at("features").get<std::string>(),
               .cpus = m.at("cpus").get<int>(),
               .cores = m.at("cores").get<int>(),
               .l2_bytes = m.at("l2_bytes").get<uint64_t>(),
               .l3_bytes = m.at("l3_bytes").get<uint64_t>(),
               .memory_gib = m.at("memory_gib").get<uint64_t>(),
               .huge_pages = m.at("huge_pages").get<std::string>()};
  const Json& d = j.at("disturbance");
  r.disturbance = {Optional(d.at("others_share")), Optional(d.at("steal_share")), d.at("cpu_share").get<double>(),
                   d.at("spread").get<double>()};
  r.verdict.quiet = j.at("quiet").get<bool>();
  r.verdict.reasons = j.at("quiet_reasons").get<std::vector<std::string>>();
  r.is_short = j.at("short").get<bool>();
  r.rounds = j.at("rounds").get<int>();
  r.seconds = j.at("measured_s").get<double>();
  return r;
}

}  // namespace

Json ToJson(const Roofline& r) {
  Json read = Json::object(), patterns = Json::object(), formats = Json::object();
  for (const ReadRow& row : r.read) {
    read[std::to_string(row.threads)] = row.gbps;
    patterns[std::to_string(row.threads)] = row.pattern;
  }
  for (const FormatRow& row : r.formats) {
    formats[row.type] = {{"gbps_memory", row.gbps_memory},
                         {"gbps_l2", row.gbps_l2},
                         {"kernel", row.kernel},
                         {"integer", row.integer},
                         {"layout_ratio", row.layout_ratio}};
    if (row.gbps_decode > 0) formats[row.type]["gbps_decode"] = row.gbps_decode;
  }
  Json attention = Json::array();
  for (const AttentionRow& row : r.attention)
    attention.push_back({{"kv_type", row.kv_type},
                         {"head_dim", row.head_dim},
                         {"group", row.group},
                         {"tokens_per_s", row.tokens_per_s}});
  Json document = {{"read_gbps", std::move(read)},
                   {"int8_gops", PeakTable(r, &PeakRow::int8_gops)},
                   {"bf16_gflops", PeakTable(r, &PeakRow::bf16_gflops)},
                   {"fp32_gflops", PeakTable(r, &PeakRow::fp32_gflops)},
                   {"formats", std::move(formats)},
                   {"attention", std::move(attention)},
                   {"quiet", r.verdict.quiet},
                   {"quiet_reasons", r.verdict.reasons},
                   {"fingerprint", r.fingerprint},
                   {"threads", r.threads},
                   {"isa", r.isa},
                   {"read_patterns", std::move(patterns)},
                   {"disturbance",
                    {{"others_share", OrNull(r.disturbance.others_share)},
                     {"steal_share", OrNull(r.disturbance.steal_share)},
                     {"cpu_share", r.disturbance.cpu_share},
                     {"spread", r.disturbance.spread}}},
                   {"machine",
                    {{"cpu", r.machine.cpu},
                     {"features", r.machine.features},
                     {"cpus", r.machine.cpus},
                     {"cores", r.machine.cores},
                     {"l2_bytes", r.machine.l2_bytes},
                     {"l3_bytes", r.machine.l3_bytes},
                     {"memory_gib", r.machine.memory_gib},
                     {"huge_pages", r.machine.huge_pages}}},
                   {"build", r.build},
                   {"measured_at", r.measured_at},
                   {"measured_s", r.seconds},
                   {"rounds", r.rounds},
                   {"short", r.is_short}};
  if (r.dispatch_us > 0) document["dispatch_us"] = r.dispatch_us;
  return document;
}

Result<Roofline> FromJson(const Json& document) {
  try {
    return Parse(document);
  } catch (const std::exception& wrong) {
    return Fail(Code::kInvalidData, "not a roofline document").Found(wrong.what());
  }
}

}  // namespace ridge::lab
