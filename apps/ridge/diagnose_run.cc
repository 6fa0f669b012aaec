#include "diagnose_run.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include "base/quantity.h"
#include "base/topology.h"
#include "lab/quiet.h"
#include "lab/statistics.h"

namespace ridge::app {
namespace {

using lab::Factors;

constexpr int64_t kGoodChunk = 512;
constexpr double kPromptSample_s = 0.25;
constexpr int64_t kLeastPrompt = 8;
constexpr double kSlowStep_s = 0.05;                   // from here on samples are as short as they can be
constexpr int64_t kLeastSlowPrompt = 4;                // of such
constexpr double kMostFill_s = 2;                      // for the KV of one configuration
constexpr int64_t kLeastLeverBlocks = 5;               // six of ten pairs are the lever's
constexpr double kLeverShare = 0.5;                    // of the time that is left, for one lever
constexpr double kTellingFactor = 1.3;                 // of unpacking, between two ISAs that are worth comparing
constexpr std::chrono::milliseconds kCachesLost{120};  // until another reader has emptied the shared caches

// Weights of a graph that a step reads, its operations without those of attention, and its ops.
struct Size {
  double weight_bytes = 0, flops = 0, ops = 0;
};
Size SizeOf(const graph::Graph& graph) {
  Size size{.ops = static_cast<double>(graph.ops().size())};
  const lab::Work work = lab::WorkOf(graph, {.tokens = 1, .logits = 1, .context = 0});
  for (const auto& [type, w] : work.matmul) {
    size.weight_bytes += w.bytes;
    size.flops += w.flops;
  }
  return size;
}

// Steps of a prompt of p tokens, per token.
double StepsPerToken(int64_t p, int64_t chunk) {
  return static_cast<double>((p + chunk - 1) / chunk) / static_cast<double>(p);
}

Factors AtLeast(Factors doubt, const Factors& least) {
  for (size_t i = 0; i < lab::kParts; i++) doubt[i] = std::max(doubt[i], least[i]);
  return doubt;
}

std::string BestIsa() {
  std::string best;
  for (const backend::IsaInfo& isa : backend::CpuIsas()) {
    if (isa.supported) best = isa.name;
  }
  return best;
}

int PhysicalCores() {
  const CpuLimits limits = ReadCpuLimits();
  const int allowed = static_cast<int>(limits.allowed.size());
  return std::max(1, limits.physical_cores > 0 ? std::min(allowed, limits.physical_cores) : allowed);
}

}  // namespace

lab::Condition DiagnoseRun::BaseCondition() const {
  return {base_->runtime().program().n_threads(), base_->runtime().program().isa()};
}

lab::Work DiagnoseRun::DecodeWork(double sequences) const {
  return lab::WorkOf(base_->runtime().model().graph(),
                     {.tokens = sequences, .logits = sequences, .context = 0, .sequences = sequences});
}

Status DiagnoseRun::LoadBase() {
  // At an empty context first: how slow it is decides how much is measured.
  ArmShape shape{.prompt = std::min(kLeastPrompt, work_.prompt), .warm = 1, .room = work_.prompt + kGoodChunk};
  const auto begin = std::chrono::steady_clock::now();
  auto base = Arm::Load(options_, shape);
  if (!base) return std::unexpected(std::move(base).error());
  base_ = std::move(*base);
  load_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  // What was chosen for the base holds for all: another probe could choose otherwise, and a second thing would change.
  options_.threads = base_->runtime().program().n_threads();
  options_.isa = base_->runtime().program().isa();
  // Long prompts are timed in part: a quarter of a second tells as much.
  RIDGE_ASSIGN_OR_RETURN(token_s_, base_->PromptSeconds());
  RIDGE_ASSIGN_OR_RETURN(step_s_, base_->StepSeconds(1));
  const bool slow = step_s_ > kSlowStep_s;
  shape = {.depth = work_.prompt,
           .prompt = std::clamp<int64_t>(static_cast<int64_t>(kPromptSample_s / token_s_),
                                         std::min(slow ? kLeastSlowPrompt : kLeastPrompt, work_.prompt), work_.prompt),
           .warm = slow ? 1 : 2,
           .room = shape.room};
  if (const double fill_s = token_s_ * static_cast<double>(work_.prompt); fill_s > kMostFill_s) {
    const std::string why = fmt::format("{:.0f} s for each configuration that is compared", fill_s);
    if (base_->runtime().model().StateBytes() == 0) {
      shape.fill = false;
      shortened_.push_back(
          {fmt::format("the KV of {} is read but was not computed", Count(work_.prompt, "token")), why});
    } else {
      shape.depth = std::max<int64_t>(1, static_cast<int64_t>(kMostFill_s / token_s_));
      shortened_.push_back(
          {fmt::format("decoding behind {} instead of {}", Count(shape.depth, "token"), work_.prompt), why});
    }
  }
  if (shape.prompt < work_.prompt && slow)
    shortened_.push_back({fmt::format("prompts of {} instead of {}", Count(shape.prompt, "token"), work_.prompt),
                          fmt::format("{:.2f} s a token", token_s_)});
  RIDGE_ASSIGN_OR_RETURN(base_, base_->Reshape(shape));
  RIDGE_ASSIGN_OR_RETURN(step_s_, base_->StepSeconds());
  return {};
}

double DiagnoseRun::SampleSeconds() const {
  const ArmShape& s = base_->shape();
  return static_cast<double>(s.warm + s.steps) * step_s_ + static_cast<double>(s.prompt) * token_s_;
}

double DiagnoseRun::SecondsLeft() const {
  return work_.most_s - std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

bool DiagnoseRun::HasTime(const std::string& name, int64_t blocks, double factor) {
  const double needs = load_s_ + static_cast<double>(2 * blocks) * SampleSeconds() * (1 + factor),
               left = std::max(0.0, SecondsLeft());
  if (needs <= left) return true;
  Skip(name, fmt::format("it would take about {:.0f} s, and {:.0f} of the {:.0f} s of --time are left", needs, left,
                         work_.most_s));
  return false;
}

// What is asked of an intervention may fail without spoiling the others.
Status DiagnoseRun::Guarded(const std::string& name, const std::function<Status()>& fn) {
  const Status done = fn();
  if (!done && done.error().code == Code::kCancelled) return done;
  if (!done) Skip(name, done.error().Message());
  return {};
}

bool DiagnoseRun::HasRoom(const std::string& name) {
  const MemoryBudget memory = ReadMemory();
  const uint64_t free = std::min(memory.available_bytes, memory.allowed_bytes),
                 need = base_->runtime().memory().peak_bytes;
  if (memory.available_bytes == 0 || need < free) return true;
  Skip(name, fmt::format("a second copy of the model takes {:.1f} GB, {:.1f} GB are free",
                         static_cast<double>(need) / 1e9, static_cast<double>(free) / 1e9));
  return false;
}

Result<DiagnoseRun::Compared> DiagnoseRun::Compare(const lab::Condition& with, lab::Antagonist* antagonist) {
  constexpr int kTimes = 5;
  std::array<std::vector<double>, lab::kParts> seen;
  for (int i = 0; i < kTimes; i++) {
    RIDGE_ASSIGN_OR_RETURN(const lab::Rates a, rates_->Measure(BaseCondition()));
    base_rates_.push_back(a);
    if (antagonist != nullptr) {
      antagonist->Work();
      std::this_thread::sleep_for(kCachesLost);
    }
    auto b = rates_->Measure(with);
    if (antagonist != nullptr) antagonist->Rest();
    if (!b) return std::unexpected(std::move(b).error());
    const Factors f = lab::FactorsOf(a, *b);
    for (size_t p = 0; p < lab::kParts; p++) seen[p].push_back(f[p]);
  }
  Compared c;
  for (size_t p = 0; p < lab::kParts; p++) {
    c.factors[p] = lab::Median(seen[p]);
    c.doubt[p] = (lab::Quantile(seen[p], 0.75) - lab::Quantile(seen[p], 0.25)) / c.factors[p];
  }
  return c;
}

// What each part's work takes alone: no part takes longer than that (with room for what the loops do better than a model's kernels), and while
// weights are read or unpacked there is no overhead.
void DiagnoseRun::Limits(double step_s, double token_s) {
  std::vector<double> read, unpack, compute;
  for (const lab::Rates& r : base_rates_) {
    read.push_back(r.read_s);
    unpack.push_back(r.unpack_s);
    if (r.compute_s) compute.push_back(*r.compute_s);
  }
  if (read.empty()) return;
  constexpr double kSlowerRead = 1.2, kSlowerUnpack = 1.3, kSlowerCompute = 4, kFasterRead = 0.85;
  const double steps = StepsPerToken(base_->shape().prompt, base_->runtime().chunk_tokens());
  const auto add = [&](lab::PhaseEvidence& phase, double passes, double seconds) {
    const double reading = passes * lab::Median(read) / seconds, unpacking = passes * lab::Median(unpack) / seconds;
    const auto most = [&](const char* name, double share, Factors weights) {
      if (share < 1) phase.limits.push_back({fmt::format("{} at most {:.0f} %", name, 100 * share), weights, share});
    };
    most("memory_bandwidth", kSlowerRead * reading, {0, 1, 0, 0, 0});
    most("unpacking", kSlowerUnpack * unpacking, {0, 0, 1, 0, 0});
    if (!compute.empty()) most("compute", kSlowerCompute * lab::Median(compute) / seconds, {1, 0, 0, 0, 0});
    most("attention and runtime_overhead", std::max(0.05, 1 - kFasterRead * std::max(reading, unpacking)),
         {0, 0, 0, 1, 1});
  };
  add(evidence_.decode, 1, step_s);
  add(evidence_.prefill, steps, token_s);
}

Status DiagnoseRun::Try(Change change, Arm& with, const std::function<void(bool)>& before) {
  const bool lever = !change.cause.empty();
  int64_t blocks = work_.blocks;
  if (lever) {
    // A lever's three times as many take no more than their share of the time.
    const double block_s = 2 * SampleSeconds() * (1 + change.cost);
    const auto fit = static_cast<int64_t>(std::min(1e6, kLeverShare * std::max(0.0, SecondsLeft()) / block_s));
    blocks = std::max(std::min(fit, 3 * work_.blocks), kLeastLeverBlocks);
  }
  RIDGE_ASSIGN_OR_RETURN(const Pairs pairs, Interleave(*base_, with, blocks, before));
  const auto add = [&](lab::PhaseEvidence& phase, const std::vector<double>& ratios, const Factors& factors) {
    lab::Response response{.name = change.name, .factors = factors, .doubt = change.doubt};
    lab::Lever held{.cause = change.cause, .action = change.action, .factors = factors};
    // Blocks hold two pairs; two of three go to the lever, whose interval has to bear outliers.
    for (size_t i = 0; i < ratios.size(); i++)
      (lever && i / 2 % 3 != 0 ? held.ratios : response.ratios).push_back(ratios[i]);
    phase.responses.push_back(std::move(response));
    if (lever) phase.levers.push_back(std::move(held));
  };
  if (change.decodes) add(evidence_.decode, pairs.decode, change.decode);
  if (change.prefills && !pairs.prefill.empty()) add(evidence_.prefill, pairs.prefill, change.prefill);
  return {};
}

// Fewer threads shrink what they share, and nothing of what one does alone; more, the other way round.
Status DiagnoseRun::Threads() {
  const int now = base_->runtime().program().n_threads(), cores = PhysicalCores();
  const auto change_to = [&](int n, const char* cause, std::unique_ptr<Arm>& keep) -> Status {
    const std::string name = fmt::format("threads {} -> {}", now, n);
    const double cost = static_cast<double>(now) / n;
    if (!HasRoom(name) || !HasTime(name, *cause != 0 ? kLeastLeverBlocks : work_.blocks, cost)) return {};
    service::RuntimeOptions o = options_;
    o.threads = n;
    RIDGE_ASSIGN_OR_RETURN(keep, Arm::Load(o, base_->shape()));
    RIDGE_ASSIGN_OR_RETURN(const Compared c, Compare({n, BaseCondition().isa}));
    return Try({.name = name,
                .cause = cause,
                .action = fmt::format("-t {}", n),
                .cost = cost,
                .decode = c.factors,
                .prefill = c.factors,
                .doubt = AtLeast(c.doubt, {0.05, 0.08, 0.05, 0.15, 0.2})},
               *keep);
  };
  if (now > 1) {
    RIDGE_RETURN_IF_ERROR(Guarded("half the threads", [&] { return change_to(now / 2, "", half_); }));
  } else {
    Skip("half the threads", "there is one");
  }
  if (now >= cores) return {};
  std::unique_ptr<Arm> more;
  return Guarded("more threads", [&] { return change_to(cores, "threads", more); });
}

// The next narrower kernels, or the best ones where narrower ones were asked for.
Status DiagnoseRun::Isa() {
  const std::string now = BaseCondition().isa, best = BestIsa();
  std::vector<std::string> lower;
  for (const backend::IsaInfo& isa : backend::CpuIsas()) {
    if (isa.name == now) break;
    if (isa.supported) lower.push_back(isa.name);
  }
  std::string to = now == best ? "" : best;
  // The nearest that unpacks clearly slower: a far one would make a bottleneck of what is none.
  for (size_t i = lower.size(); now == best && i-- > 0;) {
    to = lower[i];
    RIDGE_ASSIGN_OR_RETURN(const Compared c, Compare({BaseCondition().threads, to}));
    if (c.factors[static_cast<size_t>(lab::Part::kUnpack)] >= kTellingFactor) break;
    if (i == 1 && lower[0] == "scalar") break;
  }
  if (to.empty() || to == now) {
    Skip("another ISA", "this processor runs no other");
    return {};
  }
  const std::string name = fmt::format("kernels {} -> {}", now, to);
  return Guarded(name, [&]() -> Status {
    const bool to_best = to == best;
    const double cost = to_best ? 0.5 : 3;
    if (!HasRoom(name) || !HasTime(name, to_best ? kLeastLeverBlocks : work_.blocks, cost)) return {};
    service::RuntimeOptions o = options_;
    o.isa = to;
    RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<Arm> with, Arm::Load(o, base_->shape()));
    RIDGE_ASSIGN_OR_RETURN(const Compared c, Compare({BaseCondition().threads, to}));
    Factors f = c.factors;
    // Arithmetic is held against the peak of registers, which kernels reach in part, and not equally on each ISA: between that and unpacking, with doubt.
    f[0] = std::sqrt(f[0] * f[static_cast<size_t>(lab::Part::kUnpack)]);
    // The scalar target has no arithmetic loop to hold against: unpacking stands in for it.
    const double doubt = now == "scalar" || to == "scalar" ? 0.4 : 0.12;
    return Try({.name = name,
                .cause = to_best ? "isa" : "",
                .action = "--isa " + to,
                .cost = cost,
                .decode = f,
                .prefill = f,
                .doubt = AtLeast(c.doubt, {0.4, 0.08, doubt, 0.4, 0.1})},
               *with);
  });
}

// Tokens of several sequences in one step: arithmetic grows with them, weights are read once.
Status DiagnoseRun::Tokens() {
  for (int64_t n : {2, 4}) {
    const std::string name = fmt::format("{} a step", Count(n, "token"));
    if (base_->runtime().chunk_tokens() < n) {
      Skip(name, fmt::format("a step holds -ub {}", Count(base_->runtime().chunk_tokens(), "token")));
      continue;
    }
    RIDGE_RETURN_IF_ERROR(Guarded(name, [&]() -> Status {
      if (!HasTime(name, work_.blocks, static_cast<double>(n))) return {};
      ArmShape shape = base_->shape();
      shape.sequences = n;
      shape.prompt = 0;
      RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<Arm> with, base_->Reshape(shape));
      const double k = static_cast<double>(n), more = SizeOf(base_->runtime().model().graph()).weight_bytes;
      double bytes = 0;  // of experts, several tokens touch more
      for (const auto& [type, w] : DecodeWork(k).matmul) bytes += w.bytes;
      const double weights = more > 0 ? bytes / more : 1;
      return Try({.name = name,
                  .decode = {k, weights, weights, k, 1},
                  .doubt = {0.2, 0.05, 0.25, 0.2, 0.1},
                  .prefills = false},
                 *with);
    }));
  }
  return {};
}

