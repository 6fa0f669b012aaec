#include "sampling/candidates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/math.h"

namespace ridge::sampling {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr size_t kBlock = 64;         // logits looked at together; the loops over a block compile to SIMD
constexpr size_t kFirstPrefix = 256;  // top_p sorts this many first, then four times as many ...

struct BlockScan {
  int above = 0;  // logits above the threshold; NaN never is
  int nan = 0;
};

BlockScan Scan(const float* block, size_t size, float threshold) {
  int above = 0, nan = 0;
  if (size == kBlock) {
    for (size_t i = 0; i < kBlock; ++i) {
      above += block[i] > threshold;
      nan += block[i] != block[i];
    }
  } else {
    for (size_t i = 0; i < size; ++i) {
      above += block[i] > threshold;
      nan += block[i] != block[i];
    }
  }
  return {above, nan};
}

}  // namespace

Best Argmax(std::span<const float> logits) {
  Best best;
  float highest = kLowest;
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t size = std::min(kBlock, logits.size() - begin);
    const BlockScan scan = Scan(&logits[begin], size, highest);
    best.nan_count += scan.nan;
    if (scan.above == 0) continue;
    for (size_t i = begin; i < begin + size; ++i) {
      if (logits[i] > highest) {
        highest = logits[i];
        best.id = static_cast<TokenId>(i);
      }
    }
  }
  return best;
}

int64_t Candidates::FillAll(std::span<const float> logits) {
  items_.clear();
  items_.reserve(logits.size());
  int64_t nan_count = 0;
  highest_ = kLowest;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = std::min(logits[i], kLargest);  // NaN stays NaN: the comparison inside is false
    nan_count += logits[i] != logits[i];
    if (!(logit > kLowest)) continue;
    items_.push_back({logit, static_cast<TokenId>(i)});
    if (logit > highest_) highest_ = logit;
  }
  sorted_ = false;
  temperature_ = 1.0;
  return nan_count;
}

int64_t Candidates::FillTopK(std::span<const float> logits, size_t k) {
  items_.clear();
  int64_t nan_count = 0;
  float threshold = kLowest;  // once k candidates are known, the worst of them: later ids must be strictly above it
  const size_t limit = 2 * k + kBlock;
  items_.reserve(limit + kBlock);
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t size = std::min(kBlock, logits.size() - begin);
    const BlockScan scan = Scan(&logits[begin], size, threshold);
    nan_count += scan.nan;
    if (scan.above == 0) continue;
    for (size_t i = begin; i < begin + size; ++i) {
      if (logits[i] > threshold) items_.push_back({std::min(logits[i], kLargest), static_cast<TokenId>(i)});
    }
    if (items_.size() >= limit) {
      std::ranges::nth_element(items_, items_.begin() + static_cast<ptrdiff_t>(k - 1), Better);
      items_.resize(k);
      threshold = items_[k - 1].logit;
    }
  }
  temperature_ = 1.0;
  sorted_ = false;
  KeepBest(k);
  if (!items_.empty()) highest_ = items_[0].logit;
  return nan_count;
}

double Candidates::Score(const Candidate& c) const {
  return (static_cast<double>(c.logit) - static_cast<double>(highest_)) / temperature_;
}

double Candidates::ComputeWeights() {
  weights_.resize(items_.size());
  double sum = 0.0;
  for (size_t i = 0; i < items_.size(); ++i) weights_[i] = Score(items_[i]);
  ExpEach(weights_);
  for (const double weight : weights_) sum += weight;
  return sum;
}

void Candidates::SortPrefix(size_t done, size_t count) {
  const auto begin = items_.begin() + static_cast<ptrdiff_t>(done);
  const auto end = items_.begin() + static_cast<ptrdiff_t>(count);
  if (count < items_.size()) std::nth_element(begin, end, items_.end(), Better);
  std::sort(begin, end, Better);
}

void Candidates::Sort() {
  if (!sorted_) std::ranges::sort(items_, Better);
  sorted_ = true;
}

void Candidates::KeepBest(size_t count) {
  count = std::min(count, items_.size());
  if (!sorted_) SortPrefix(0, count);
  items_.resize(count);
  sorted_ = true;
}

void Candidates::TopNSigma(double n) {
  double sum = 0.0;
  for (const Candidate& c : items_) sum += c.logit;
  const double mean = sum / static_cast<double>(items_.size());
  double squares = 0.0;
  for (const Candidate& c : items_) squares += (c.logit - mean) * (c.logit - mean);
  const double limit = highest_ - n * std::sqrt(squares / static_cast<double>(items_.size()));
  std::erase_if(items_, [&](const Candidate& c) { return c.logit < limit; });
}

void Candidates::TopK(size_t k) {
  if (k < items_.size()) KeepBest(k);
}

