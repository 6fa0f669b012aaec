#include "ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "base/quantity.h"
#include "graph/graph.h"
#include "lab/roofline/work.h"
#include "service/receipt_sum.h"

namespace ridge::app {
namespace {

using service::Receipt;
using service::Runtime;

const auto kStart = std::chrono::steady_clock::now();  // before main

constexpr int64_t kCostSamples = 64;  // contexts at which the cost of a decode step is computed

double KvBytesPerValue(const Runtime& runtime) {
  const backend::StateOptions& state = runtime.state_options();
  return 0.5 * (backend::ValueBytes(state.k_type) + backend::ValueBytes(state.v_type));
}

// Bytes and operations of all prompt chunks. Attention sees, on average, what lies before the middle of a chunk.
lab::Work PromptWork(const Receipt& receipt, const Runtime& runtime) {
  lab::Work total;
  for (int64_t begin = receipt.cache_n; begin < receipt.prompt_n; begin += runtime.chunk_tokens()) {
    const int64_t count = std::min(runtime.chunk_tokens(), receipt.prompt_n - begin);
    const bool last = begin + count == receipt.prompt_n;
    total.Add(
        lab::WorkOf(runtime.model().graph(), {.tokens = static_cast<double>(count),
                                              .logits = last ? 1.0 : 0.0,
                                              .context = static_cast<double>(begin) + static_cast<double>(count) / 2,
                                              .kv_bytes_per_value = KvBytesPerValue(runtime)}));
  }
  return total;
}

// Of the first model. With drafts a step computes several tokens; those that were refused cost as much as the others.
lab::Work DecodeWork(const Receipt& receipt, const Runtime& runtime) {
  lab::Work total;
  const int64_t steps = receipt.decode_steps;
  const int64_t tokens = steps + receipt.drafts_proposed, gained = receipt.predicted_n - 1;
  const double rows = steps > 0 ? static_cast<double>(tokens) / static_cast<double>(steps) : 0;
  const double stride_tokens = steps > 0 ? static_cast<double>(gained) / static_cast<double>(steps) : 0;
  const int64_t stride = std::max<int64_t>(1, (steps + kCostSamples - 1) / kCostSamples);
  for (int64_t step = 0; step < steps; step += stride) {
    const int64_t count = std::min(stride, steps - step);
    const double context = static_cast<double>(receipt.prompt_n) +
                           stride_tokens * (static_cast<double>(step) + static_cast<double>(count + 1) / 2);
    total.Add(lab::WorkOf(
                  runtime.model().graph(),
                  {.tokens = rows, .logits = rows, .context = context, .kv_bytes_per_value = KvBytesPerValue(runtime)}),
              static_cast<double>(count));
  }
  return total;
}

struct Phase {
  double ms = 0;
  int64_t n = 0;  // tokens that were computed in it
  std::optional<double> per_second;
  std::optional<double> bytes_read, read_gbps, flops, gflops;
  std::optional<lab::Bound> bound;
};

Phase MakePhase(double ms, int64_t n, std::optional<double> per_second, const lab::Work& work) {
  Phase phase{.ms = ms, .n = n, .per_second = per_second};
  if (n <= 0 || ms <= 0) return phase;
  phase.bytes_read = lab::LayoutBytes(work);
  phase.flops = lab::Flops(work);
  phase.read_gbps = *phase.bytes_read / ms / 1e6;
  phase.gflops = *phase.flops / ms / 1e6;
  return phase;
}

std::pair<Phase, Phase> Phases(const Ledger& ledger, const Runtime& runtime, const Ceilings& ceilings) {
  lab::Work prompt, decode;
  int64_t steps = 0;
  for (const Receipt& turn : ledger.turns) {
    prompt.Add(PromptWork(turn, runtime));
    decode.Add(DecodeWork(turn, runtime));
    steps += std::max<int64_t>(0, turn.predicted_n - 1);
  }
  const Receipt& r = ledger.receipt;
  Phase prefill = MakePhase(r.prompt_ms, r.prompt_n - r.cache_n, r.prompt_per_second(), prompt);
  Phase decoding = MakePhase(r.predicted_ms - r.draft_ms, steps, std::nullopt, decode);
  if (steps > 0 && r.predicted_ms > 0) decoding.per_second = 1000.0 * static_cast<double>(steps) / r.predicted_ms;
  if (prefill.n > 0) prefill.bound = ceilings.BoundOf(prompt, runtime, false, r.prompt_ms / 1000);
  if (steps > 0) decoding.bound = ceilings.BoundOf(decode, runtime, true, (r.predicted_ms - r.draft_ms) / 1000);
  return {prefill, decoding};
}

// Name and milliseconds; the last one, "other", is what the total leaves.
std::vector<std::pair<std::string, double>> Parts(const Ledger& ledger) {
  const Receipt& r = ledger.receipt;
  std::vector<std::pair<std::string, double>> parts = {{"load", ledger.load_ms},
                                                       {"tokenize", r.tokenize_ms},
                                                       {"queue", r.queue_ms},
                                                       {"prefill", r.prompt_ms},
                                                       {"decode", r.predicted_ms - r.draft_ms},
                                                       {"sample", r.sample_ms},
                                                       {"detokenize", r.detokenize_after_ms}};
  if (r.draft_ms > 0) parts.emplace_back("draft", r.draft_ms);
  if (ledger.input_ms > 0) parts.emplace_back("input", ledger.input_ms);
  double rest = ledger.total_ms;
  for (const auto& part : parts) rest -= part.second;
  parts.emplace_back("other", std::max(0.0, rest));
  return parts;
}

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json BoundName(const std::optional<lab::Bound>& bound) {
  return bound ? Json(std::string(lab::Name(bound->limit))) : Json(nullptr);
}

// Null where a bound of decoding is told.
Json CeilingReason(const Phase& decode, const Runtime& runtime, const Ceilings& ceilings) {
  if (decode.bound) return nullptr;
  const std::string why = ceilings.WhyUnknown(runtime);
  return why.empty() ? "nothing was decoded" : why;
}

Json PhaseJson(const Phase& phase) {
  return {{"ms", phase.ms},
          {"tokens", phase.n},
          {"tokens_per_second", OrNull(phase.per_second)},
          {"bytes_read", OrNull(phase.bytes_read)},
          {"read_gbps", OrNull(phase.read_gbps)},
          {"flops", OrNull(phase.flops)},
          {"gflops", OrNull(phase.gflops)},
          {"bound", BoundName(phase.bound)},
          {"ceiling_share", phase.bound ? Json(phase.bound->share) : Json(nullptr)}};
}

std::string Cell(const std::optional<double>& value, int decimals) {
  return value ? fmt::format("{:.{}f}", *value, decimals) : "-";
}

}  // namespace

double MsSinceStart() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - kStart).count();
}