Status DiagnoseRun::Context() {
  const int64_t depth = base_->shape().depth, shorter = depth / 4;
  if (depth < 16) {
    Skip("a shorter context", "the prompt is shorter than 16 tokens");
    return {};
  }
  return Guarded("a quarter of the context", [&]() -> Status {
    if (!HasTime("a quarter of the context", work_.blocks, 1)) return {};
    ArmShape shape = base_->shape();
    shape.depth = shorter;
    shape.prompt = 0;
    RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<Arm> with, base_->Reshape(shape));
    const double steps = static_cast<double>(shape.steps) / 2;
    const double ratio = (static_cast<double>(shorter) + steps) / (static_cast<double>(depth) + steps);
    return Try({.name = fmt::format("context {} -> {}", depth, shorter),
                .decode = {1, 1, 1, ratio, 1},
                .doubt = {0.02, 0.02, 0.02, 0.1, 0.02},
                .prefills = false},
               *with);
  });
}

Status DiagnoseRun::PromptLength() {
  const int64_t p = base_->shape().prompt, half = p / 2;
  if (half < 8) {
    Skip("half the prompt", p < work_.prompt ? fmt::format("prompts of {} are timed", Count(p, "token"))
                                             : "the prompt is shorter than 16 tokens");
    return {};
  }
  return Guarded("half the prompt", [&]() -> Status {
    if (!HasTime("half the prompt", work_.blocks, 1)) return {};
    ArmShape shape = base_->shape();
    shape.prompt = half;
    RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<Arm> with, base_->Reshape(shape));
    const int64_t chunk = base_->runtime().chunk_tokens();
    const double steps = StepsPerToken(half, chunk) / StepsPerToken(p, chunk);
    return Try({.name = fmt::format("prompt {} -> {}", p, half),
                .prefill = {1, steps, steps, 0.5, steps},
                .doubt = {0.05, 0.1, 0.2, 0.15, 0.15},
                .decodes = false},
               *with);
  });
}

