#include "bench_output.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "model_options.h"
#include "text_table.h"

namespace ridge::app {
namespace {

Json RowJson(const BenchRow& r) {
  Json j;
  j["cpu_info"] = r.cpu;
  j["backends"] = "CPU";
  j["model_filename"] = r.model_filename;
  j["model_type"] = r.model_type;
  j["model_size"] = r.model_size_bytes;
  j["model_n_params"] = r.model_parameters;
  j["n_batch"] = r.n_batch;
  j["n_ubatch"] = r.n_ubatch;
  j["n_threads"] = r.n_threads;
  j["isa"] = r.isa;
  j["type_k"] = r.type_k;
  j["type_v"] = r.type_v;
  j["fusion"] = r.fusion;
  j["matmul"] = r.matmul;
  j["profile"] = r.profile.empty() ? Json(nullptr) : Json(r.profile);
  j["n_gpu_layers"] = 0;
  j["flash_attn"] = r.flash_attention;
  j["n_prompt"] = r.n_prompt;
  j["n_gen"] = r.n_gen;
  j["n_depth"] = r.n_depth;
  j["with_sampling"] = r.with_sampling;
  j["trace_every"] = r.trace_every;
  j["test_time"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  j["avg_ns"] = r.time.mean;
  j["stddev_ns"] = r.time.stddev;
  j["avg_ts"] = r.speed.mean;
  j["stddev_ts"] = r.speed.stddev;
  j["median_ts"] = r.speed.median;
  j["median_low_ts"] = r.interval ? Json(r.interval->low) : Json(nullptr);
  j["median_high_ts"] = r.interval ? Json(r.interval->high) : Json(nullptr);
  j["median_confidence"] = r.interval ? Json(r.interval->confidence) : Json(nullptr);
  j["samples_ns"] = r.samples_ns;
  j["samples_ts"] = r.samples_ts;
  j["samples_at_s"] = r.samples_at_s;
  j["read_gbps"] = r.read_gbps ? Json(*r.read_gbps) : Json(nullptr);
  j["read_ceiling_gbps"] = r.read_ceiling_gbps ? Json(*r.read_ceiling_gbps) : Json(nullptr);
  j["bound"] = r.bound ? Json(std::string(lab::Name(r.bound->limit))) : Json(nullptr);
  j["ceiling_share"] = r.bound ? Json(r.bound->share) : Json(nullptr);
  j["ceiling_reason"] = r.bound ? Json(nullptr) : Json(r.ceiling_reason);
  // What one repetition reads and computes, and the seconds that this takes at each ceiling.
  const auto floor = [&](std::optional<double> lab::Floors::* of) {
    return r.floors && r.floors.value().*of ? Json(*(r.floors.value().*of)) : Json(nullptr);
  };
  j["ceiling_memory_s"] = floor(&lab::Floors::memory_s);
  j["ceiling_unpack_s"] = floor(&lab::Floors::unpack_s);
  j["ceiling_arithmetic_s"] = floor(&lab::Floors::arithmetic_s);
  j["ceiling_kernels_s"] = floor(&lab::Floors::kernels_s);
  j["ceiling_bytes"] = r.bytes;
  j["ceiling_flops"] = r.flops;
  if (!r.op_trace.is_null()) j["op_trace"] = r.op_trace;
  return j;
}

// Of the scalar fields, as csv and sql have no lists.
std::vector<std::pair<std::string, std::string>> Fields(const BenchRow& row) {
  std::vector<std::pair<std::string, std::string>> fields;
  const Json document = RowJson(row);
  for (const auto& [key, value] : document.items()) {
    if (!value.is_structured())
      fields.emplace_back(key, value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump());
  }
  return fields;
}

std::string Quote(const std::string& text, char quote) {
  std::string out(1, quote);
  for (char c : text) {
    if (c == quote) out += quote;
    out += c;
  }
  return out + quote;
}

std::string TestName(const BenchRow& r) {
  std::string name = r.n_prompt > 0 && r.n_gen > 0 ? fmt::format("pp{}+tg{}", r.n_prompt, r.n_gen)
                     : r.n_prompt > 0              ? fmt::format("pp{}", r.n_prompt)
                                                   : fmt::format("tg{}", r.n_gen);
  if (r.with_sampling && r.n_gen > 0) name += " sampled";
  if (r.n_depth > 0) name += fmt::format(" @ d{}", r.n_depth);
  if (!r.flash_attention) name += " -fa off";
  if (r.fusion != "on") name += " --fusion " + r.fusion;
  if (r.matmul != "native") name += " --matmul " + r.matmul + " (not bit-stable)";
  return name;
}

}  // namespace

Result<BenchFormat> ParseBenchFormat(const std::string& name) {
  if (name == "md") return BenchFormat::kMarkdown;
  if (name == "csv") return BenchFormat::kCsv;
  if (name == "json") return BenchFormat::kJson;
  if (name == "jsonl") return BenchFormat::kJsonLines;
  if (name == "sql") return BenchFormat::kSql;
  return Fail(Code::kUsage, "unknown output format").Where("-o").Found(name).Expected("md, csv, json, jsonl or sql");
}

Status BenchPrinter::Begin() {
  if (format_ == BenchFormat::kMarkdown) {
    RIDGE_RETURN_IF_ERROR(out_.Write(fmt::format(
        "| {:<30} | {:>10} | {:>10} | {:>7} | {:>7} | {:>4} | {:>15} | {:>24} | {:>9} | {:>14} |\n", "model", "size",
        "params", "isa", "threads", "kv", "test", "median t/s [interval]", "GB/s read", "of the ceiling")));
    return out_.Write(fmt::format(
        "| {:-<30} | {:->9}: | {:->9}: | {:->6}: | {:->6}: | {:->3}: | {:->14}: | {:->23}: | {:->8}: | {:->13}: |\n",
        "", "", "", "", "", "", "", "", "", ""));
  }
  return {};
}

Status BenchPrinter::Row(const BenchRow& r) {
  std::string text;
  switch (format_) {
    case BenchFormat::kMarkdown: {
      const std::string kv = r.type_k == r.type_v ? r.type_k : r.type_k + "/" + r.type_v;
      text = fmt::format(
          "| {:<30} | {:>6.2f} MiB | {:>8.2f} M | {:>7} | {:>7} | {:>4} | {:>15} | {:>24} | {:>9} | {:>14} |\n",
          Printable(r.model_type, TerminalColumns(30)), static_cast<double>(r.model_size_bytes) / (1 << 20),
          static_cast<double>(r.model_parameters) / 1e6, r.isa, r.n_threads, kv, TestName(r),
          r.interval ? fmt::format("{:.2f} [{:.2f}, {:.2f}]", r.speed.median, r.interval->low, r.interval->high)
                     : fmt::format("{:.2f}", r.speed.median),
          r.read_gbps ? fmt::format("{:.1f}", *r.read_gbps) : "-",
          r.bound ? fmt::format("{:.0f} % {}", 100 * r.bound->share, lab::Name(r.bound->limit)) : "-");
      if (!r.bound) reasons_.insert("\"-\" in the column of the ceiling: " + r.ceiling_reason);
      if (!r.read_gbps) reasons_.insert("\"-\" under GB/s read: what a prompt reads says little of its speed");
      break;
    }
    case BenchFormat::kCsv: {
      std::string names, values;
      for (const auto& [key, value] : Fields(r)) {
        names += (names.empty() ? "" : ",") + key;
        values += (values.empty() ? "" : ",") + Quote(value, '"');
      }
      text = (first_ ? names + "\n" : "") + values + "\n";
      break;
    }
    case BenchFormat::kJson:
      rows_.push_back(RowJson(r));  // one document: written when it is complete
      break;
    case BenchFormat::kJsonLines: text = RowJson(r).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; break;
    case BenchFormat::kSql: {
      std::string columns, values;
      for (const auto& [key, value] : Fields(r)) {
        columns += (columns.empty() ? "" : ", ") + key;
        values += (values.empty() ? "" : ", ") + Quote(value, '\'');
      }
      if (first_) text = "CREATE TABLE IF NOT EXISTS ridge_bench (" + columns + ");\n";
      text += "INSERT INTO ridge_bench (" + columns + ") VALUES (" + values + ");\n";
      break;
    }
  }
  first_ = false;
  RIDGE_RETURN_IF_ERROR(out_.Write(text));
  return out_.Flush();
}

Status BenchPrinter::End() {
  for (const std::string& reason : reasons_) Note(reason);
  return format_ == BenchFormat::kJson ? out_.Document(rows_) : Status();
}

}  // namespace ridge::app
