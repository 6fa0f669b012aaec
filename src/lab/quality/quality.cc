#include "lab/quality/quality.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <string>

#include "sampling/log_probability.h"

namespace ridge::lab {
namespace {

constexpr size_t kScripts = static_cast<size_t>(Script::kOther) + 1;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int64_t ComputedTokens(std::span<const Window> windows) {
  int64_t n = 0;
  for (const Window& w : windows) n += w.score_end;
  return n;
}

PerplexityValue ValueOf(const MeanError& nll) {
  PerplexityValue v{.tokens = nll.count(), .mean_nll = nll.mean(), .perplexity = std::exp(nll.mean())};
  if (nll.error()) v.error = *nll.error() * v.perplexity;
  return v;
}

Status CheckFinite(double mean) {
  if (std::isfinite(mean)) return {};
  return Fail(Code::kInvalidData, "the model gives the text no finite probability")
      .Remedy(
          "the file is damaged, or this build computes it wrongly: ridge logits shows how many scores are no number");
}

// Index of the predicted token of each scored row, in the order of the text.
std::vector<int64_t> TargetTokens(std::span<const Window> windows) {
  std::vector<int64_t> tokens;
  for (const Window& w : windows) {
    for (int64_t p = w.score_begin; p < w.score_end; p++) tokens.push_back(w.first_token + p + 1);
  }
  return tokens;
}

struct KldSums {
  MeanError kld, delta_p, delta_p_squared, nll, reference_nll, log_ratio;
  double variance = 0;
  int64_t same_top = 0;

  void Add(const Divergence& d) {
    kld.Add(d.kld);
    delta_p.Add(d.delta_p);
    delta_p_squared.Add(d.delta_p * d.delta_p);
    nll.Add(-d.log_probability);
    reference_nll.Add(-d.reference_log_probability);
    log_ratio.Add(d.reference_log_probability - d.log_probability);
    variance += d.kld_variance;
    same_top += d.same_top;
  }

  KldValue Value() const {
    const double n = static_cast<double>(std::max<int64_t>(1, kld.count()));
    KldValue v{.tokens = kld.count(),
               .mean = kld.mean(),
               .error = kld.error(),
               .sampling_error = std::sqrt(variance) / n,
               .same_top = static_cast<double>(same_top) / n,
               .delta_p_mean = delta_p.mean(),
               .delta_p_rms = std::sqrt(delta_p_squared.mean()),
               .model = ValueOf(nll),
               .reference = ValueOf(reference_nll),
               .log_ratio = log_ratio.mean(),
               .log_ratio_error = log_ratio.error()};
    if (kld.count() > 1) v.same_top_error = std::sqrt(v.same_top * (1 - v.same_top) / (n - 1));
    return v;
  }
};

}  // namespace

Result<Perplexity> MeasurePerplexity(const ScoringSubject& subject, std::span<const TokenId> ids,
                                     std::span<const Window> windows, std::span<const Script> scripts, ThreadPool& pool,
                                     const ReferenceSink* reference, const ScoreProgress& progress) {
  const int64_t scored = CountScored(windows);
  std::vector<double> nll(static_cast<size_t>(scored));
  std::map<int64_t, std::string> waiting;  // rows that the windows before them must come before
  int64_t written = 0, done = 0;
  const auto start = std::chrono::steady_clock::now();
  RIDGE_RETURN_IF_ERROR(ScoreWindows(subject, ids, windows, [&](std::span<const ScoredRow> rows) -> Status {
    std::vector<std::string> encoded(reference != nullptr ? rows.size() : 0);
    pool.ParallelFor(rows.size(), 1, [&](size_t begin, size_t end, int) {
      for (size_t r = begin; r < end; r++) {
        nll[static_cast<size_t>(rows[r].index)] = -sampling::LogProbability(rows[r].logits, rows[r].target);
        if (reference != nullptr)
          encoded[r] = EncodeRow(rows[r].logits, rows[r].target, rows[r].index, reference->shape);
      }
    });
    for (size_t r = 0; r < encoded.size(); r++) waiting[rows[r].index] = std::move(encoded[r]);
    for (auto it = waiting.begin(); it != waiting.end() && it->first == written; it = waiting.erase(it), written++)
      RIDGE_RETURN_IF_ERROR(reference->writer->Add(it->second));
    done += static_cast<int64_t>(rows.size());
    if (progress) progress(done, scored);
    return {};
  }));
  Perplexity out{.computed_tokens = ComputedTokens(windows), .seconds = SecondsSince(start)};
  const std::vector<int64_t> targets = TargetTokens(windows);
  MeanError all, of_script[kScripts];
  size_t row = 0;
  for (const Window& window : windows) {
    for (int64_t p = window.score_begin; p < window.score_end; p++, row++) {
      all.Add(nll[row]);
      of_script[static_cast<size_t>(scripts[static_cast<size_t>(targets[row])])].Add(nll[row]);
    }
    out.running.push_back(std::exp(all.mean()));
  }
  RIDGE_RETURN_IF_ERROR(CheckFinite(all.mean()));
  out.all = ValueOf(all);
  for (size_t s = 0; s < kScripts; s++) {
    if (of_script[s].count() > 0) out.scripts.push_back({static_cast<Script>(s), ValueOf(of_script[s])});
  }
  return out;
}

Result<Kld> MeasureKld(ScoringSubject subject, const Reference& reference, std::span<const Script> scripts,
                       ThreadPool& pool, const ScoreProgress& progress) {
  const ReferenceAbout& about = reference.about();
  subject.bos = about.bos;
  RIDGE_ASSIGN_OR_RETURN(const std::vector<Window> windows,
                         PlanWindows(static_cast<int64_t>(about.tokens.size()), about.windows));
  std::vector<Divergence> rows_of(static_cast<size_t>(about.rows));
  int64_t done = 0;
  const auto start = std::chrono::steady_clock::now();
  RIDGE_RETURN_IF_ERROR(ScoreWindows(subject, about.tokens, windows, [&](std::span<const ScoredRow> rows) -> Status {
    std::vector<Status> status(rows.size());
    pool.ParallelFor(rows.size(), 1, [&](size_t begin, size_t end, int) {
      for (size_t r = begin; r < end; r++) {
        auto row = reference.Row(rows[r].index);
        if (!row) {
          status[r] = std::unexpected(std::move(row).error());
          continue;
        }
        rows_of[static_cast<size_t>(rows[r].index)] = Compare(*row, rows[r].logits, rows[r].target);
      }
    });
    for (Status& s : status) RIDGE_RETURN_IF_ERROR(std::move(s));
    done += static_cast<int64_t>(rows.size());
    if (progress) progress(done, about.rows);
    return {};
  }));
  Kld out{.computed_tokens = ComputedTokens(windows), .seconds = SecondsSince(start)};
  const std::vector<int64_t> targets = TargetTokens(windows);
  KldSums all, of_script[kScripts];
  for (size_t r = 0; r < rows_of.size(); r++) {
    all.Add(rows_of[r]);
    of_script[static_cast<size_t>(scripts[static_cast<size_t>(targets[r])])].Add(rows_of[r]);
    out.kld.push_back(rows_of[r].kld);
    out.delta_p.push_back(rows_of[r].delta_p);
  }
  RIDGE_RETURN_IF_ERROR(CheckFinite(all.kld.mean()));
  out.all = all.Value();
  for (size_t s = 0; s < kScripts; s++) {
    if (of_script[s].kld.count() > 0) out.scripts.push_back({static_cast<Script>(s), of_script[s].Value()});
  }
  return out;
}

}  // namespace ridge::lab
