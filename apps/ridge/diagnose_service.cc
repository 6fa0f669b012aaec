#include "diagnose_service.h"

#include <algorithm>

#include "lab/load/load.h"

namespace ridge::app {

Result<ServiceTimes> MeasureService(const ServiceWork& work) {
  ServiceTimes times;
  bool told = false;
  // As many words as make the prompt's tokens: one request tells how the server counts them.
  constexpr int64_t kProbeWords = 16;
  lab::LoadOptions probe{.url = work.url,
                         .model = work.model,
                         .api_key = work.api_key,
                         .chat = false,
                         .requests = 1,
                         .warmup = 0,
                         .concurrency = 1,
                         .max_tokens = 2,
                         .prompt_words = kProbeWords,
                         .seed = 77,
                         .ignore_eos = true};
  RIDGE_ASSIGN_OR_RETURN(const lab::LoadRun first, lab::RunLoad(probe));
  if (!first.records[0].error.empty())
    return Fail(Code::kUnavailable, "a request failed").Where(work.url).Found(first.records[0].error);
  int64_t words = work.prompt_tokens;
  if (first.records[0].prompt_tokens.value_or(0) > 0)
    words = std::max<int64_t>(1, work.prompt_tokens * (kProbeWords + 3) / *first.records[0].prompt_tokens - 3);
  // In groups, since what the client itself took is known of a run as a whole.
  constexpr int64_t kGroup = 2;
  for (int64_t done = 0; done < work.requests; done += kGroup) {
    lab::LoadOptions options{.url = work.url,
                             .model = work.model,
                             .api_key = work.api_key,
                             .chat = false,
                             .requests = kGroup,
                             .warmup = done == 0 ? 1 : 0,
                             .concurrency = 1,
                             .max_tokens = work.max_tokens,
                             .prompt_words = words,
                             .seed = static_cast<uint64_t>(done + 1),
                             .ignore_eos = true,
                             .chunk_delay_s = work.client_delay_s};
    RIDGE_ASSIGN_OR_RETURN(const lab::LoadRun run, lab::RunLoad(options));
    for (const lab::RequestRecord& r : run.records) {
      if (!r.error.empty()) return Fail(Code::kUnavailable, "a request failed").Where(work.url).Found(r.error);
      const double total = r.done_s - r.sent_s;
      told = told || r.engine_s.has_value();
      const std::optional<double> engine = r.engine_s ? r.engine_s : work.engine_s;
      if (!engine) {
        return Fail(Code::kUnsupported, "the server tells no times of its own")
            .Where(work.url)
            .Expected("the object \"ridge\" of ridge serve, or \"timings\" of llama-server")
            .Remedy("give the model with -m, to measure it in this process");
      }
      times.total_s.push_back(total);
      times.engine_s.push_back(*engine);
      times.ttft_s.push_back(r.first_token_s.value_or(total) - r.sent_s);
      times.service.push_back(std::clamp(1 - *engine / total, 0.0, 1.0));
      times.client.push_back(std::min(1.0, run.busy_s / run.duration_s));
    }
  }
  times.engine_from = told ? "the server's own figures" : "the same model in this process";
  return times;
}

}  // namespace ridge::app
