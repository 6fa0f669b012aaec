// What a model's time is made of, from how it answered to interventions; pure: responses in, verdict out.
//
//   Evidence e; e.decode.responses.push_back({.name = "threads 2 -> 1", .ratios = {1.9, 2.0, 1.9}, .factors = {2, 1.6, 2, 2, 1}});
//   const Diagnosis d = Diagnose(e);   // d.bottleneck, d.cause, d.shares["memory_bandwidth"].median
//
// The model: the time of a phase is a sum of parts, and an intervention multiplies each part by a factor that was measured on the part alone. What is looked for
// are the shares of the parts. They are drawn from their posterior (flat prior on the simplex, errors of Student's t with the noise of the pairs and the
// doubt about the factors), so what the interventions cannot tell apart has wide intervals instead of a value.
// Guarantees: the same evidence gives the same diagnosis; no bottleneck is named that is not the largest with 95 % of the posterior; "undetermined" says why.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ridge::lab {

// Of the time of a phase.
enum class Part { kCompute, kMemory, kUnpack, kAttention, kOverhead };
inline constexpr size_t kParts = 5;
inline constexpr std::array<Part, kParts> kAllParts = {Part::kCompute, Part::kMemory, Part::kUnpack, Part::kAttention,
                                                       Part::kOverhead};
std::string_view Name(Part part);  // "memory_bandwidth"

// Of a request: the parts, and what takes time from outside.
inline constexpr std::string_view kService = "service", kPower = "power_thermal", kCapacity = "capacity";

using Factors = std::array<double, kParts>;  // by Part: time with / without the intervention, if the part were all

struct Response {
  std::string name;            // "threads 2 -> 1"
  std::vector<double> ratios;  // time with / without, one per pair
  Factors factors = {1, 1, 1, 1, 1};
  Factors doubt = {0.05, 0.05, 0.05, 0.15, 0.05};  // relative standard error of each factor
};

// What a part can take at most, since its work alone takes so long here: the sum of weights * shares stays below `most`.
struct MostShare {
  std::string name;  // "unpacking alone takes 17 % of the time"
  Factors weights = {0, 0, 0, 0, 0};
  double most = 1, doubt = 0.07;
};

// An intervention that a user can keep: a setting, with how the parts would answer to it.
struct Lever {
  std::string cause;           // "threads", "isa", "batch": what held the run back if this helps
  std::string action;          // "-t 2"
  std::vector<double> ratios;  // time with / without; not used to find the shares
  Factors factors = {1, 1, 1, 1, 1};
};

struct PhaseEvidence {
  double seconds = 0;  // of a request; 0: the request has no such phase
  std::vector<Response> responses;
  std::vector<MostShare> limits;
  std::vector<Lever> levers;
};

struct Evidence {
  PhaseEvidence prefill, decode;
  // CPU time that threads which only compute were given, over the time they could have had; one per probe.
  std::vector<double> cpu_shares;
  std::string cpu_why;  // what is known of who took it: "cgroup quota of 0.50 CPUs", "other processes 48 %"
  std::optional<double>
      read_share;  // rate at which memory can be read now, over that of the quiet machine (its roofline)
  // Time per token in a short run after a rest, over that of a long run. Below 1: the long one is held back (heat, power, quota).
  std::vector<double> rest_ratios;
  // Of a request over HTTP: share of its time that is not the engine's, and share that the client itself took; one per request.
  std::vector<double> service_shares, client_shares;
  // The model was refused, or waited for pages from disk: share of time, 1 for a refusal.
  double capacity_share = 0;
  std::string capacity_why;
};

struct Share {
  double median = 0, low = 0, high = 0;  // low and high: 90 % of the posterior
};

struct LeverResult {
  std::string phase, cause, action;
  double predicted = 1;                    // time with / without, from the shares
  double realised = 1, low = 1, high = 1;  // of the pairs: median and its interval
  bool proved = false;                     // the interval is below 1 by more than 2 %
};

struct PhaseDiagnosis {
  bool known = false;  // there were responses
  std::map<std::string, Share> shares;
  std::optional<Part> bottleneck;
  std::string reason;  // why there is no bottleneck
  double misfit = 0;   // of the response that fits worst, in standard errors
  std::string misfit_of;
};

struct Diagnosis {
  PhaseDiagnosis prefill, decode;
  std::map<std::string, Share> shares;  // of the request, all names
  std::string bottleneck;               // a name, or "undetermined"
  std::string
      cause;  // "threads", "isa", "batch", "cpu_time", "contention", "server", "client", "memory"; empty: the work itself
  std::string phase;   // that the cause was found in: "prefill", "decode", "request"
  std::string reason;  // one sentence
  std::vector<LeverResult> levers;
};

Diagnosis Diagnose(const Evidence& evidence);

}  // namespace ridge::lab
