#include "memory_report.h"

#include <fmt/format.h>

#include "base/quantity.h"
#include "text_table.h"

namespace ridge::app {
namespace {

std::string Mib(uint64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

// Why the plan does not do; empty: it does.
std::string Misfit(const service::Runtime& runtime) {
  const service::MemoryPlan& p = runtime.memory();
  if (!p.fits_memory())
    return fmt::format("the peak is above the {} that are allowed ({})", Mib(p.allowed_bytes), p.allowed_reason);
  if (p.holds_a_request()) return "";
  return fmt::format("the KV pool of {} holds no request of the whole context of {}", Count(p.kv_tokens, "token"),
                     Count(runtime.context_tokens(), "token"));
}

}  // namespace

Json MemoryJson(const service::Runtime& runtime) {
  const service::MemoryPlan& p = runtime.memory();
  const std::string misfit = Misfit(runtime);
  return {{"weights_bytes", p.weights_bytes},
          {"workspace_bytes", p.workspace_bytes},
          {"logits_bytes", p.logits_bytes},
          {"kv_page_bytes", p.kv_page_bytes},
          {"page_tokens", p.page_tokens},
          {"kv_pages", p.kv_pages},
          {"kv_tokens", p.kv_tokens},
          {"kv_bytes", p.kv_bytes},
          {"full_requests", p.full_requests},
          {"state_slot_bytes", p.state_slot_bytes},
          {"state_slots", p.state_slots},
          {"checkpoints", p.checkpoints},
          {"draft_slots", p.draft_slots},
          {"scratch_bytes", p.scratch_bytes},
          {"other_bytes", p.other_bytes},
          {"draft_bytes", p.draft_bytes},
          {"draft_kv_bytes", p.draft_kv_bytes},
          {"peak_bytes", p.peak_bytes},
          {"mapped_bytes", p.mapped_bytes},
          {"allowed_bytes", p.allowed_bytes == 0 ? Json(nullptr) : Json(p.allowed_bytes)},
          {"allowed_reason", p.allowed_reason},
          {"pages_reason", p.pages_reason},
          {"fits", misfit.empty()},
          {"fits_reason", misfit.empty() ? Json(nullptr) : Json(misfit)}};
}

std::string MemoryText(const service::Runtime& runtime) {
  const service::MemoryPlan& p = runtime.memory();
  TextTable table({{"memory"}, {"size", true}, {"what"}});
  table.Row({"weights", Mib(p.weights_bytes), "as the kernels read them"});
  table.Row(
      {"KV pool", Mib(p.kv_bytes),
       fmt::format("{} of {} = {}, {} of {} at once ({})", Count(p.kv_pages, "page"), Count(p.page_tokens, "token"),
                   Count(p.kv_tokens, "token"), p.holds_a_request() ? Count(p.full_requests, "request") : "NO REQUEST",
                   Count(runtime.context_tokens(), "token"), p.pages_reason)});
  if (p.state_slots > 0) {
    table.Row({"recurrent state", Mib(p.state_slot_bytes * static_cast<uint64_t>(p.state_slots)),
               fmt::format("{}, {} of them checkpoints of the prefix cache, {} for drafts",
                           Count(p.state_slots, "slot"), p.checkpoints, p.draft_slots)});
  }
  table.Row({"workspace", Mib(p.workspace_bytes), fmt::format("steps of {}", Count(runtime.chunk_tokens(), "token"))});
  table.Row({"logits", Mib(p.logits_bytes), Count(runtime.logit_rows(), "row")});
  table.Row({"attention scratch", Mib(p.scratch_bytes), "parts of long contexts"});
  if (p.draft_bytes > 0) {
    table.Row({"draft model", Mib(p.draft_bytes), "its weights, and what its steps need"});
    table.Row({"its KV", Mib(p.draft_kv_bytes), "as many pages of as many tokens"});
  }
  table.Row({"other", Mib(p.other_bytes), "vocabulary, threads, program: an estimate"});
  table.Row({"peak", Mib(p.peak_bytes),
             p.allowed_bytes == 0 ? "how much is allowed is not known"
                                  : fmt::format("{} the {} that are allowed ({})",
                                                !p.fits_memory()      ? "DOES NOT FIT: above"
                                                : p.holds_a_request() ? "fits: within"
                                                                      : "within",
                                                Mib(p.allowed_bytes), p.allowed_reason)});
  if (!p.holds_a_request()) table.Row({"", "", "DOES NOT FIT: " + Misfit(runtime)});
  std::string out = table.Text();
  out += fmt::format("\nBeside it {} of the model file are mapped; the system may drop them from memory.\n",
                     Mib(p.mapped_bytes));
  return out;
}

}  // namespace ridge::app
