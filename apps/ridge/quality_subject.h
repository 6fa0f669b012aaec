// What `perplexity` and `kld` share: a model loaded for scoring a text, and lines about how far it is.
//
//   RIDGE_ASSIGN_OR_RETURN(QualitySubject subject, LoadQualitySubject(options.model, window_tokens));
//   RIDGE_ASSIGN_OR_RETURN(auto ids, subject.Encode(text));
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "lab/quality/quality.h"
#include "model_options.h"
#include "text/tokenizer.h"

namespace ridge::app {

struct QualitySubject {
  std::unique_ptr<service::Runtime> runtime;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<ThreadPool> pool;  // as many threads as the model computes with
  lab::ScoringSubject scoring;       // bos: where the vocabulary puts one before a text

  // BOS first where the vocabulary wants it, no EOS; special tokens that the text spells are text.
  Result<std::vector<TokenId>> Encode(const std::string& text) const;
  std::vector<lab::Script> ScriptsOf(const std::vector<TokenId>& ids) const;
  std::string VocabularyHash() const;  // 16 hex digits over the texts of all tokens
};

// The context is the window where -c is not given.
Result<QualitySubject> LoadQualitySubject(const ModelOptions& options, int64_t window_tokens);
Result<QualitySubject> LoadQualitySubject(service::RuntimeOptions options);

// One line that is written over, on stderr where that is a terminal; nothing elsewhere.
lab::ScoreProgress QualityProgress();
void EndQualityProgress();

Json Optional(const std::optional<double>& value);  // null where there is none
Json PerplexityJson(const lab::PerplexityValue& value);
std::string PlusMinus(double value, const std::optional<double>& error, int digits);  // "12.34 ± 0.05"
const char* ScoredName(const lab::WindowOptions& windows);  // "second_half", "whole" or "stride"

}  // namespace ridge::app