bool DiagnoseRun::ChunkCanGrow() const {
  const int64_t now = base_->runtime().chunk_tokens();
  return now < kGoodChunk && base_->shape().prompt > now;
}

// Smaller prompt chunks; larger ones where they were small.
Status DiagnoseRun::Chunk() {
  const int64_t now = base_->runtime().chunk_tokens(), p = base_->shape().prompt;
  const bool more = ChunkCanGrow();
  const int64_t to = more ? kGoodChunk : std::max<int64_t>(1, std::min(now, p) / 4);
  const std::string name = fmt::format("prompt chunk {} -> {}", std::min(now, p), std::min(to, p));
  return Guarded(name, [&]() -> Status {
    if (!HasRoom(name) || !HasTime(name, more ? kLeastLeverBlocks : work_.blocks, 1)) return {};
    service::RuntimeOptions o = options_;
    o.chunk_tokens = to;
    if (o.batch_tokens && *o.batch_tokens < to) o.batch_tokens = to;
    RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<Arm> with, Arm::Load(o, base_->shape()));
    const double steps = StepsPerToken(p, to) / StepsPerToken(p, now);
    return Try({.name = name,
                .cause = more ? "batch" : "",
                .action = fmt::format("-ub {}", to),
                .prefill = {1, steps, steps, 1, steps},
                .doubt = {0.1, 0.1, 0.3, 0.1, 0.2},
                .decodes = false},
               *with);
  });
}

