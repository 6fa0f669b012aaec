// One configuration that `ridge diagnose` and `ridge tune` time against another, in interleaved pairs.
//
//   RIDGE_ASSIGN_OR_RETURN(auto base, Arm::Load(options, {.depth = 128, .prompt = 128}));
//   RIDGE_ASSIGN_OR_RETURN(auto with, Arm::Load(changed, base->shape()));
//   RIDGE_ASSIGN_OR_RETURN(Pairs pairs, Interleave(*base, *with, 4));   // pairs.decode: time with / without, two a block
//
// Guarantees: each repetition does the same work on the same KV; base and changed take turns as A B B A, so a steady drift cancels.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "bench_subject.h"
#include "service/runtime.h"

namespace ridge::app {

struct ArmShape {
  int64_t sequences = 1;  // decoded at once
  int64_t depth = 0;      // tokens in the KV of each when decoding
  int64_t prompt = 0;     // tokens of the prompt that is timed; 0: none
  int64_t steps = 0;      // of one decode sample; 0: found by Load, for about 100 ms, `warm` at least
  int64_t warm = 2;       // steps before each sample, which do not count
  int64_t room = 0;       // tokens that the context holds at least, for shapes that follow
  // False: the `depth` tokens are not computed, their KV is left as it is allocated. It takes as long to read. Not for recurrent models.
  bool fill = true;
};

class Arm {
 public:
  // Errors: those of Runtime::Load and NewState.
  static Result<std::unique_ptr<Arm>> Load(const service::RuntimeOptions& options, ArmShape shape);
  // Another shape on the same loaded model.
  Result<std::unique_ptr<Arm>> Reshape(ArmShape shape) const;

  Result<double> StepSeconds(int64_t steps = 0);  // of one decode step; 0: as many as the shape says
  Result<double> PromptSeconds();                 // of one prompt token
  const ArmShape& shape() const { return shape_; }
  const service::Runtime& runtime() const { return *runtime_; }

 private:
  Arm(std::shared_ptr<service::Runtime> runtime, ArmShape shape) : runtime_(std::move(runtime)), shape_(shape) {}
  Status Prepare();
  std::shared_ptr<service::Runtime> runtime_;
  ArmShape shape_;
  std::optional<BenchSubject> decode_, prompt_;
};

struct Pairs {
  std::vector<double> decode, prefill;            // time with / without
  std::vector<double> base_step_s, base_token_s;  // of the base alone
  std::vector<double> with_step_s, with_token_s;
};

// before(true) and before(false) are called before a sample of the changed and of the base configuration.
Result<Pairs> Interleave(Arm& base, Arm& with, int64_t blocks, const std::function<void(bool)>& before = {});

}  // namespace ridge::app
