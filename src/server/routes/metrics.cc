// GET /metrics: Prometheus' text format, names as in docs/server.md.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <span>

#include "server/routes.h"

namespace ridge::server {
namespace {

class Page {
 public:
  explicit Page(std::string labels) : labels_(std::move(labels)) {}

  void Head(std::string_view name, std::string_view type, std::string_view help) {
    Out("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <class Value>
  void Row(std::string_view name, Value value, std::string_view label = "") {
    Out("{}{{{}{}{}}} {}\n", name, labels_, label.empty() ? "" : ",", label, value);
  }
  template <class Value>
  void Gauge(std::string_view name, Value value, std::string_view help) {
    Head(name, "gauge", help);
    Row(name, value);
  }
  void Counter(std::string_view name, uint64_t value, std::string_view help) {
    Head(name, "counter", help);
    Row(name, value);
  }
  void Seconds(const std::string& name, const engine::Histogram& histogram, std::string_view help) {
    Head(name, "histogram", help);
    uint64_t sum = 0;
    for (size_t i = 0; i < histogram.buckets.size(); i++) {
      sum += histogram.buckets[i];
      const bool last = i == engine::Histogram::kBounds_s.size();
      Row(name + "_bucket", sum, last ? "le=\"+Inf\"" : fmt::format("le=\"{}\"", engine::Histogram::kBounds_s[i]));
    }
    Row(name + "_sum", histogram.sum_s);
    Row(name + "_count", histogram.count);
  }
  std::string Take() { return std::move(text_); }

 private:
  template <class... Args>
  void Out(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  std::string labels_, text_;
};

std::string Escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Each thing that memory goes to has a name, so that a cache can be told from a leak.
void Memory(const Context& context, const engine::EngineStats& s, Page& page) {
  if (context.loaded()) {
    const auto& program = context.runtime().program();
    page.Gauge("ridge:weights_bytes", program.weight_bytes(), "Weights as they are laid out for computing.");
    page.Gauge("ridge:workspace_bytes", program.workspace_bytes(), "Scratch memory of a step.");
  }
  page.Gauge("ridge:kv_bytes", context.service != nullptr ? context.service->kv_bytes() : 0,
             "Bytes of the KV pool and of the slots for recurrent state.");
  page.Gauge("ridge:draft_kv_bytes", context.service != nullptr ? context.service->draft_kv_bytes() : 0,
             "Bytes of the draft model's KV, beside the pool.");
  page.Gauge("ridge:prefix_cache_bytes", s.cache_bytes,
             "Of ridge:kv_bytes: what the prefix cache has, pages that are in use too and checkpoints.");
  page.Gauge("ridge:prefix_cache_checkpoints", s.cache_states, "Of them: checkpoints of recurrent state.");
  page.Gauge("ridge:http_body_bytes", context.counts->body_bytes.load(),
             "Bodies of requests that are being read or tokenized.");
  page.Gauge("ridge:resident_bytes", ResidentBytes(),
             "Resident memory of the process; pages of the model's file that are mapped count in it.");
}

}  // namespace

Reply Metrics(const Context& context, const Request&) {
  const engine::EngineStats s = context.service != nullptr ? context.service->Stats() : engine::EngineStats();
  const Counts& c = *context.counts;
  Page page(fmt::format("model_name=\"{}\"", Escaped(context.model_id)));
  page.Gauge("ridge:num_requests_running", s.running, "Sequences that the engine computes now.");
  page.Gauge("ridge:num_requests_waiting", s.waiting,
             "Sequences that were taken and have not begun, or were preempted.");
  const std::optional<engine::Forecast> forecast =
      context.service != nullptr ? context.service->Predict() : std::nullopt;
  page.Gauge("ridge:predicted_queue_seconds", forecast ? forecast->begin_ms / 1000 : std::nan(""),
             "Until a short request that came now would begin; NaN before the first steps.");
  page.Gauge("ridge:predicted_ttft_seconds", forecast ? forecast->ttft_ms / 1000 : std::nan(""),
             "Until a short request that came now would have its first token; NaN before the first steps.");
  page.Head("ridge:kv_pages", "gauge", "KV pages by what they hold; the states sum to ridge:kv_pages_capacity.");
  page.Row("ridge:kv_pages", s.pages_free, "state=\"free\"");
  page.Row("ridge:kv_pages", s.pages_held, "state=\"held\"");
  page.Row("ridge:kv_pages", s.pages_cached, "state=\"cached\"");
  page.Gauge("ridge:kv_pages_capacity", s.pages_capacity, "KV pages of the pool.");
  page.Gauge("ridge:kv_pages_pinned", s.pages_pinned,
             "KV pages that pins keep in the prefix cache, whether they are in use or not.");
  page.Gauge("ridge:kv_pages_pinned_limit", s.pages_pinned_limit, "KV pages that pins may keep.");
  page.Counter("ridge:prefix_cache_pages_evicted_total", s.pages_evicted,
               "Pages of the prefix cache that were given up for room.");
  page.Counter("ridge:prefix_cache_pages_refused_total", s.pages_refused,
               "Pages that the prefix cache did not keep since its limit allowed no more.");
  page.Counter("ridge:prefix_cache_pages_dropped_total", s.pages_dropped,
               "Pages of the prefix cache that held dead thinking turns.");
  page.Gauge("ridge:kv_page_tokens", s.page_tokens, "Tokens of one KV page.");
  Memory(context, s, page);
  page.Counter("ridge:num_preemptions_total", s.preemptions,
               "Times that a sequence lost its pages and was computed again.");
  page.Counter(
      "ridge:prompt_tokens_total", s.prompt_tokens_computed + s.prompt_tokens_cached,
      "Prompt tokens that are done: computed and cached ones. Computing again after a preemption counts nowhere.");
  page.Counter("ridge:prompt_tokens_computed_total", s.prompt_tokens_computed,
               "Prompt tokens that went through the model.");
  page.Counter("ridge:prompt_tokens_cached_total", s.prompt_tokens_cached, "Prompt tokens found in the prefix cache.");
  page.Counter("ridge:prompt_tokens_submitted_total", s.prompt_tokens_submitted,
               "Prompt tokens of all requests: computed, cached, dropped and pending ones.");
  page.Counter("ridge:prompt_tokens_dropped_total", s.prompt_tokens_dropped,
               "Prompt tokens of requests that ended before their prompt was done.");
  page.Gauge("ridge:prompt_tokens_pending", s.prompt_tokens_pending,
             "Prompt tokens of requests that wait or are at their prompt.");
  page.Counter("ridge:generation_tokens_total", s.generated_tokens, "Tokens that were generated.");
  page.Counter("ridge:drafts_proposed_total", s.drafts_proposed, "Draft tokens that a step verified.");
  page.Counter("ridge:drafts_accepted_total", s.drafts_accepted, "Draft tokens that were right.");
  page.Counter("ridge:draft_passes_total", s.draft_passes, "Passes of the draft model.");
  page.Counter("ridge:draft_failures_total", s.draft_failures,
               "Steps that went without drafts since the draft model failed.");
  page.Counter("ridge:steps_total", s.steps, "Steps of the engine.");
  page.Counter("ridge:requests_submitted_total", s.submitted, "Sequences taken by the engine.");
  page.Counter("ridge:requests_finished_total", s.finished, "Sequences that ended, however.");
  page.Head("ridge:request_success_total", "counter", "Answers by the reason for their end.");
  page.Row("ridge:request_success_total", c.stopped.load(), "finished_reason=\"stop\"");
  page.Row("ridge:request_success_total", c.full.load(), "finished_reason=\"length\"");
  page.Head("ridge:request_failure_total", "counter", "Answers that broke off.");
  page.Row("ridge:request_failure_total", c.cancelled.load(), "reason=\"cancelled\"");
  page.Row("ridge:request_failure_total", c.failed.load(), "reason=\"failed\"");
  page.Seconds("ridge:time_to_first_token_seconds", s.ttft, "From submit to the first token.");
  page.Seconds("ridge:inter_token_latency_seconds", s.gap, "Between two tokens of a sequence.");
  page.Seconds("ridge:request_queue_time_seconds", s.queue, "From submit to the first step.");
  page.Seconds("ridge:e2e_request_latency_seconds", s.end_to_end,
               "From submit to the end; cancelled requests are left out.");
  page.Gauge("ridge:http_connections", c.connections.load(), "Open connections.");
  page.Counter("ridge:http_connections_refused_total", c.connections_refused.load(), "Connections beyond the limit.");
  page.Counter("ridge:http_requests_total", c.requests.load(), "Requests whose head was read.");
  page.Head("ridge:http_answers_total", "counter", "Answers by the class of their status.");
  page.Row("ridge:http_answers_total", c.answers_2xx.load(), "status=\"2xx\"");
  page.Row("ridge:http_answers_total", c.answers_4xx.load(), "status=\"4xx\"");
  page.Row("ridge:http_answers_total", c.answers_5xx.load(), "status=\"5xx\"");
  page.Counter("ridge:http_disconnects_total", c.disconnects.load(), "Requests whose client went away before the end.");
  Reply reply;
  reply.response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  reply.response.body = page.Take();
  return reply;
}

}  // namespace ridge::server
