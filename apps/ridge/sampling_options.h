// Flags that choose how tokens are drawn, named as llama.cpp's.
//
//   SamplingOptions sampling;   sampling.Add(app);
//   RIDGE_ASSIGN_OR_RETURN(sampling::SamplingParams params, sampling.Resolve(tokenizer));
//
// Guarantees: Resolve checks every value and names the flag; a seed that is not given is drawn, and is in the parameters like any other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command.h"
#include "sampling/params.h"
#include "text/tokenizer.h"

namespace ridge::app {

class SamplingOptions {
 public:
  void Add(CLI::App* app);
  Result<sampling::SamplingParams> Resolve(const text::Tokenizer& tokenizer, int64_t vocab) const;

 private:
  sampling::SamplingParams params_;
  int64_t seed_ = -1;
  std::vector<std::string> logit_bias_, dry_breakers_, samplers_;
};

Json SamplingJson(const sampling::SamplingParams& params);

}  // namespace ridge::app
