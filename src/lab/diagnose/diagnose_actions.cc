#include "lab/diagnose/diagnose_actions.h"

#include <fmt/format.h>

namespace ridge::lab {
namespace {

struct Row {
  std::string_view bottleneck, cause, phase, action, reason;  // empty: any
};

// After the course's table of symptoms (high TTFT, low tokens/s, out of memory, idle device, throttling, API slower than CLI).
constexpr Row kTable[] = {
    {"capacity", "", "", "a smaller context (-c), KV of fewer bits (-ctk q8_0 -ctv q8_0)",
     "the KV cache grows with both"},
    {"capacity", "", "", "a format of fewer bits, or a smaller model: ridge plan lists what fits",
     "weights are read at every token, so they must stay in memory"},
    {"power_thermal", "", "", "raise the CPU quota, or end what else runs on these CPUs; ridge doctor names them",
     "threads that are ready do not run"},
    {"power_thermal", "", "", "power mode, governor and cooling (ridge monitor shows clocks and throttling)",
     "a clock that falls under load looks like a slower machine"},
    {"service", "server", "", "look at what stands between client and engine: proxies, queues, other requests",
     "the engine was done earlier than the client was told"},
    {"service", "server", "", "compare the first with later requests, limit max_tokens, lower the load",
     "cold starts, long answers and queues add up before the engine"},
    {"service", "client", "", "read the stream without waiting: parse and draw outside of the loop that reads",
     "the client itself took this time"},
    {"memory_bandwidth", "contention", "", "end or move what else streams through memory",
     "bandwidth is shared by all programs of the machine"},
    {"memory_bandwidth", "", "decode", "a format of fewer bits (ridge tune compares files under a quality bound)",
     "the time of a token is its bytes over the bandwidth"},
    {"memory_bandwidth", "", "decode", "speculation (--spec lookup), or several requests at once (serve -np)",
     "each reads the weights once for more than one token"},
    {"memory_bandwidth", "", "prefill", "larger prompt chunks (-ub)", "weights are read once a chunk"},
    {"unpacking", "", "",
     "a format that unpacks with less work, such as Q8_0 or Q4_0: ridge roofline lists each type's rate",
     "smaller is not faster where unpacking takes longer than reading"},
    {"attention", "", "", "a shorter context or prompt; KV of fewer bits; flash attention on",
     "every token reads and scores all that stands before it"},
    {"compute", "", "prefill", "a shorter prompt, a prefix that is cached, larger chunks (-ub), wider ISA",
     "each prompt token costs two operations a weight"},
    {"compute", "", "decode", "more threads, a wider ISA, a smaller model", "arithmetic is the limit"},
    {"runtime_overhead", "", "", "larger prompt chunks, several requests at once, fewer threads for tiny models",
     "each step has a fixed price, whatever it computes"},
};

bool Fits(std::string_view rule, std::string_view value) { return rule.empty() || rule == value; }

}  // namespace

std::vector<Action> ActionsFor(const Diagnosis& d) {
  std::vector<Action> actions;
  for (const LeverResult& r : d.levers) {
    const bool slower = r.low > 1.02;
    actions.push_back({r.action,
                       fmt::format("{}: {} the speed of {}, {:.2f} predicted", r.proved ? "measured" : "no gain proved",
                                   fmt::format("{:.2f} times", 1 / r.realised), r.phase, 1 / r.predicted) +
                           (slower ? "; slower" : ""),
                       true, r.proved});
  }
  for (const Row& row : kTable) {
    if (row.bottleneck == d.bottleneck && Fits(row.cause, d.cause) && Fits(row.phase, d.phase))
      actions.push_back({std::string(row.action), std::string(row.reason)});
  }
  return actions;
}

}  // namespace ridge::lab
