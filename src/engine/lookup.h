// Drafts by looking up what followed when the latest tokens of a sequence came before, in its prompt or its answer.
//
//   Lookup lookup;
//   int64_t match = lookup.Draft(tokens, 8, draft);   // `match` latest tokens came before; draft: what followed then
//
// Guarantees: deterministic. Reads each token once; a draft costs at most kMostPlaces * kMostMatch comparisons.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/token_id.h"

namespace ridge::engine {

class Lookup {
 public:
  static constexpr int64_t kLeastMatch = 3, kMostMatch = 32, kMostPlaces = 8;

  // At most n tokens that are likely to follow `tokens`, which only grew since the latest call. Returns how many of the latest tokens came before
  // in the same order, at most kMostMatch; 0: no draft. Of several places the one with the longest match counts, of those the latest.
  int64_t Draft(std::span<const TokenId> tokens, int64_t n, std::vector<TokenId>& draft);

 private:
  void Read(std::span<const TokenId> tokens);

  std::unordered_map<uint64_t, int32_t> latest_;  // hash of kLeastMatch tokens -> where they ended latest
  std::vector<int32_t> earlier_;                  // [tokens read]: where the same ones ended before; -1: nowhere
};

}  // namespace ridge::engine
