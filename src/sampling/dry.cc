#include "sampling/dry.h"

#include <algorithm>

#include "base/math.h"
#include "sampling/penalties.h"

namespace ridge::sampling {

Dry::Dry(const SamplingParams& params, int32_t vocab_size) {
  for (const std::vector<TokenId>& breaker : params.dry_sequence_breakers) {
    if (breaker.size() == 1) {
      if (single_.empty()) single_.assign(static_cast<size_t>(vocab_size), false);
      single_[breaker[0]] = true;
    } else {
      longer_.push_back(breaker);
    }
  }
}

size_t Dry::TokensAfterBreaker(std::span<const TokenId> window) const {
  const size_t n = window.size();
  for (size_t after = 0; after < n; ++after) {
    const size_t end = n - after;  // is a breaker the last thing in window[0, end)?
    if (IsBreaker(window[end - 1])) return after;
    for (const std::vector<TokenId>& breaker : longer_) {
      if (breaker.size() <= end && std::ranges::equal(breaker, window.subspan(end - breaker.size(), breaker.size())))
        return after;
    }
  }
  return n;
}

void Dry::Apply(const SamplingParams& params, std::span<const TokenId> history, std::span<float> logits) {
  if (params.dry_multiplier == 0.0 || params.dry_base == 0.0) return;
  const std::span<const TokenId> window = Window(history, params.dry_penalty_last_n);
  const size_t n = window.size();
  const size_t allowed = static_cast<size_t>(params.dry_allowed_length);
  if (n <= allowed) return;
  const size_t longest = TokensAfterBreaker(window);
  if (longest < allowed) return;

  // match_[k]: for how many tokens the window, read backwards from its end, agrees with itself read backwards from k
  // tokens before the end. The Z algorithm (Gusfield, "Algorithms on Strings, Trees and Sequences", 1.4) finds all k in
  // linear time: [left, right) is the furthest-reaching stretch already known to agree with the beginning.
  const auto back = [&](size_t i) { return window[n - 1 - i]; };
  match_.resize(n);
  size_t left = 0, right = 0;
  for (size_t k = 1; k < n; ++k) {
    size_t length = k < right ? std::min<size_t>(match_[k - left], right - k) : 0;
    while (k + length < n && back(length) == back(k + length)) ++length;
    match_[k] = static_cast<uint32_t>(length);
    if (k + length > right) {
      left = k;
      right = k + length;
    }
  }

  // The token after each earlier occurrence would lengthen the repeat. Only its longest repeat counts.
  repeats_.clear();
  for (size_t k = 1; k < n; ++k) {
    const uint32_t length = static_cast<uint32_t>(std::min<size_t>(match_[k], longest));
    const TokenId next = back(k - 1);
    if (length >= allowed && static_cast<size_t>(next) < logits.size() && !IsBreaker(next))
      repeats_.emplace_back(next, length);
  }
  std::ranges::sort(repeats_);
  for (size_t i = 0; i < repeats_.size(); ++i) {
    const auto [id, length] = repeats_[i];
    if (i + 1 < repeats_.size() && repeats_[i + 1].first == id) continue;  // a longer one follows
    const double penalty = params.dry_multiplier * Pow(params.dry_base, static_cast<double>(length - allowed));
    AddToLogit(logits[id], -std::min(penalty, 1e300));
  }
}

std::vector<std::vector<TokenId>> DryBreakers(std::span<const std::string> texts, int32_t vocab_size,
                                              const std::function<std::string_view(TokenId)>& piece,
                                              const std::function<std::vector<TokenId>(std::string_view)>& encode) {
  std::vector<std::vector<TokenId>> breakers;
  for (TokenId id = 0; id < vocab_size; ++id) {
    const std::string_view word = piece(id);
    if (word.empty()) continue;
    const auto contains = [&](const std::string& text) { return !text.empty() && word.find(text) != word.npos; };
    if (std::ranges::any_of(texts, contains)) {
      breakers.push_back({id});
      continue;
    }
    for (const std::string& text : texts) {
      for (size_t head = 1; head < text.size(); ++head) {
        if (!word.ends_with(std::string_view(text).substr(0, head))) continue;
        std::vector<TokenId> sequence{id};
        for (const TokenId tail : encode(std::string_view(text).substr(head))) sequence.push_back(tail);
        if (sequence.size() > 1) breakers.push_back(std::move(sequence));
      }
    }
  }
  std::ranges::sort(breakers);
  const auto repeated = std::ranges::unique(breakers);
  breakers.erase(repeated.begin(), repeated.end());
  return breakers;
}

std::span<const std::string> DefaultDryBreakers() {
  static const std::string kDefault[] = {"\n", ":", "\"", "*"};
  return kDefault;
}

}  // namespace ridge::sampling
