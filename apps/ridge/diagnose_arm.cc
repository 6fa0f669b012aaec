#include "diagnose_arm.h"

#include <algorithm>
#include <chrono>

namespace ridge::app {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kSample_s = 0.1;  // of decoding: long against a timer tick, short against a drift
constexpr int64_t kMostSteps = 64;

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

Result<std::unique_ptr<Arm>> Arm::Load(const service::RuntimeOptions& options, ArmShape shape) {
  service::RuntimeOptions o = options;
  // A context that was given counts for the memory that the model takes, as everywhere; else what is measured decides.
  const int64_t needed = std::max({shape.depth + kMostSteps, shape.prompt, shape.room});
  if (o.context_tokens.value_or(1) != 0) o.context_tokens = std::max(o.context_tokens.value_or(0), needed);
  o.logit_rows = std::max<int64_t>(o.logit_rows, 4);
  RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<service::Runtime> runtime, service::Runtime::Load(o));
  std::unique_ptr<Arm> arm(new Arm(std::move(runtime), shape));
  RIDGE_RETURN_IF_ERROR(arm->Prepare());
  return arm;
}

Result<std::unique_ptr<Arm>> Arm::Reshape(ArmShape shape) const {
  std::unique_ptr<Arm> arm(new Arm(runtime_, shape));
  RIDGE_RETURN_IF_ERROR(arm->Prepare());
  return arm;
}

Status Arm::Prepare() {
  RIDGE_ASSIGN_OR_RETURN(decode_, BenchSubject::Create(*runtime_, shape_.sequences, shape_.depth + kMostSteps));
  if (shape_.fill) {
    RIDGE_RETURN_IF_ERROR(decode_->Prompt(shape_.depth));
    decode_->Keep();
  }
  for (int i = 0; i < 2; i++) RIDGE_RETURN_IF_ERROR(StepSeconds(shape_.warm));
  if (shape_.steps == 0) {
    RIDGE_ASSIGN_OR_RETURN(const double step_s, StepSeconds(shape_.warm));
    shape_.steps = std::clamp<int64_t>(static_cast<int64_t>(kSample_s / step_s), shape_.warm, kMostSteps);
  }
  if (shape_.prompt == 0) return {};
  RIDGE_ASSIGN_OR_RETURN(prompt_, BenchSubject::Create(*runtime_, 1, shape_.prompt));
  RIDGE_RETURN_IF_ERROR(PromptSeconds());
  return {};
}

Result<double> Arm::StepSeconds(int64_t steps) {
  if (steps == 0) steps = shape_.steps;
  decode_->Rewind(shape_.depth);
  const auto begin = Clock::now();
  RIDGE_RETURN_IF_ERROR(decode_->Generate(steps));
  return SecondsSince(begin) / static_cast<double>(steps);
}

Result<double> Arm::PromptSeconds() {
  prompt_->Rewind(0);
  const auto begin = Clock::now();
  RIDGE_RETURN_IF_ERROR(prompt_->Prompt(shape_.prompt));
  return SecondsSince(begin) / static_cast<double>(shape_.prompt);
}

Result<Pairs> Interleave(Arm& base, Arm& with, int64_t blocks, const std::function<void(bool)>& before) {
  Pairs pairs;
  const bool prompts = base.shape().prompt > 0 && with.shape().prompt > 0;
  const auto sample = [&](bool changed) -> Status {
    if (before) before(changed);
    Arm& arm = changed ? with : base;
    RIDGE_RETURN_IF_ERROR(arm.StepSeconds(arm.shape().warm));  // what the other one left in the caches must not count
    RIDGE_ASSIGN_OR_RETURN(const double step_s, arm.StepSeconds());
    (changed ? pairs.with_step_s : pairs.base_step_s).push_back(step_s);
    if (!prompts) return {};
    RIDGE_ASSIGN_OR_RETURN(const double token_s, arm.PromptSeconds());
    (changed ? pairs.with_token_s : pairs.base_token_s).push_back(token_s);
    return {};
  };
  for (int64_t b = 0; b < blocks; b++) {
    for (bool changed : {false, true, true, false}) RIDGE_RETURN_IF_ERROR(sample(changed));
  }
  for (size_t i = 0; i < pairs.base_step_s.size(); i++) {
    pairs.decode.push_back(pairs.with_step_s[i] / pairs.base_step_s[i]);
    if (prompts) pairs.prefill.push_back(pairs.with_token_s[i] / pairs.base_token_s[i]);
  }
  return pairs;
}

}  // namespace ridge::app