void AddTurn(Ledger& ledger, const Receipt& turn) {
  ledger.turns.push_back(turn);
  ledger.receipt = service::InTurn(ledger.turns).receipt;
}

Json LedgerJson(const Ledger& ledger, const Runtime& runtime, const Ceilings& ceilings) {
  const auto [prefill, decode] = Phases(ledger, runtime, ceilings);
  Json parts = Json::object();
  for (const auto& [name, ms] : Parts(ledger)) parts[name] = ms;
  Json document = {{"finish_reason", std::string(engine::Name(ledger.receipt.reason))},
                   {"load_ms", ledger.load_ms},
                   {"load_parts_ms",
                    {{"open", runtime.times().open_ms},
                     {"model", runtime.times().model_ms},
                     {"compile", runtime.times().compile_ms},
                     {"vocabulary", ledger.vocabulary_ms}}}};
  document.update(service::ReceiptJson(service::InTurn(ledger.turns)));
  document["total_ms"] = ledger.total_ms;
  document["parts_ms"] = std::move(parts);
  document["read_gbps"] = OrNull(decode.read_gbps);
  document["read_ceiling_gbps"] = OrNull(ceilings.ReadGbps(runtime.program().n_threads()));
  document["bound"] = BoundName(decode.bound);
  document["ceiling_share"] = decode.bound ? Json(decode.bound->share) : Json(nullptr);
  document["ceiling_reason"] = CeilingReason(decode, runtime, ceilings);
  document["phases"] = {{"prefill", PhaseJson(prefill)}, {"decode", PhaseJson(decode)}};
  return document;
}