Status DiagnoseRun::Layers() {
  const int64_t layers = base_->runtime().model().config().layers, half = layers / 2;
  const std::string name = fmt::format("layers {} -> {}", layers, half);
  if (half < 1) {
    Skip("fewer layers", "there is one");
    return {};
  }
  return Guarded(name, [&]() -> Status {
    if (!HasRoom(name) || !HasTime(name, work_.blocks, 0.6)) return {};
    service::RuntimeOptions o = options_;
    o.first_layers = half;
    RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<Arm> with, Arm::Load(o, base_->shape()));
    const Size a = SizeOf(base_->runtime().model().graph()), b = SizeOf(with->runtime().model().graph());
    const double bytes = b.weight_bytes / a.weight_bytes, flops = b.flops / a.flops, ops = b.ops / a.ops;
    const double share = static_cast<double>(half) / static_cast<double>(layers);
    // A prompt gives logits once, so there the output matrix hardly counts.
    return Try({.name = name,
                .decode = {flops, bytes, bytes, share, ops},
                .prefill = {share, bytes, bytes, share, ops},
                .doubt = {0.08, 0.08, 0.08, 0.1, 0.15}},
               *with);
  });
}

// Another reader of the memory, on a CPU that the run leaves free.
Status DiagnoseRun::Bandwidth() {
  const int now = BaseCondition().threads, cpus = static_cast<int>(ReadCpuLimits().allowed.size());
  const std::string name = "another reader of memory";
  Arm* with = now < cpus ? base_.get() : half_.get();
  if (with == nullptr || with->runtime().program().n_threads() >= cpus) {
    Skip(name, "no CPU is free for it, and the run cannot do with fewer threads");
    return {};
  }
  return Guarded(name, [&]() -> Status {
    const int threads = with->runtime().program().n_threads();
    if (!HasTime(name, work_.blocks, 2.0 * now / threads)) return {};
    RIDGE_ASSIGN_OR_RETURN(const auto antagonist, lab::Antagonist::Create(cpus - threads, machine_));
    RIDGE_ASSIGN_OR_RETURN(const Compared c, Compare({threads, BaseCondition().isa}, antagonist.get()));
    const auto before = [&](bool changed) {
      changed ? antagonist->Work() : antagonist->Rest();
      std::this_thread::sleep_for(changed ? kCachesLost : std::chrono::milliseconds(2));
    };
    RIDGE_ASSIGN_OR_RETURN(const std::unique_ptr<Arm> other, with->Reshape(base_->shape()));
    return Try({.name = threads == now ? name : fmt::format("threads {} -> {} and {}", now, threads, name),
                .decode = c.factors,
                .prefill = c.factors,
                .doubt = AtLeast(c.doubt, {0.06, 0.1, 0.06, 0.2, 0.2})},
               *other, before);
  });
}