void Candidates::Typical(double p, size_t min_keep) {
  const double total = ComputeWeights();
  double mean_score = 0.0;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (weights_[i] > 0.0) mean_score += weights_[i] * Score(items_[i]);
  }
  mean_score /= total;
  // |(-log p_i) - entropy| = |score_i - mean score|: the logarithm of the total cancels.
  keys_.resize(items_.size());
  order_.resize(items_.size());
  for (size_t i = 0; i < items_.size(); ++i) {
    keys_[i] = std::fabs(Score(items_[i]) - mean_score);
    order_[i] = static_cast<uint32_t>(i);
  }
  const auto nearer = [&](uint32_t a, uint32_t b) {
    return keys_[a] < keys_[b] || (keys_[a] == keys_[b] && Better(items_[a], items_[b]));
  };
  double sum = 0.0;
  size_t keep = items_.size();
  size_t known = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (i == known) {
      const size_t next = std::min(known == 0 ? kFirstPrefix : 4 * known, items_.size());
      const auto begin = order_.begin() + static_cast<ptrdiff_t>(known);
      const auto end = order_.begin() + static_cast<ptrdiff_t>(next);
      if (next < order_.size()) std::nth_element(begin, end, order_.end(), nearer);
      std::sort(begin, end, nearer);
      known = next;
    }
    sum += weights_[order_[i]];
    if (sum > p * total && i + 1 >= min_keep) {
      keep = i + 1;
      break;
    }
  }
  // Back into the order the candidates were in.
  order_.resize(keep);
  std::ranges::sort(order_);
  for (size_t i = 0; i < keep; ++i) items_[i] = items_[order_[i]];
  items_.resize(keep);
  highest_ = items_[0].logit;
  for (const Candidate& c : items_) highest_ = std::max(highest_, c.logit);
}

void Candidates::TopP(double p, size_t min_keep) {
  const double limit = p * ComputeWeights();
  double sum = 0.0;
  size_t keep = items_.size();
  size_t known = sorted_ ? items_.size() : 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (i == known) {
      const size_t next = std::min(known == 0 ? kFirstPrefix : 4 * known, items_.size());
      SortPrefix(known, next);
      known = next;
    }
    sum += Exp(Score(items_[i]));
    if (sum >= limit && i + 1 >= min_keep) {
      keep = i + 1;
      break;
    }
  }
  SortPrefix(std::min(known, keep), keep);
  items_.resize(keep);
  sorted_ = true;
}

void Candidates::MinP(double p, size_t min_keep) {
  const double limit = Log(p);
  const auto too_small = [&](const Candidate& c) { return Score(c) < limit; };
  const size_t keep = items_.size() - static_cast<size_t>(std::ranges::count_if(items_, too_small));
  if (keep < min_keep) {
    KeepBest(min_keep);
  } else {
    std::erase_if(items_, too_small);
  }
}

void Candidates::Xtc(double threshold, size_t min_keep) {
  const double limit = threshold * ComputeWeights();
  size_t above = 0;
  size_t last = 0;  // the worst of those above the threshold: it stays
  for (size_t i = 0; i < items_.size(); ++i) {
    if (weights_[i] < limit) continue;
    if (above == 0 || Better(items_[last], items_[i])) last = i;
    ++above;
  }
  if (above < 2 || items_.size() - (above - 1) < std::max<size_t>(min_keep, 1)) return;
  const Candidate keep = items_[last];
  std::erase_if(items_, [&](const Candidate& c) { return Better(c, keep); });
  highest_ = keep.logit;
}

TokenId Candidates::Draw(double uniform) {
  if (items_.size() == 1) return items_[0].id;
  const double target = uniform * ComputeWeights();
  double sum = 0.0;
  size_t last = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    if (weights_[i] == 0.0) continue;
    sum += weights_[i];
    last = i;
    if (sum > target) break;
  }
  return items_[last].id;
}

TokenId Candidates::DrawFromAll(std::span<const float> logits, double temperature, double uniform, int64_t& nan_count) {
  const Best best = Argmax(logits);
  nan_count = best.nan_count;
  if (best.id < 0) return -1;
  const double highest = std::min(logits[static_cast<size_t>(best.id)], kLargest);
  const bool plain = best.nan_count == 0 && logits[static_cast<size_t>(best.id)] <= kLargest;
  // Block by block, in the L1 cache: the weights of a whole row would be read from memory again and again.
  std::array<double, kBlock> weights;
  const auto weigh = [&](size_t block) {
    std::array<float, kBlock> part;
    part.fill(kLowest);  // behind the last token: a weight of 0
    std::copy_n(&logits[block * kBlock], std::min(kBlock, logits.size() - block * kBlock), part.begin());
    if (!plain) {
      for (float& logit : part) logit = logit > kLowest ? std::min(logit, kLargest) : kLowest;  // NaN is never drawn
    }
    for (size_t i = 0; i < kBlock; ++i) weights[i] = (static_cast<double>(part[i]) - highest) / temperature;
    ExpEach(weights);
  };
  // Inside of a block in four interleaved sums: additions that need not wait for one another, in an order that is always the same.
  sums_.clear();
  double total = 0.0;
  const size_t blocks = (logits.size() + kBlock - 1) / kBlock;
  for (size_t block = 0; block < blocks; ++block) {
    weigh(block);
    std::array<double, 4> lanes = {};
    for (size_t i = 0; i < kBlock; i += 4) {
      for (size_t lane = 0; lane < 4; ++lane) lanes[lane] += weights[i + lane];
    }
    sums_.push_back((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]));
    total += sums_.back();
  }
  const double target = uniform * total;
  double sum = 0.0;
  size_t block = 0;
  while (block + 1 < blocks && sum + sums_[block] <= target) sum += sums_[block++];
  // Rounding may lead past the block's end, or into blocks of nothing: then the last token with a weight is it.
  TokenId last = -1;
  weigh(block);
  for (size_t i = 0; i < kBlock; ++i) {
    if (weights[i] == 0.0) continue;
    sum += weights[i];
    last = static_cast<TokenId>(block * kBlock + i);
    if (sum > target) break;
  }
  while (last < 0 && block-- > 0) {
    weigh(block);
    for (size_t i = 0; i < kBlock; ++i) {
      if (weights[i] > 0.0) last = static_cast<TokenId>(block * kBlock + i);
    }
  }
  return last < 0 ? best.id : last;
}

}  // namespace ridge::sampling
