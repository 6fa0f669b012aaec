// ridge doctor -m: is this model well placed here?
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/quantity.h"
#include "doctor_check.h"
#include "lab/evidence/bundle.h"
#include "lab/evidence/seal.h"
#include "profile.h"
#include "pull_progress.h"
#include "service/runtime.h"

namespace ridge::app {
namespace {

std::string Gb(double bytes) { return fmt::format("{:.2f} GB", bytes / 1e9); }

Check CheckFormat(const service::Runtime& runtime) {
  std::string slow, fast;
  for (const backend::PlanEntry& e : runtime.program().plan()) {
    if (!e.op.starts_with("matmul") && !e.op.starts_with("experts")) continue;
    std::string& list = e.fallback ? slow : fast;
    list += fmt::format("{}{} by {} ({})", list.empty() ? "" : ", ", e.op, e.kernel, e.isa);
    if (e.fallback) list += ": " + e.reason;
  }
  if (!slow.empty())
    return {"format_accelerated", State::kWarn, slow,
            "these types are decoded to float each time they are used: take another format (ridge doctor --kernels "
            "lists the fast ones)"};
  return {"format_accelerated", State::kOk, fast};
}

Check CheckWidestIsa(const service::Runtime& runtime) {
  std::string best;
  for (const backend::IsaInfo& isa : backend::CpuIsas()) {
    if (isa.supported) best = isa.name;
  }
  const std::string now = runtime.program().isa();
  if (now != best)
    return {"widest_isa", State::kWarn, fmt::format("{} is used, {} would run", now, best),
            "unset RIDGE_ISA, or leave --isa out"};
  return {"widest_isa", State::kOk, now + " is used, the widest that runs here"};
}

Check CheckKvBudget(const service::Runtime& runtime) {
  const service::MemoryPlan& m = runtime.memory();
  const std::string evidence = fmt::format(
      "{} of weights, {} of KV for {}, {} in all; allowed {} ({})", Gb(static_cast<double>(m.weights_bytes)),
      Gb(static_cast<double>(m.kv_bytes)), Count(m.kv_tokens, "token"), Gb(static_cast<double>(m.peak_bytes)),
      Gb(static_cast<double>(m.allowed_bytes)), m.allowed_reason);
  if (!m.fits_memory())
    return {"kv_budget", State::kFail, evidence,
            "a smaller -c, KV of fewer bits (-ctk q8_0 -ctv q8_0), or a smaller model (ridge plan)"};
  if (m.allowed_bytes > 0 && static_cast<double>(m.peak_bytes) > 0.85 * static_cast<double>(m.allowed_bytes))
    return {"kv_budget", State::kWarn, evidence, "little is left for others: a smaller -c, or KV of fewer bits"};
  return {"kv_budget", State::kOk, evidence};
}

Check CheckContext(const service::Runtime& runtime) {
  const int64_t trained = runtime.model().config().context_tokens, now = runtime.context_tokens();
  const service::MemoryPlan& m = runtime.memory();
  const std::string evidence = fmt::format(
      "{} ({}); trained for {}; its KV is {:.0f} % of the weights", Count(now, "token"), runtime.context_reason(),
      trained,
      m.weights_bytes == 0 ? 0.0 : 100 * static_cast<double>(m.kv_bytes) / static_cast<double>(m.weights_bytes));
  if (trained > 0 && now > trained)
    return {"context", State::kWarn, evidence, "answers get worse beyond the trained length: a smaller -c"};
  if (m.kv_bytes > m.weights_bytes)
    return {"context", State::kWarn, evidence,
            "a full context reads more KV than weights at every token: a smaller -c, or -ctk q8_0 -ctv q8_0"};
  return {"context", State::kOk, evidence};
}

// Is the size of a prompt's step tuned, or the default's guess?
Check CheckBatch(const service::Runtime& runtime, const std::string& path) {
  const auto profile = Profile::Stored(path);
  if (profile && profile->chunk_tokens)
    return {"batch", State::kOk,
            fmt::format("prompts in steps of {} tokens, as ridge tune found here ({})", *profile->chunk_tokens,
                        profile->path)};
  return {
      "batch", State::kWarn,
      fmt::format("prompts in steps of {} tokens, the default: {}", runtime.chunk_tokens(),
                  profile ? "ridge tune searched other settings only" : "never tuned for this model on this machine"),
      "ridge tune -m MODEL finds the fastest; how many requests at once pay is told by ridge lab run batched"};
}

Check CheckFlashAttention(const service::Runtime& runtime, const std::string& path) {
  const service::MemoryPlan& m = runtime.memory();
  if (m.kv_pages == 0) return {"flash_attention", State::kNotApplicable, "this model keeps no keys and values"};
  const std::string paged = fmt::format("keys and values in {} pages of {} tokens", m.kv_pages, m.page_tokens);
  const auto profile = Profile::Stored(path);
  if (profile && profile->flash_attention.value_or("") == "off")
    return {"flash_attention", State::kOk, fmt::format("off, as ridge tune found here ({}); {}", profile->path, paged)};
  return {"flash_attention", State::kOk, "on (the default of -fa), scores of a prompt are never held whole; " + paged};
}

Check CheckQuality(const ModelQuestion& q) {
  constexpr const char* kRemedy =
      "hold it against its best format: ridge perplexity --save-reference, then ridge kld; or ridge lab run format, "
      "and give the folder with --evidence";
  if (q.evidence.empty())
    return {"quality_regression", State::kWarn, "no evidence was given that this format was tested on your task",
            kRemedy};
  const auto checked = lab::CheckBundle(q.evidence, {});
  if (!checked) return {"quality_regression", State::kFail, checked.error().Message(), kRemedy};
  if (!checked->problems.empty())
    return {"quality_regression", State::kFail, q.evidence + ": " + checked->problems.front(),
            "the evidence was changed: run the experiment again"};
  const auto bundle = lab::Bundle::Open(q.evidence);
  if (!bundle) return {"quality_regression", State::kFail, bundle.error().Message(), kRemedy};
  const lab::Experiment& e = bundle->experiment();
  if (e.subject == "bench" && !e.work)
    return {"quality_regression", State::kWarn,
            fmt::format("the experiment \"{}\" is sound, but it measured speed only", e.name), kRemedy};
  bool names = std::ranges::any_of(e.base, [&](const auto& flag) { return flag.second == q.model; });
  names = names || std::ranges::find(e.values, q.model) != e.values.end();
  if (!names)
    return {"quality_regression", State::kWarn,
            fmt::format("the experiment \"{}\" is sound, but it is about other models", e.name), kRemedy};
  return {"quality_regression", State::kOk,
          fmt::format("{}: \"{}\" names this model, and every file is as it was sealed", q.evidence, e.name)};
}

}  // namespace

Result<std::vector<Check>> ModelChecks(const ModelQuestion& q) {
  RIDGE_ASSIGN_OR_RETURN(const std::string path, ResolveOrPull(q.model));
  const char* forced = std::getenv("RIDGE_ISA");
  RIDGE_ASSIGN_OR_RETURN(
      const auto runtime,
      service::Runtime::Load(
          {.path = path, .isa = forced == nullptr ? "" : forced, .context_tokens = q.context, .dry_run = true}));
  return std::vector<Check>{CheckFormat(*runtime),  CheckWidestIsa(*runtime),   CheckKvBudget(*runtime),
                            CheckContext(*runtime), CheckBatch(*runtime, path), CheckFlashAttention(*runtime, path),
                            CheckQuality(q)};
}

}  // namespace ridge::app
