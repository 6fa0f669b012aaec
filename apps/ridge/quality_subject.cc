#include "quality_subject.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace ridge::app {
namespace {

// Rows whose scores are held at once: 25 MB of a vocabulary of 49152, 134 MB of one of 262144.
constexpr int64_t kRows = 128;

Result<QualitySubject> SubjectOf(std::unique_ptr<service::Runtime> loaded) {
  QualitySubject s;
  s.runtime = std::move(loaded);
  const service::Runtime& runtime = *s.runtime;
  if (runtime.model().encoder())
    return Fail(Code::kUnsupported, "an encoder predicts no next token").Where(runtime.model().file().path());
  RIDGE_ASSIGN_OR_RETURN(s.tokenizer, text::Tokenizer::FromMetadata(runtime.model().file().metadata()));
  RIDGE_ASSIGN_OR_RETURN(s.pool, ThreadPool::Create(runtime.program().n_threads()));
  s.scoring = {.program = &runtime.program(),
               .state = runtime.state_options(),
               .vocab = runtime.model().graph().vocab(),
               .step_tokens = runtime.chunk_tokens(),
               .step_rows = std::min(kRows, runtime.logit_rows()),
               .bos = s.tokenizer->add_bos() ? s.tokenizer->bos() : std::nullopt};
  return s;
}

}  // namespace

Result<QualitySubject> LoadQualitySubject(const ModelOptions& options, int64_t window_tokens) {
  RIDGE_ASSIGN_OR_RETURN(auto runtime, options.Load({.logit_rows = kRows, .context_tokens = window_tokens}));
  return SubjectOf(std::move(runtime));
}

Result<QualitySubject> LoadQualitySubject(service::RuntimeOptions options) {
  options.logit_rows = kRows;
  RIDGE_ASSIGN_OR_RETURN(auto runtime, service::Runtime::Load(options));
  return SubjectOf(std::move(runtime));
}

Result<std::vector<TokenId>> QualitySubject::Encode(const std::string& text) const {
  RIDGE_ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokenizer->Encode(text, {.add_special = false}));
  if (scoring.bos) ids.insert(ids.begin(), *scoring.bos);
  return ids;
}

std::vector<lab::Script> QualitySubject::ScriptsOf(const std::vector<TokenId>& ids) const {
  std::vector<std::string_view> pieces;
  for (const TokenId id : ids) pieces.push_back(tokenizer->IsControl(id) ? "" : tokenizer->Piece(id));
  return lab::ScriptsOf(pieces);
}

std::string QualitySubject::VocabularyHash() const {
  std::string all;
  for (size_t id = 0; id < tokenizer->vocab_size(); id++) {
    const std::string_view piece = tokenizer->Piece(static_cast<TokenId>(id));
    all += fmt::format("{}{}:", tokenizer->IsControl(static_cast<TokenId>(id)) ? "!" : "", piece.size());
    all += piece;
  }
  return fmt::format("{:016x}", XXH3_64bits(all.data(), all.size()));
}

lab::ScoreProgress QualityProgress() {
  if (isatty(STDERR_FILENO) == 0) return {};
  const auto start = std::chrono::steady_clock::now();
  return [start](int64_t done, int64_t of) {
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (s < 1 || done == 0) return;
    std::fputs(fmt::format("\r{} of {} tokens scored, {:.0f} s left  ", done, of,
                           s * static_cast<double>(of - done) / static_cast<double>(done))
                   .c_str(),
               stderr);
  };
}

void EndQualityProgress() {
  if (isatty(STDERR_FILENO) != 0) std::fputs("\r\033[K", stderr);
}

Json Optional(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json PerplexityJson(const lab::PerplexityValue& value) {
  return {{"n_tokens", value.tokens},
          {"mean_nll", value.mean_nll},
          {"perplexity", value.perplexity},
          {"perplexity_error", Optional(value.error)}};
}

std::string PlusMinus(double value, const std::optional<double>& error, int digits) {
  return error ? fmt::format("{:.{}f} ± {:.{}f}", value, digits, *error, digits)
               : fmt::format("{:.{}f}", value, digits);
}

const char* ScoredName(const lab::WindowOptions& windows) {
  return windows.stride_tokens > 0 ? "stride" : windows.whole ? "whole" : "second_half";
}

}  // namespace ridge::app
