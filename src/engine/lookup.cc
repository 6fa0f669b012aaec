#include "engine/lookup.h"

#include <algorithm>

namespace ridge::engine {
namespace {

uint64_t HashOf(std::span<const TokenId> tokens) {
  uint64_t hash = 0;
  for (const TokenId token : tokens) {
    hash = (hash ^ static_cast<uint64_t>(token)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

void Lookup::Read(std::span<const TokenId> tokens) {
  for (size_t at = earlier_.size(); at < tokens.size(); at++) {
    // First: with an entry for this token, but without its place, the token would stand before itself.
    if (earlier_.size() == earlier_.capacity()) earlier_.reserve(std::max<size_t>(256, 2 * earlier_.size()));
    int32_t before = -1;
    if (at + 1 >= static_cast<size_t>(kLeastMatch)) {
      const auto [entry, fresh] = latest_.try_emplace(
          HashOf(tokens.subspan(at + 1 - static_cast<size_t>(kLeastMatch), static_cast<size_t>(kLeastMatch))), -1);
      before = entry->second;
      entry->second = static_cast<int32_t>(at);
    }
    earlier_.push_back(before);
  }
}

int64_t Lookup::Draft(std::span<const TokenId> tokens, int64_t n, std::vector<TokenId>& draft) {
  draft.clear();
  Read(tokens);
  if (tokens.empty() || n <= 0) return 0;
  const int64_t last = static_cast<int64_t>(tokens.size()) - 1;
  int64_t best = 0, best_at = -1;
  int32_t at = earlier_[static_cast<size_t>(last)];
  for (int64_t place = 0; at >= 0 && place < kMostPlaces && best < kMostMatch; place++) {
    int64_t match = 0;
    while (match < kMostMatch && match <= at &&
           tokens[static_cast<size_t>(at - match)] == tokens[static_cast<size_t>(last - match)])
      match++;
    if (match > best) best = match, best_at = at;
    at = earlier_[static_cast<size_t>(at)];
  }
  if (best < kLeastMatch) return 0;  // a collision of hashes
  for (int64_t i = 1; i <= n; i++) {
    const int64_t from = best_at + i;  // beyond the end the draft itself goes on: a text that repeats
    draft.push_back(from <= last ? tokens[static_cast<size_t>(from)] : draft[static_cast<size_t>(from - last - 1)]);
  }
  return best;
}

}  // namespace ridge::engine
