#include "tune_quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/quantity.h"
#include "lab/experiments/prompts.h"
#include "quality_subject.h"
#include "service/service.h"

namespace ridge::app {
namespace {

constexpr int64_t kAnswerTokens = 48, kTextTokens = 512;

// A text that a model scores: it is loaded for one at a time.
service::RuntimeOptions ForTexts(service::RuntimeOptions o) {
  o.context_tokens = kTextTokens;
  o.most_tokens.reset();
  o.kv_bytes.reset();
  o.sequences = 1;
  o.drafts = 0;
  return o;
}

Result<std::vector<std::vector<TokenId>>> Answers(const service::RuntimeOptions& best) {
  RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<service::Runtime> runtime, service::Runtime::Load(best));
  if (runtime->model().encoder())
    return Fail(Code::kUnsupported, "an encoder predicts no next token").Where(runtime->model().file().path());
  RIDGE_ASSIGN_OR_RETURN(const std::unique_ptr<service::Service> service, service::Service::Create(std::move(runtime)));
  std::vector<std::vector<TokenId>> texts;
  for (const lab::FixedPrompt& prompt : lab::FixedPrompts()) {
    const Json messages = {{{"role", "user"}, {"content", prompt.text}}};
    service::TextRequest request{.max_tokens = kAnswerTokens};
    request.sampling.temperature = 0;
    if (service->has_template())
      request.messages = &messages;
    else
      request.prompt = prompt.text;
    RIDGE_ASSIGN_OR_RETURN(const std::unique_ptr<service::TextStream> stream, service->Submit(request));
    service::TextEvent event;
    while (stream->Next(std::chrono::milliseconds(1000), event) != service::TextStream::Got::kEnd) {
    }
    if (stream->error()) return std::unexpected(*stream->error());
    texts.push_back(stream->prompt_ids());
    texts.back().insert(texts.back().end(), stream->ids().begin(), stream->ids().end());
  }
  return texts;
}

// Row by row what the model thinks of each text.
Status Score(const QualitySubject& subject, const std::vector<TokenId>& ids,
             const std::function<Status(const lab::ScoredRow&)>& sink) {
  const auto n = static_cast<int64_t>(ids.size());
  lab::ScoringSubject scoring = subject.scoring;
  scoring.bos.reset();  // it is among the ids
  const std::vector<lab::Window> windows = {{.first_token = 0, .tokens = n, .score_begin = 0, .score_end = n - 1}};
  return lab::ScoreWindows(scoring, ids, windows, [&](std::span<const lab::ScoredRow> rows) -> Status {
    for (const lab::ScoredRow& row : rows) RIDGE_RETURN_IF_ERROR(sink(row));
    return {};
  });
}

}  // namespace

Result<TuneQuality> TuneQuality::Create(service::RuntimeOptions best) {
  best = ForTexts(std::move(best));
  RIDGE_ASSIGN_OR_RETURN(const auto texts, Answers(best));
  RIDGE_ASSIGN_OR_RETURN(const QualitySubject subject, LoadQualitySubject(best));
  TuneQuality quality;
  quality.best_ = best.path;
  quality.vocab_hash_ = subject.VocabularyHash();
  const lab::ReferenceShape shape = lab::DefaultShape(subject.scoring.vocab);
  for (const std::vector<TokenId>& ids : texts) {
    Text text{.ids = ids, .rows = {}};
    RIDGE_RETURN_IF_ERROR(Score(subject, ids, [&](const lab::ScoredRow& row) -> Status {
      text.rows.push_back(lab::EncodeRow(row.logits, row.target, row.index, shape));
      return {};
    }));
    quality.texts_.push_back(std::move(text));
  }
  return quality;
}

Result<TuneQuality::Found> TuneQuality::Of(service::RuntimeOptions candidate) const {
  RIDGE_ASSIGN_OR_RETURN(const QualitySubject subject, LoadQualitySubject(ForTexts(std::move(candidate))));
  if (subject.VocabularyHash() != vocab_hash_)
    return Fail(Code::kInvalidArgument, "not the same model in another format: it has another vocabulary")
        .Where(subject.runtime->model().file().path())
        .Expected("that of " + best_);
  std::vector<lab::Agreement> agreements;
  double kld = 0, positions = 0;
  for (const Text& text : texts_) {
    lab::Agreement agreement;
    RIDGE_RETURN_IF_ERROR(Score(subject, text.ids, [&](const lab::ScoredRow& row) -> Status {
      RIDGE_ASSIGN_OR_RETURN(const lab::ReferenceRow best,
                             lab::DecodeRow(text.rows[static_cast<size_t>(row.index)], subject.scoring.vocab));
      const lab::Divergence d = lab::Compare(best, row.logits, row.target);
      agreement.positions++;
      agreement.same += d.same_top ? 1 : 0;
      kld += d.kld;
      return {};
    }));
    positions += static_cast<double>(agreement.positions);
    agreements.push_back(agreement);
  }
  return Found{lab::ShareOf(agreements), kld / std::max(1.0, positions)};
}

TuneQuality::Found TuneQuality::Same() const {
  int64_t positions = 0;
  for (const Text& text : texts_) positions += static_cast<int64_t>(text.rows.size());
  return {.same_top = {.positions = positions, .share = 1, .low = 1}, .mean_kld = 0};
}

std::string TuneQuality::About() const {
  size_t tokens = 0;
  for (const Text& text : texts_) tokens += text.ids.size();
  return fmt::format(
      "share of positions where the likeliest next token is the same as with {} and f16 KV, on {} texts of {}: "
      "the lab's fixed prompts in English and Chinese with that model's own greedy answers of at most {}",
      best_, texts_.size(), Count(tokens, "token"), Count(kAnswerTokens, "token"));
}

}  // namespace ridge::app
