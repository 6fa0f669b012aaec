#include "lab/load/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/json_text.h"
#include "lab/monitor/recorded.h"

namespace ridge::lab {
namespace {

struct Percentile {
  const char* name;
  double q;
  int64_t samples;
};
// Least n for which a percentile can be certified with 99 % confidence when no sample exceeds it: MLPerf LoadGen's early stopping (t = 1).
constexpr Percentile kPercentiles[] = {{"p50", 0.50, 11},  {"p75", 0.75, 24},  {"p90", 0.90, 64},
                                       {"p95", 0.95, 130}, {"p97", 0.97, 219}, {"p99", 0.99, 662}};

// A send may be late by so much of a request's time to the first token before it colours what is measured, and by so much in any case: timers and
// scheduling are no finer.
constexpr double kMostDispatchShare = 0.01, kLeastDispatchMs = 2, kMostClientCpuPercent = 80;

}  // namespace

bool IsOpen(const LoadOptions& options) { return options.rate > 0 || options.arrivals == Arrivals::kTrace; }

Result<std::vector<TracedRequest>> ParseTrace(std::string_view text) {
  std::vector<TracedRequest> out;
  size_t number = 0;
  for (const std::string_view line : Lines(text)) {
    number++;
    if (Words(line).empty()) continue;
    const auto bad = [&](std::string what) -> Fail {
      return Fail(Code::kInvalidData, std::move(what))
          .Where(fmt::format("line {}", number))
          .Found(std::string(line.substr(0, 80)))
          .Expected("a number of seconds, or an object with \"at_s\" in seconds or \"timestamp\" in ms");
    };
    TracedRequest r;
    const nlohmann::json j = ParseJsonText<nlohmann::json>(line);
    const auto number_of = [&](const char* key) -> std::optional<double> {
      const auto it = j.find(key);
      return it != j.end() && it->is_number() ? std::optional(it->get<double>()) : std::nullopt;
    };
    if (j.is_number()) {
      r.at_s = j.get<double>();
    } else if (j.is_object()) {
      const auto seconds = number_of("at_s"), ms = number_of("timestamp");
      if (!seconds && !ms) return bad("a line of the trace has no time");
      r.at_s = seconds ? *seconds : *ms * 1e-3;
      if (const auto it = j.find("prompt"); it != j.end()) {
        if (!it->is_string()) return bad("a prompt of the trace is no text");
        r.prompt = it->get<std::string>();
      }
      for (const auto& [key, to] : {std::pair{"max_tokens", &r.max_tokens}, std::pair{"output_length", &r.max_tokens},
                                    std::pair{"input_length", &r.prompt_tokens}}) {
        if (!j.contains(key)) continue;
        const auto v = number_of(key);
        if (!v || *v < 1 || *v > 1e7 || *v != std::floor(*v)) return bad(fmt::format("{} is no count of tokens", key));
        *to = static_cast<int64_t>(*v);
      }
    } else {
      return bad("a line of the trace is no request");
    }
    if (!(std::abs(r.at_s) <= 1e12)) return bad("a time of the trace cannot be");
    if (!out.empty() && r.at_s < out.back().at_s) return bad("the times of the trace go backwards");
    out.push_back(std::move(r));
  }
  if (out.empty()) return Fail(Code::kInvalidData, "the trace holds no request");
  const double first = out[0].at_s;
  for (TracedRequest& r : out) r.at_s -= first;
  return out;
}

int64_t SamplesFor(double percentile) {
  for (const Percentile& p : kPercentiles) {
    if (std::abs(p.q * 100 - percentile) < 1e-9) return p.samples;
  }
  return 0;
}

Distribution DistributionOf(std::vector<double> values) {
  Distribution d{.n = static_cast<int64_t>(values.size())};
  std::ranges::sort(values);
  for (const Percentile& p : kPercentiles) {
    d.percentiles[p.name] = {};
    if (d.n < p.samples) continue;
    const size_t rank = static_cast<size_t>(std::ceil(p.q * static_cast<double>(values.size())));
    d.percentiles[p.name] = values[std::max<size_t>(rank, 1) - 1];
  }
  if (values.empty()) return d;
  double sum = 0;
  for (const double v : values) sum += v;
  d.mean = sum / static_cast<double>(values.size());
  d.least = values.front(), d.most = values.back();
  return d;
}

std::vector<double> Schedule(const LoadOptions& options) {
  std::vector<double> at;
  if (options.arrivals == Arrivals::kTrace) {
    for (int64_t i = 0; i < options.requests; i++) at.push_back(options.trace[static_cast<size_t>(i)].at_s);
    return at;
  }
  if (options.rate <= 0) return at;
  std::mt19937_64 random(options.seed);
  double t = 0;
  for (int64_t i = 0; i < options.requests; i++) {
    at.push_back(t);
    // Exponential gaps, by inversion: the same for one seed in every build.
    const double u = static_cast<double>(random() >> 11) * 0x1p-53;
    t += (options.arrivals == Arrivals::kConstant ? 1.0 : -std::log1p(-u)) / options.rate;
  }
  return at;
}

LoadReport Report(const LoadOptions& options, const LoadRun& run) {
  LoadReport report{.duration_s = run.duration_s};
  std::vector<double> ttft_scheduled, ttft_sent, content, e2e_scheduled, e2e_sent, gap, tpot, dispatch;
  bool usage = false, chunks = false;
  for (const RequestRecord& r : run.records) {
    report.held += r.held;
    if (IsOpen(options) && !r.held) dispatch.push_back((r.sent_s - r.scheduled_s) * 1e3);
    if (!r.error.empty()) {
      report.failed++;
      report.errors[r.error]++;
      continue;
    }
    report.completed++;
    if (!r.disbelieved.empty()) report.disbelieved[r.disbelieved]++;
    ttft_scheduled.push_back((*r.first_token_s - r.scheduled_s) * 1e3);
    ttft_sent.push_back((*r.first_token_s - r.sent_s) * 1e3);
    if (r.first_content_s) content.push_back((*r.first_content_s - r.scheduled_s) * 1e3);
    e2e_scheduled.push_back((r.done_s - r.scheduled_s) * 1e3);
    e2e_sent.push_back((r.done_s - r.sent_s) * 1e3);
    double before = *r.first_token_s;
    for (const double t : r.chunk_s) gap.push_back((t - before) * 1e3), before = t;
    (r.output_tokens ? usage : chunks) = true;
    const int64_t tokens = r.output_tokens.value_or(r.chunks);
    report.output_tokens += tokens;
    report.prompt_tokens += r.prompt_tokens.value_or(0);
    // A first chunk of several tokens holds that many: the time after it is that of the others.
    const int64_t after = tokens - r.first_chunk_tokens;
    if (after > 0) tpot.push_back((before - *r.first_token_s) * 1e3 / static_cast<double>(after));
  }
  report.tokens_from = usage && chunks ? "both" : usage ? "usage" : "chunks";
  if (run.duration_s > 0) {
    report.request_throughput = static_cast<double>(report.completed) / run.duration_s;
    if (report.completed > 0) report.output_throughput = static_cast<double>(report.output_tokens) / run.duration_s;
    report.client_cpu_percent = 100 * run.client_cpu_s / run.duration_s;
  }
  report.ttft_scheduled = DistributionOf(ttft_scheduled);
  report.ttft_sent = DistributionOf(ttft_sent);
  report.content_scheduled = DistributionOf(content);
  report.e2e_scheduled = DistributionOf(e2e_scheduled);
  report.e2e_sent = DistributionOf(e2e_sent);
  report.gap = DistributionOf(gap);
  report.tpot = DistributionOf(tpot);
  report.longest_turn_ms = run.longest_turn_s * 1e3;

  std::ranges::sort(dispatch);
  report.dispatch = DistributionOf(dispatch);
  // What must hold of every record, whatever the server did; where it does not, the client has miscounted.
  for (size_t i = 0; i < run.records.size(); i++) {
    const RequestRecord& r = run.records[i];
    if (!r.error.empty()) continue;
    const double last = r.chunk_s.empty() ? *r.first_token_s : r.chunk_s.back();
    if (r.scheduled_s <= r.sent_s && r.sent_s <= *r.first_token_s && *r.first_token_s <= last && last <= r.done_s &&
        r.done_s <= run.duration_s + 1e-6)
      continue;
    report.invalid.push_back(fmt::format("the times of request {} contradict each other", i));
    break;
  }
  if (run.interrupted) report.invalid.push_back("it was interrupted");
  if (report.client_cpu_percent > kMostClientCpuPercent)
    report.invalid.push_back(fmt::format("the client was busy {:.0f} % of the time: it may have read answers late",
                                         report.client_cpu_percent));
  if (!dispatch.empty() && !ttft_sent.empty()) {
    std::ranges::sort(ttft_sent);
    const double late = dispatch[static_cast<size_t>(0.99 * static_cast<double>(dispatch.size() - 1))];
    const double most = std::max(kLeastDispatchMs, kMostDispatchShare * ttft_sent[ttft_sent.size() / 2]);
    if (late > most)
      report.invalid.push_back(
          fmt::format("the client sent 1 % of the requests more than {:.1f} ms late, of at most {:.1f}", late, most));
  }
  return report;
}

}  // namespace ridge::lab