// Threads that only compute, and a short run after a rest.
Status DiagnoseRun::Power() {
  const int threads =
      work_.threads_asked ? BaseCondition().threads : std::max(BaseCondition().threads, PhysicalCores());
  const lab::CpuTimes before = lab::ReadCpuTimes();
  for (int i = 0; i < 6; i++) {
    RIDGE_ASSIGN_OR_RETURN(const double share, lab::PartRates::CpuShare(threads, 0.25));
    evidence_.cpu_shares.push_back(share);
  }
  const lab::Disturbance seen = lab::Between(before, lab::ReadCpuTimes());
  const CpuLimits limits = ReadCpuLimits();
  std::string why;
  const auto say = [&](std::string text) { why += (why.empty() ? "" : "; ") + text; };
  if (limits.quota && *limits.quota < threads)
    say(fmt::format("cgroup quota of {:.2f} CPUs ({})", *limits.quota, limits.quota_source));
  if (seen.others_share.value_or(0) > 0.05)
    say(fmt::format("other processes use {:.0f} % of the CPUs", 100 * *seen.others_share));
  if (seen.steal_share.value_or(0) > 0.02) say(fmt::format("the host takes {:.0f} %", 100 * *seen.steal_share));
  evidence_.cpu_why = why.empty() ? "no quota, other process or host is known to take it" : why;
  for (int i = 0; i < 6; i++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    RIDGE_ASSIGN_OR_RETURN(const double rested, base_->StepSeconds(std::max<int64_t>(1, base_->shape().steps / 2)));
    double total = 0;
    int64_t steps = 0;
    while (total < 0.3) {
      RIDGE_ASSIGN_OR_RETURN(const double step_s, base_->StepSeconds());
      total += step_s * static_cast<double>(base_->shape().steps);
      steps += base_->shape().steps;
    }
    evidence_.rest_ratios.push_back(rested / (total / static_cast<double>(steps)));
  }
  return {};
}

