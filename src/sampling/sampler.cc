#include "sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/quantity.h"
#include "sampling/random.h"

namespace ridge::sampling {
namespace {

bool IsActive(Stage stage, const SamplingParams& p) {
  switch (stage) {
    case Stage::kTopNSigma: return p.top_n_sigma > 0.0;
    case Stage::kTopK: return p.top_k > 0;
    case Stage::kTypicalP: return p.typical_p < 1.0;
    case Stage::kTopP: return p.top_p < 1.0;
    case Stage::kMinP: return p.min_p > 0.0;
    case Stage::kXtc: return p.xtc_probability > 0.0 && p.xtc_threshold <= 0.5;
    case Stage::kTemperature: return p.temperature != 1.0;
  }
  return false;
}

// Whether the stages end with the one best token for certain: top_k of 1 before anything that may drop the best.
bool LeavesOnlyTheBest(const std::vector<Stage>& stages, const SamplingParams& p) {
  for (const Stage stage : stages) {
    if (stage == Stage::kTopK && p.top_k == 1) return true;
    if (stage == Stage::kTypicalP || stage == Stage::kXtc) return false;
  }
  return false;
}

}  // namespace

Result<Sampler> Sampler::Create(SamplingParams params, int32_t vocab_size) {
  RIDGE_RETURN_IF_ERROR(Validate(params, vocab_size));
  return Sampler(std::move(params), vocab_size);
}

Sampler::Sampler(SamplingParams params, int32_t vocab_size)
    : params_(std::make_shared<const SamplingParams>(std::move(params))),
      vocab_size_(vocab_size),
      dry_(*params_, vocab_size) {
  for (const Stage stage : params_->samplers) {
    if (IsActive(stage, *params_)) stages_.push_back(stage);
  }
  all_ = stages_.empty() || (stages_.size() == 1 && stages_[0] == Stage::kTemperature);
  greedy_ = params_->temperature == 0.0 || LeavesOnlyTheBest(stages_, *params_);
}

Result<TokenId> Sampler::Sample(std::span<float> logits, std::span<const TokenId> history, uint64_t request,
                                uint64_t position, std::span<const uint32_t> allowed) {
  const size_t vocab_size = static_cast<size_t>(vocab_size_);
  if (logits.size() != vocab_size) {
    return Fail(Code::kInvalidArgument, "logits do not fit the vocabulary")
        .Found(Count(logits.size(), "logit"))
        .Expected(fmt::format("{}", vocab_size));
  }
  if (!allowed.empty() && allowed.size() * 32 < vocab_size) {
    return Fail(Code::kInvalidArgument, "token mask does not fit the vocabulary")
        .Found(fmt::format("{} bits", allowed.size() * 32))
        .Expected(fmt::format("at least {}", vocab_size));
  }
  ApplyBias(params_->logit_bias, logits);
  if (!allowed.empty()) ApplyMask(allowed, logits);
  penalties_.Apply(*params_, history, logits);
  dry_.Apply(*params_, history, logits);

  TokenId chosen = -1;
  if (greedy_) {
    const Best best = Argmax(logits);
    nan_count_ = best.nan_count;
    chosen = best.id;
  } else if (all_) {
    const PhiloxBlock random = Philox(params_->seed, position, request);
    const double temperature = stages_.empty() ? 1.0 : params_->temperature;
    chosen = candidates_.DrawFromAll(logits, temperature, Uniform(random[0], random[1]), nan_count_);
  } else {
    size_t next = 0;
    if (!stages_.empty() && stages_[0] == Stage::kTopK) {
      nan_count_ = candidates_.FillTopK(logits, std::min(static_cast<size_t>(params_->top_k), vocab_size));
      next = 1;
    } else {
      nan_count_ = candidates_.FillAll(logits);
    }
    if (!candidates_.empty()) {
      const PhiloxBlock random = Philox(params_->seed, position, request);
      for (; next < stages_.size(); ++next) Truncate(stages_[next], random);
      chosen = candidates_.Draw(Uniform(random[0], random[1]));
    }
  }
  if (chosen < 0) {
    const bool biased =
        nan_count_ == 0 && std::ranges::any_of(params_->logit_bias, [](const LogitBias& b) { return b.bias < 0; });
    return Fail(Code::kInvalidData, fmt::format("no token can be sampled at position {}", position))
        .Where(biased ? "logit_bias" : "")
        .Found(fmt::format("{} of {} logits NaN, the others minus infinity", nan_count_, vocab_size))
        .Expected("at least one usable logit")
        .Remedy("if NaN: the model file or its computation is broken; else the bias, mask or grammar bans every token");
  }
  return chosen;
}

void Sampler::Truncate(Stage stage, const std::array<uint32_t, 4>& random) {
  const size_t min_keep = static_cast<size_t>(std::max(params_->min_keep, 1));
  switch (stage) {
    case Stage::kTopNSigma: candidates_.TopNSigma(params_->top_n_sigma); break;
    case Stage::kTopK: candidates_.TopK(static_cast<size_t>(params_->top_k)); break;
    case Stage::kTypicalP: candidates_.Typical(params_->typical_p, min_keep); break;
    case Stage::kTopP: candidates_.TopP(params_->top_p, min_keep); break;
    case Stage::kMinP: candidates_.MinP(params_->min_p, min_keep); break;
    case Stage::kXtc:
      // Its own half of the block: whether XTC acts must not depend on which token is drawn.
      if (Uniform(random[2], random[3]) < params_->xtc_probability) candidates_.Xtc(params_->xtc_threshold, min_keep);
      break;
    case Stage::kTemperature: candidates_.Temperature(params_->temperature); break;
  }
}

}  // namespace ridge::sampling
