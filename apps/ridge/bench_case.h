// One line of ridge bench: a loaded model and a test, warmed up once and then repeated as often, and beside whichever others, as the caller likes.
//
//   RIDGE_ASSIGN_OR_RETURN(auto one, BenchCase::Create(runtime, {.gen = 32}, {}));
//   RIDGE_RETURN_IF_ERROR(one->WarmUp());   for (...) RIDGE_RETURN_IF_ERROR(one->Repeat());   one->Finish(ceilings, row);
//
// Guarantee: each repetition does the same work on the same KV contents, so the order of repetitions changes nothing but the moment.
#pragma once

#include <memory>
#include <vector>

#include "bench_output.h"
#include "bench_subject.h"
#include "ceilings.h"
#include "service/runtime.h"

namespace ridge::app {

struct BenchTest {
  int64_t prompt = 0, gen = 0, depth = 0;
  int64_t tokens() const { return depth + prompt + gen; }
};

class BenchCase {
 public:
  // Errors: kOutOfRange where the test is longer than the context; those of NewState.
  static Result<std::unique_ptr<BenchCase>> Create(const service::Runtime& runtime, const BenchTest& test,
                                                   bool with_sampling);
  // Fills the depth; unless `skip`, runs pieces of the test until two in a row take the same time (within 3 %, at most 8).
  Status WarmUp(bool skip);
  Status Repeat();
  // Samples, statistics, bytes read, bound.
  void Finish(const Ceilings& ceilings, BenchRow& row) const;

  const service::Runtime& runtime() const { return *runtime_; }
  const BenchTest& test() const { return test_; }

 private:
  BenchCase(const service::Runtime& runtime, const BenchTest& test, BenchSubject subject)
      : runtime_(&runtime), test_(test), subject_(std::move(subject)) {}
  Result<double> Seconds(int64_t prompt, int64_t gen);
  lab::Work PromptWork() const;

  const service::Runtime* runtime_;
  BenchTest test_;
  BenchSubject subject_;
  std::vector<double> seconds_, begun_s_;  // begun_s_: CLOCK_MONOTONIC_RAW
};

}  // namespace ridge::app
