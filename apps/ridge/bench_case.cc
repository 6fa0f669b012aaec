#include "bench_case.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>

#include "base/quantity.h"
#include "lab/statistics.h"

namespace ridge::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSteady = 0.03;
constexpr size_t kMostWarmUps = 8;
constexpr int64_t kWarmUpTokens = 4;  // generated in one piece of a warm-up

}  // namespace

Result<std::unique_ptr<BenchCase>> BenchCase::Create(const service::Runtime& runtime, const BenchTest& test,
                                                     bool with_sampling) {
  if (test.tokens() > runtime.context_tokens()) {
    return Fail(Code::kOutOfRange, "the test is longer than the context")
        .Found(Count(test.tokens(), "token"))
        .Expected(fmt::format("at most {}", runtime.context_tokens()));
  }
  RIDGE_ASSIGN_OR_RETURN(BenchSubject subject, BenchSubject::Create(runtime, 1, test.tokens()));
  if (with_sampling) RIDGE_RETURN_IF_ERROR(subject.AddSampler());
  return std::unique_ptr<BenchCase>(new BenchCase(runtime, test, std::move(subject)));
}

Result<double> BenchCase::Seconds(int64_t prompt, int64_t gen) {
  subject_.Rewind(test_.depth);
  const auto begin = Clock::now();
  RIDGE_RETURN_IF_ERROR(subject_.Prompt(prompt));
  RIDGE_RETURN_IF_ERROR(subject_.Generate(gen));
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Status BenchCase::WarmUp(bool skip) {
  RIDGE_RETURN_IF_ERROR(subject_.Prompt(test_.depth));
  subject_.Keep();
  std::vector<double> times;
  while (!skip && times.size() < kMostWarmUps && !lab::IsSteady(times, kSteady)) {
    RIDGE_ASSIGN_OR_RETURN(const double seconds, Seconds(std::min(test_.prompt, runtime_->chunk_tokens()),
                                                         std::min(test_.gen, kWarmUpTokens)));
    times.push_back(seconds);
  }
  return {};
}

Status BenchCase::Repeat() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_RAW,
                &now);  // the clock of lab/sampler.h: a run's repetitions are laid beside what the machine did
  begun_s_.push_back(static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9);
  runtime_->program().TraceNextSteps();  // short as it may be, a repetition has one of each kind
  RIDGE_ASSIGN_OR_RETURN(const double seconds, Seconds(test_.prompt, test_.gen));
  seconds_.push_back(seconds);
  return {};
}

lab::Work BenchCase::PromptWork() const {
  lab::Work work;
  for (int64_t done = 0; done < test_.prompt;) {
    const int64_t n = std::min(runtime_->chunk_tokens(), test_.prompt - done);
    const double context = static_cast<double>(test_.depth + done) + static_cast<double>(n) / 2;
    done += n;
    work.Add(StepWork(*runtime_, static_cast<double>(n), done == test_.prompt ? 1 : 0, context));
  }
  return work;
}

void BenchCase::Finish(const Ceilings& ceilings, BenchRow& row) const {
  for (double s : seconds_) {
    row.samples_ns.push_back(s * 1e9);
    row.samples_ts.push_back(static_cast<double>(test_.prompt + test_.gen) / s);
  }
  row.samples_at_s = begun_s_;
  row.speed = Summarize(row.samples_ts);
  row.time = Summarize(row.samples_ns);
  row.interval = lab::MedianInterval(row.samples_ts);
  const double seconds = row.time.median / 1e9;
  lab::Work work = PromptWork();
  if (test_.gen > 0) {
    const double context = static_cast<double>(test_.depth + test_.prompt) + static_cast<double>(test_.gen) / 2;
    work.Add(StepWork(*runtime_, 1, 1, context), static_cast<double>(test_.gen));
  }
  row.bytes = lab::LayoutBytes(work);
  row.flops = lab::Flops(work);
  // A prompt's bytes say little: what bounds it is arithmetic.
  if (test_.prompt == 0) row.read_gbps = lab::LayoutBytes(work) / seconds / 1e9;
  row.read_ceiling_gbps = ceilings.ReadGbps(runtime_->program().n_threads());
  if (test_.prompt > 0 && test_.gen > 0) {
    row.ceiling_reason = "prompt and generation are bound by different things: measure them one by one";
    return;
  }
  row.floors = ceilings.FloorsOf(work, *runtime_, test_.gen > 0);
  row.bound = ceilings.BoundOf(work, *runtime_, test_.gen > 0, seconds);
  if (row.bound) return;
  row.ceiling_reason = ceilings.WhyUnknown(*runtime_);
  if (row.ceiling_reason.empty()) row.ceiling_reason = "the roofline has no rate for some of what this run computes";
}

}  // namespace ridge::app
