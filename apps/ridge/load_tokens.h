// What this program's own tokenizer counts in the requests of `ridge load`, beside what the server says.
//
//   RIDGE_ASSIGN_OR_RETURN(LoadTokens own, LoadTokens::Open("smollm2:135m", /*chat=*/true));
//   RIDGE_ASSIGN_OR_RETURN(options.prompts, own.Prompts(options, 512));      // each of 512 tokens, template included
//   RIDGE_ASSIGN_OR_RETURN(TokenCounts counts, own.Count(run));             // both counts, and where they disagree
//
// Guarantees: prompts are counted as the server is to see them: with the model's own chat template and special tokens (for /v1/completions without a template).
// An answer of which a part came in another channel (reasoning, tool calls) has no own count. Nothing of the model but its vocabulary is read.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/load/load.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace ridge::app {

struct TokenCounts {
  int64_t prompt_own = 0, prompt_usage = 0;  // over the requests that have both
  int64_t output_own = 0, output_usage = 0;
  int64_t prompts = 0, outputs = 0;  // such requests
  int64_t prompts_differ = 0;        // by more than one token
  int64_t prompts_off = 0;     // of a length that was asked for, and by more than one not met by the server's count
  int64_t outputs_differ = 0;  // by more than one token: the end token counts for some servers
};

class LoadTokens {
 public:
  // Errors: those of opening the file; kNotFound where `chat` and the model has no chat template.
  static Result<LoadTokens> Open(const std::string& model, bool chat);

  // Synthetic prompts that have `tokens` tokens each, or those that the trace tells. Errors: kInvalidArgument where a template alone has more.
  Result<std::vector<std::string>> Prompts(const lab::LoadOptions& options, std::optional<int64_t> tokens) const;

  // `asked`: the lengths that the prompts were made for, by request; empty: none was asked for. Also sets first_chunk_tokens of the records.
  Result<TokenCounts> Count(lab::LoadRun& run, const std::vector<int64_t>& asked) const;

 private:
  LoadTokens() = default;
  Result<int64_t> OfPrompt(const std::string& prompt) const;
  Result<int64_t> OfText(const std::string& text) const;
  Result<std::string> Synthetic(const lab::LoadOptions& options, int64_t index, int64_t tokens) const;

  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::optional<text::ChatTemplate> chat_;
  std::optional<std::string> bos_, eos_;
  std::string model_;
};

}  // namespace ridge::app
