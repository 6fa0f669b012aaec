// Turns a Plan into one backend step and keeps the logits that it gave.
//
//   Runner runner(&program, &state, vocab, max_rows);
//   RIDGE_RETURN_IF_ERROR(runner.Run(plan));
//   std::span<float> row = runner.logits(0);   // of the plan's first chunk with logits
//
// Guarantees: no allocation once it has seen its largest step. Engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "engine/scheduler.h"

namespace ridge::engine {

class Runner {
 public:
  // program and state are borrowed. Rows of `vocab` floats. Where there is no memory for a step's tables (std::bad_alloc from Prepare) nothing is
  // computed.
  Runner(backend::Program* program, backend::StateStore* state, int64_t vocab, int64_t max_rows);

  void Prepare(const Plan& plan);
  Status Run();  // what was prepared. Errors: those of Program::Run; kResourceExhausted: it had no memory
  Status Run(const Plan& plan) {
    Prepare(plan);
    return Run();
  }
  // Work on several rows side by side, between steps; fn must not throw.
  void ForEach(size_t n, const std::function<void(size_t)>& fn) { program_->ForEach(n, fn); }
  std::span<float> logits(int64_t row) {
    return std::span<float>(logits_).subspan(static_cast<size_t>(row * vocab_), static_cast<size_t>(vocab_));
  }

 private:
  backend::Program* program_;
  backend::StateStore* state_;
  int64_t vocab_;
  std::vector<float> logits_;  // [max_rows, vocab]
  std::vector<int32_t> tokens_, positions_, seq_start_, page_table_, logit_rows_, slots_;
  std::vector<backend::StateSave> saves_;
};

}  // namespace ridge::engine
