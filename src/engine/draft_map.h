// Which KV of a draft model lies in the pages. The draft model's store has the same page ids as the target's, so page tables, sharing, copies,
// forks and preemption are the target's; what differs is how far the draft model has computed, and that is told here.
//
//   DraftMap map(n_pages, page_tokens);
//   int64_t known = map.Known(sequence);          // the draft model's KV of tokens[0, known) is there
//   map.Write(pages, position, hash);             // and now that of one token more
//
// Each slot of a page remembers a hash of all tokens up to its own, so a page that was given to others, overwritten, copied or taken over from the
// cache tells by itself what it holds. Nobody needs to tell the map what became of a page.
// Guarantees: no device, deterministic. A collision of hashes costs a draft, never an answer. Engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/page_table.h"
#include "engine/sequence.h"

namespace ridge::engine {

class DraftMap {
 public:
  DraftMap(int64_t pages, int64_t page_tokens);

  // Page `to` becomes what page `from` is.
  void Copy(cache::PageId from, cache::PageId to);
  // Tokens of the sequence, from the first on, that the draft model has computed; at most all but the last. Brings sequence.prefix_hashes up to date.
  int64_t Known(Sequence& sequence) const;
  // The slot at `position` holds the token whose prefix has this hash; what followed in its page is forgotten.
  void Write(std::span<const cache::PageId> pages, int64_t position, uint64_t hash);

  // Of a prefix with one token more; kNoTokens: of none.
  static constexpr uint64_t kNoTokens = 1469598103934665603u;
  static uint64_t Extend(uint64_t hash, TokenId token) {
    hash = (hash ^ static_cast<uint64_t>(token)) * 0x9E3779B97F4A7C15u;
    return (hash ^ (hash >> 29)) | 1;  // 0 is no token
  }

 private:
  int64_t page_tokens_;
  // [pages, page_tokens], 0: nothing. Slots are written in order and a write clears those behind it, so the last slot vouches for its page.
  std::vector<uint64_t> slots_;
};

}  // namespace ridge::engine