std::string LedgerTable(const Ledger& ledger, const Runtime& runtime, const Ceilings& ceilings) {
  const auto [prefill, decode] = Phases(ledger, runtime, ceilings);
  const Receipt& r = ledger.receipt;
  std::string out = fmt::format("{:<11}{:>12}{:>9}{:>12}{:>12}{:>11}{}\n", "", "ms", "tokens", "tokens/s", "read GB/s",
                                "GFLOP/s", ceilings.roofline() ? "  of the ceiling" : "");
  const auto row = [&out](const std::string& name, double ms, std::optional<int64_t> n, const Phase* phase) {
    out += fmt::format("{:<11}{:>12.2f}{:>9}", name, ms, n ? std::to_string(*n) : "");
    if (phase != nullptr)
      out += fmt::format("{:>12}{:>12}{:>11}", Cell(phase->per_second, 1), Cell(phase->read_gbps, 2),
                         Cell(phase->gflops, 1));
    if (phase != nullptr && phase->bound)
      out += fmt::format("{:>6.0f} % {}", 100 * phase->bound->share, lab::Name(phase->bound->limit));
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n";
  };
  for (const auto& [name, ms] : Parts(ledger)) {
    if (name == "prefill") {
      row(name, ms, prefill.n, &prefill);
    } else if (name == "decode") {
      row(name, ms, decode.n, &decode);
    } else if (name == "tokenize") {
      row(name, ms, r.prompt_n, nullptr);
    } else if (name == "sample" || name == "detokenize") {
      row(name, ms, r.predicted_n, nullptr);
    } else {
      row(name, ms, std::nullopt, nullptr);
    }
  }
  row("total", ledger.total_ms, std::nullopt, nullptr);
  out += fmt::format("{} generated (the first one's time is in prefill), finish reason: {}; ",
                     Count(r.predicted_n, "token"), engine::Name(r.reason));
  out += r.ttft_ms ? fmt::format("first token after {:.1f} ms\n", *r.ttft_ms) : "no first token\n";
  if (r.drafts_proposed > 0) {
    out += fmt::format("speculation: {} of {} drafted tokens were right, {} decode steps", r.drafts_accepted,
                       r.drafts_proposed, r.decode_steps);
    out += r.speculation_gain ? fmt::format(", {:.2f} times as fast as without\n", *r.speculation_gain) : "\n";
  }
  out += fmt::format("{} ({}), isa {}, context {} ({})\n", Count(runtime.program().n_threads(), "thread"),
                     runtime.threads().reason, runtime.program().isa(), Count(runtime.context_tokens(), "token"),
                     runtime.context_reason());
  if (const std::optional<double> gbps = ceilings.ReadGbps(runtime.program().n_threads()))
    out += fmt::format("this machine reads {:.1f} GB/s with as many threads", *gbps);
  if (const std::string why = ceilings.WhyUnknown(runtime); !why.empty())
    out += fmt::format("{}what bounds decoding is not known: {}", ceilings.roofline() ? "; " : "", why);
  out += "\n";
  if (!runtime.bit_stable()) out += "not bit-stable: products of many tokens by OpenBLAS (--matmul blas)\n";
  return out;
}

}  // namespace ridge::app
