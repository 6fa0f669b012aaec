// What the benchmarks time: a program with sequences of its own, fed with made-up tokens; no tokenizer, no sampler.
//
//   RIDGE_ASSIGN_OR_RETURN(BenchSubject subject, BenchSubject::Create(runtime, 8, 256));
//   RIDGE_RETURN_IF_ERROR(subject.Prompt(128));     // of every sequence, chunk by chunk
//   RIDGE_RETURN_IF_ERROR(subject.Generate(32));    // one token of every sequence a step
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "lab/roofline/work.h"
#include "sampling/sampler.h"
#include "service/runtime.h"

namespace ridge::app {

class BenchSubject {
 public:
  // Room for `sequences` of `tokens` each. The runtime must give logits for as many rows a step as there are sequences.
  static Result<BenchSubject> Create(const service::Runtime& runtime, int64_t sequences, int64_t tokens);

  // From now on Generate picks each token with a sampler (its defaults: temperature, top-k, top-p, …) and goes on with that token.
  Status AddSampler();
  // All sequences go on from here, which is 0 or where Keep was called last; what lies behind stays in the KV.
  void Rewind(int64_t position);
  void Keep();  // recurrent state, which knows no way back
  // n more prompt tokens of each sequence; only the last of each gives logits. Chunks hold tokens of one sequence.
  Status Prompt(int64_t n);
  // n tokens of each sequence, one step for all at a time.
  Status Generate(int64_t n);

 private:
  explicit BenchSubject(const service::Runtime& runtime, int64_t sequences)
      : program_(&runtime.program()),
        vocab_(runtime.model().graph().vocab()),
        chunk_(runtime.chunk_tokens()),
        sequences_(sequences) {}
  void Append(int64_t sequence, int64_t position, int64_t n);
  Status Sample();
  Status Run(std::span<const int32_t> table, std::span<const int32_t> slots, bool logits);

  backend::Program* program_;
  std::unique_ptr<backend::StateStore> state_;
  std::optional<sampling::Sampler> sampler_;
  std::vector<TokenId> picked_;  // [sequences] by the sampler in the latest step
  int64_t vocab_, chunk_, sequences_, position_ = 0, pages_per_sequence_ = 0;
  std::vector<int32_t> tokens_, positions_, seq_start_, logit_rows_, table_, slots_;
  std::vector<float> logits_;
};

// What one step of `tokens` tokens of one sequence must read and compute.
lab::Work StepWork(const service::Runtime& runtime, double tokens, double logits, double context);
// Bytes of weights and KV that one step must read when it generates a token for each of `sequences` at this context.
double StepReadBytes(const service::Runtime& runtime, double sequences, double context);

}  // namespace ridge::app