Status DiagnoseRun::Measure() {
  begin_ = std::chrono::steady_clock::now();
  machine_ = lab::ReadMachine();
  if (Status loaded = LoadBase(); !loaded) {
    if (loaded.error().code != Code::kResourceExhausted) return loaded;
    evidence_.capacity_share = 1;
    evidence_.capacity_why = loaded.error().Message();
    return {};
  }
  RIDGE_ASSIGN_OR_RETURN(lab::PartRates rates, lab::PartRates::Create(DecodeWork(1), machine_));
  rates_ = std::make_unique<lab::PartRates>(std::move(rates));
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  // Where time is short, what decides the verdict comes first: what is taken from outside, then settings that can be kept.
  RIDGE_RETURN_IF_ERROR(Guarded("rest", [&] { return Power(); }));
  const bool narrow = BaseCondition().isa != BestIsa(), small_chunk = ChunkCanGrow();
  if (small_chunk) RIDGE_RETURN_IF_ERROR(Chunk());
  if (narrow) RIDGE_RETURN_IF_ERROR(Isa());
  RIDGE_RETURN_IF_ERROR(Threads());
  RIDGE_RETURN_IF_ERROR(Bandwidth());
  half_.reset();
  if (!narrow) RIDGE_RETURN_IF_ERROR(Isa());
  RIDGE_RETURN_IF_ERROR(Tokens());
  RIDGE_RETURN_IF_ERROR(Context());
  RIDGE_RETURN_IF_ERROR(PromptLength());
  if (!small_chunk) RIDGE_RETURN_IF_ERROR(Chunk());
  RIDGE_RETURN_IF_ERROR(Layers());
  getrusage(RUSAGE_SELF, &after);
  if (const long faults = after.ru_majflt - before.ru_majflt; faults > 1000) {
    // 0.1 ms for each, a fast disk: the least that waiting for them can have taken.
    RIDGE_ASSIGN_OR_RETURN(const double step_s, base_->StepSeconds());
    getrusage(RUSAGE_SELF, &before);
    const double again =
        static_cast<double>(before.ru_majflt - after.ru_majflt) / static_cast<double>(base_->shape().steps);
    evidence_.capacity_share = std::min(1.0, again * 1e-4 / step_s);
    evidence_.capacity_why = fmt::format("{} came back from disk while it was measured", Count(faults, "page"));
  }
  const Ceilings ceilings = Ceilings::Cached();
  if (const auto ceiling = ceilings.ReadGbps(BaseCondition().threads)) {
    RIDGE_ASSIGN_OR_RETURN(const double now, lab::ReadNow(BaseCondition().threads, machine_));
    evidence_.read_share = now / *ceiling;
  } else {
    Skip("memory rate against the quiet machine's", ceilings.reason());
  }
  RIDGE_ASSIGN_OR_RETURN(const double step_s, base_->StepSeconds());
  RIDGE_ASSIGN_OR_RETURN(const double token_s, base_->PromptSeconds());
  Limits(step_s, token_s);
  evidence_.decode.seconds = step_s * static_cast<double>(work_.gen);
  evidence_.prefill.seconds = token_s * static_cast<double>(work_.prompt);
  std::error_code ignored;
  Skip("core clock", std::filesystem::exists("/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", ignored)
                         ? "it would change the clock for all programs of this machine"
                         : "the kernel offers no frequency control here");
  Skip("cgroup quota", "it would take CPU time from this process's group, others included");
  Skip("another format", "that is another file: ridge tune compares files");
  return {};
}

}  // namespace ridge::app
