#include "engine/draft_map.h"

#include <algorithm>

namespace ridge::engine {

DraftMap::DraftMap(int64_t pages, int64_t page_tokens)
    : page_tokens_(page_tokens), slots_(static_cast<size_t>(pages * page_tokens)) {}

void DraftMap::Copy(cache::PageId from, cache::PageId to) {
  const auto at = [&](cache::PageId page) { return slots_.begin() + static_cast<int64_t>(page) * page_tokens_; };
  std::copy(at(from), at(from) + page_tokens_, at(to));
}

int64_t DraftMap::Known(Sequence& sequence) const {
  std::vector<uint64_t>& hashes = sequence.prefix_hashes;
  for (size_t i = hashes.size(); i < sequence.tokens.size(); i++)
    hashes.push_back(Extend(i == 0 ? kNoTokens : hashes[i - 1], sequence.tokens[i]));
  const int64_t limit = std::min(sequence.length() - 1, sequence.pages->capacity_tokens());
  int64_t known = 0;
  const auto holds = [&](int64_t position) {
    const int64_t page = sequence.pages->pages()[static_cast<size_t>(position / page_tokens_)];
    return slots_[static_cast<size_t>(page * page_tokens_ + position % page_tokens_)] ==
           hashes[static_cast<size_t>(position)];
  };
  while (known + page_tokens_ <= limit && holds(known + page_tokens_ - 1)) known += page_tokens_;
  for (const int64_t end = std::min(limit, known + page_tokens_); known < end && holds(known);) known++;
  return known;
}

void DraftMap::Write(std::span<const cache::PageId> pages, int64_t position, uint64_t hash) {
  const int64_t page = pages[static_cast<size_t>(position / page_tokens_)], slot = position % page_tokens_;
  const auto begin = slots_.begin() + page * page_tokens_;
  begin[slot] = hash;
  std::fill(begin + slot + 1, begin + page_tokens_, 0);
}

}  // namespace ridge::engine
