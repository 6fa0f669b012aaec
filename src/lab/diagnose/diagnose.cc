#include "lab/diagnose/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/diagnose/diagnose_posterior.h"
#include "lab/statistics.h"

namespace ridge::lab {
namespace {

constexpr double kSure = 0.95;       // of the posterior
constexpr double kMost = 0.4;        // the least share of a bottleneck
constexpr double kOutside = 0.25;    // what takes at least this from outside is told before what the work itself costs
constexpr double kGain = 0.15;       // a setting that gains at least this was the cause
constexpr double kFloor = 0.02;      // differences below are noise (A/A)
constexpr double kContended = 0.85;  // of the quiet machine's read rate
constexpr double kWorstMisfit = 4.5;

struct Draws {
  std::vector<Factors> prefill, decode;
};

Share ShareOf(std::vector<double> values) {
  return {Quantile(values, 0.5), Quantile(values, 0.05), Quantile(values, 0.95)};
}

// A share that was measured directly, in 0 to 1.
Share Direct(const std::vector<double>& samples) {
  if (samples.empty()) return {};
  Share s{Median(samples), 0, 0};
  const std::optional<Interval> interval = MedianInterval(samples);
  s.low = interval ? interval->low : s.median;
  s.high = interval ? interval->high : s.median;
  for (double* v : {&s.median, &s.low, &s.high}) *v = std::clamp(*v, 0.0, 1.0);
  return s;
}

PhaseDiagnosis DiagnosePhase(const PhaseEvidence& e, std::vector<Factors>& draws) {
  PhaseDiagnosis d;
  draws = DrawShares(e);
  if (draws.empty()) {
    d.reason = "no intervention could be tried";
    return d;
  }
  d.known = true;
  Factors mean{};
  std::array<size_t, kParts> largest{};
  for (const Factors& s : draws) {
    for (size_t i = 0; i < kParts; i++) mean[i] += s[i] / static_cast<double>(draws.size());
    largest[static_cast<size_t>(std::max_element(s.begin(), s.end()) - s.begin())]++;
  }
  for (size_t i = 0; i < kParts; i++) {
    std::vector<double> values;
    for (const Factors& s : draws) values.push_back(s[i]);
    d.shares[std::string(Name(kAllParts[i]))] = ShareOf(std::move(values));
  }
  // Of the draw that fits best, since the mean of several modes fits nothing.
  d.misfit = 1e9;
  for (size_t k = 0; k < draws.size(); k += 16) {
    double worst = 0;
    std::string name;
    for (const Response& r : e.responses) {
      const double misfit = r.ratios.empty() ? 0 : Misfit(r, draws[k]);
      if (misfit <= worst) continue;
      worst = misfit;
      name = r.name;
    }
    if (worst >= d.misfit) continue;
    d.misfit = worst;
    d.misfit_of = name;
  }
  const size_t best = static_cast<size_t>(std::max_element(largest.begin(), largest.end()) - largest.begin());
  const double sure = static_cast<double>(largest[best]) / static_cast<double>(draws.size());
  if (d.misfit > kWorstMisfit) {
    d.reason = fmt::format("the answer to \"{}\" fits no mixture of the parts ({:.1f} standard errors)", d.misfit_of,
                           d.misfit);
  } else if (sure < kSure) {
    std::array<size_t, kParts> order{0, 1, 2, 3, 4};
    std::ranges::sort(order, [&](size_t a, size_t b) { return largest[a] > largest[b]; });
    d.reason = fmt::format("{} or {}: the interventions do not tell them apart (the first is the larger with {:.0f} %)",
                           Name(kAllParts[order[0]]), Name(kAllParts[order[1]]), 100 * sure);
  } else if (mean[best] < kMost) {
    d.reason = fmt::format("no part takes {:.0f} % of the time; the largest, {}, takes {:.0f} %", 100 * kMost,
                           Name(kAllParts[best]), 100 * mean[best]);
  } else {
    d.bottleneck = kAllParts[best];
  }
  return d;
}

// Where shares are unknown, nothing is predicted.
LeverResult Judge(const std::string& phase, const Lever& lever, const std::vector<Factors>& draws) {
  LeverResult r{.phase = phase, .cause = lever.cause, .action = lever.action};
  std::vector<double> predicted;
  for (const Factors& s : draws) predicted.push_back(Answer(s, lever.factors));
  r.predicted = predicted.empty() ? 1 : Median(predicted);
  r.realised = Median(lever.ratios);
  const std::optional<Interval> interval = MedianInterval(lever.ratios);
  r.low = interval ? interval->low : r.realised;
  r.high = interval ? interval->high : r.realised;
  r.proved = interval && r.high < 1 - kFloor;
  return r;
}

// Parts of the request: those of its phases by their time, less what is taken from outside.
void RequestShares(const Evidence& e, const Draws& draws, const std::map<std::string, Share>& outside, Diagnosis& d) {
  double left = 1;
  for (const auto& [name, share] : outside) left -= share.median;
  left = std::max(0.0, left);
  const double total = e.prefill.seconds + e.decode.seconds;
  std::array<std::vector<double>, kParts> values;
  const size_t n = std::max(draws.prefill.size(), draws.decode.size());
  for (size_t k = 0; k < n && total > 0; k++) {
    for (size_t i = 0; i < kParts; i++) {
      double value = 0;
      if (!draws.prefill.empty()) value += draws.prefill[k % draws.prefill.size()][i] * e.prefill.seconds / total;
      if (!draws.decode.empty()) value += draws.decode[k % draws.decode.size()][i] * e.decode.seconds / total;
      values[i].push_back(left * value);
    }
  }
  for (size_t i = 0; i < kParts; i++) {
    if (!values[i].empty()) d.shares[std::string(Name(kAllParts[i]))] = ShareOf(std::move(values[i]));
  }
  d.shares.insert(outside.begin(), outside.end());
}

std::string Percent(const Share& s) {
  return fmt::format("{:.0f} % ({:.0f} to {:.0f})", 100 * s.median, 100 * s.low, 100 * s.high);
}

// What comes from outside and takes much, worst first.
bool FromOutside(const Evidence& e, Diagnosis& d) {
  const auto found = [&](std::string_view name, std::string cause, std::string reason) {
    d.bottleneck = name;
    d.cause = std::move(cause);
    d.phase = "request";
    d.reason = std::move(reason);
    return true;
  };
  if (e.capacity_share >= kOutside) return found(kCapacity, "memory", e.capacity_why);
  const Share power = d.shares[std::string(kPower)], service = d.shares[std::string(kService)];
  if (power.low >= kOutside && power.median >= service.median) {
    return found(
        kPower, "cpu_time",
        fmt::format("{} of the CPU time is withheld{}", Percent(power), e.cpu_why.empty() ? "" : ": " + e.cpu_why));
  }
  if (service.low >= kOutside) {
    const Share client = Direct(e.client_shares);
    const bool is_client = client.median >= 0.5 * service.median;
    return found(kService, is_client ? "client" : "server",
                 fmt::format("{} of a request's time is not the engine's; the client itself took {}", Percent(service),
                             Percent(client)));
  }
  return false;
}

bool FromSetting(Diagnosis& d) {
  const LeverResult* best = nullptr;
  for (const LeverResult& r : d.levers) {
    if (r.proved && r.high < 1 - kGain && (best == nullptr || r.realised < best->realised)) best = &r;
  }
  if (best == nullptr) return false;
  d.cause = best->cause;
  d.phase = best->phase;
  const PhaseDiagnosis& phase = best->phase == "prefill" ? d.prefill : d.decode;
  if (phase.bottleneck) {
    d.bottleneck = Name(*phase.bottleneck);
  } else {
    d.bottleneck = best->cause == "batch" ? Name(Part::kOverhead) : Name(Part::kCompute);
  }
  d.reason = fmt::format("{} makes {} {:.2f} times as fast", best->action, best->phase, 1 / best->realised);
  return true;
}

void FromWork(const Evidence& e, Diagnosis& d) {
  const bool prefill = e.prefill.seconds > e.decode.seconds;
  const PhaseDiagnosis& phase = prefill ? d.prefill : d.decode;
  d.phase = prefill ? "prefill" : "decode";
  if (!phase.bottleneck) {
    d.bottleneck = "undetermined";
    d.reason = phase.reason;
    return;
  }
  d.bottleneck = Name(*phase.bottleneck);
  d.reason = fmt::format("{} of the time of {} is {}", Percent(phase.shares.at(d.bottleneck)), d.phase, d.bottleneck);
  if (*phase.bottleneck == Part::kMemory && e.read_share && *e.read_share < kContended) {
    d.cause = "contention";
    d.reason +=
        fmt::format("; memory is read at {:.0f} % of the quiet machine's rate: others use it too", 100 * *e.read_share);
  }
}

}  // namespace

std::string_view Name(Part part) {
  switch (part) {
    case Part::kCompute: return "compute";
    case Part::kMemory: return "memory_bandwidth";
    case Part::kUnpack: return "unpacking";
    case Part::kAttention: return "attention";
    case Part::kOverhead: return "runtime_overhead";
  }
  return "?";
}

Diagnosis Diagnose(const Evidence& e) {
  Diagnosis d;
  Draws draws;
  d.prefill = DiagnosePhase(e.prefill, draws.prefill);
  d.decode = DiagnosePhase(e.decode, draws.decode);
  for (const Lever& lever : e.prefill.levers) d.levers.push_back(Judge("prefill", lever, draws.prefill));
  for (const Lever& lever : e.decode.levers) d.levers.push_back(Judge("decode", lever, draws.decode));
  std::map<std::string, Share> outside;
  std::vector<double> withheld, rested;
  for (double share : e.cpu_shares) withheld.push_back(1 - share);
  for (double ratio : e.rest_ratios) rested.push_back(1 - ratio);
  // Both see a quota, each sees what the other does not: a stopped process, a clock that falls.
  const Share by_probe = Direct(withheld), by_rest = Direct(rested);
  if (!withheld.empty() || !rested.empty())
    outside[std::string(kPower)] = by_probe.low >= by_rest.low ? by_probe : by_rest;
  if (!e.service_shares.empty()) outside[std::string(kService)] = Direct(e.service_shares);
  outside[std::string(kCapacity)] = {e.capacity_share, e.capacity_share, e.capacity_share};
  RequestShares(e, draws, outside, d);
  if (!FromOutside(e, d) && !FromSetting(d)) FromWork(e, d);
  return d;
}

}  // namespace ridge::lab
