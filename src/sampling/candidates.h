// Candidates: the tokens that may still be drawn, and the steps that drop some of them.
//
//   candidates.FillTopK(logits, 40);
//   candidates.TopP(0.95, 1);
//   TokenId next = candidates.Draw(uniform);
//
// Guarantees: between calls the candidates are in one of two orders, by rising id or from best to worst (higher logit,
// then lower id), never in one that the standard library's selection left behind; so every sum is repeatable. Every
// step keeps at least one candidate. Weights are exp((logit - highest logit) / temperature) in double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/token_id.h"

namespace ridge::sampling {

struct Candidate {
  float logit;
  TokenId id;

  friend bool operator==(const Candidate&, const Candidate&) = default;
};

// From best to worst.
constexpr bool Better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

struct Best {
  TokenId id = -1;  // -1: no token has a logit above minus infinity
  int64_t nan_count = 0;
};

// The highest logit's token, the lowest id among equals, in one pass. logits: [vocab_size]
Best Argmax(std::span<const float> logits);

class Candidates {
 public:
  // Every token whose logit is above minus infinity (NaN is not), by id; temperature becomes 1. Returns the NaN count.
  int64_t FillAll(std::span<const float> logits);
  // The same and TopK(k), k >= 1, in one pass without a copy of the row.
  int64_t FillTopK(std::span<const float> logits, size_t k);

  bool empty() const { return items_.empty(); }
  std::span<const Candidate> items() const { return items_; }

  // Each drops candidates; see docs/sampling.md for the formulas. The set must not be empty.
  void TopNSigma(double n);
  void TopK(size_t k);
  void Typical(double p, size_t min_keep);
  void TopP(double p, size_t min_keep);
  void MinP(double p, size_t min_keep);
  void Xtc(double threshold, size_t min_keep);  // the chance itself is the caller's
  void Temperature(double temperature) { temperature_ *= temperature; }

  // The candidate at `uniform`, in [0, 1), of the cumulative distribution.
  TokenId Draw(double uniform);
  // The same over all tokens of a row, where nothing drops any: much faster. -1: none has a logit above minus infinity.
  TokenId DrawFromAll(std::span<const float> logits, double temperature, double uniform, int64_t& nan_count);

 private:
  double Score(const Candidate& c) const;      // (logit - highest) / temperature, at most 0
  double ComputeWeights();                     // fills weights_, returns their sum
  void SortPrefix(size_t done, size_t count);  // items [done, count) become the right ones in order, best first
  void Sort();
  void KeepBest(size_t count);

  std::vector<Candidate> items_;
  std::vector<double> weights_;  // [items]: scratch
  std::vector<double> sums_;     // [blocks] of DrawFromAll: scratch
  std::vector<uint32_t> order_;  // [items]: scratch of Typical
  std::vector<double> keys_;     // [items]: scratch of Typical
  bool sorted_ = false;          // best to worst; otherwise by id
  float highest_ = 0.0f;
  double temperature_ = 1.0;
};

}  // namespace ridge::sampling
