// One request inside the engine. It is one unique_ptr that moves inbox -> waiting -> running -> done.
//
//   auto sequence = std::make_unique<Sequence>();
//   sequence->tokens = prompt;   sequence->prompt_tokens = prompt.size();
//
// Guarantees: computed_tokens <= tokens.size(), and the KV of tokens[0, computed_tokens) lies in `pages`. Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/token_id.h"
#include "cache/page_table.h"
#include "cache/prefix_cache.h"
#include "engine/lookup.h"
#include "engine/request.h"
#include "engine/speculation.h"

namespace ridge::engine {

struct Work;  // the engine's own part: sampler, outbox, times

// A checkpoint that a running sequence will leave, or has left and not yet handed to the cache.
struct StateMark {
  int64_t token = 0;  // computed up to here
  int32_t slot = cache::kNoSlot;
  bool minor = false;
};

struct Sequence {
  Sequence();
  ~Sequence();

  RequestId id = 0;
  std::vector<TokenId> tokens;  // the prompt, then what was generated
  int64_t prompt_tokens = 0;
  int64_t computed_tokens = 0;
  int64_t max_tokens = -1;  // generated at most; -1: no limit of its own
  std::vector<TokenId> stop_tokens;
  int32_t priority = 0;
  std::string tenant;
  int64_t preemptions = 0;
  std::optional<std::string> cache_root;  // sequences share pages with those of the same root; none: with nobody
  bool ephemeral_root = false;            // the root's pages go with its last sequence
  std::optional<cache::PageTable> pages;  // set while the scheduler has the sequence
  cache::PrefixCache::Cursor cursor;      // the same
  int32_t slot = cache::kNoSlot;          // of recurrent state, while it runs
  // Of recurrent models, while it runs.
  bool resumed = false;  // has taken over what is cached
  std::vector<StateMark> marks;
  RequestId waits_for = 0;  // who leaves a checkpoint at waits_token; 0: nobody
  int64_t waits_token = 0;
  std::optional<CacheMiss> miss;  // set when it begins
  int64_t pin_until_ms = 0;       // see Scheduler::Advance; set before it is removed. 0: nothing is pinned
  int64_t pinned_tokens = 0;      // set by its end
  bool scores = false;            // log-probabilities of the prompt are asked for
  int64_t scored_tokens = 1;      // of the prompt, whose log-probability is known; the first has none
  bool looks_up = false;          // drafts from its own text
  bool asks_model = false;        // drafts from the draft model
  Lookup lookup;                  // when it looks up
  std::vector<TokenId> drafts;    // that the present step verifies; not part of tokens
  bool model_drafts = false;      // they are the draft model's
  // Of a recurrent model: slots with the state after the step's first 1, 2, ... tokens, one for each draft; and where the step began.
  std::vector<int32_t> draft_slots;
  int64_t draft_begin = 0;
  int64_t draft_match = 0;
  DraftRecord draft_record, model_record;
  double model_odds = 0;                // of the draft model's next token, where drafting by it paid lately
  std::vector<uint64_t> prefix_hashes;  // the draft model's (draft_map.h)
  std::unique_ptr<Work> work;           // not known to the scheduler; null in its tests

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t generated() const { return length() - prompt_tokens; }
  int64_t pending() const { return length() - computed_tokens; }
  // Rows of logits are still to come of tokens that the cache may have: so nothing is taken from it.
  bool scoring() const { return scores && scored_tokens < prompt_tokens; }
  bool decoding() const { return computed_tokens > 0 && pending() == 1; }
};

}  // namespace ridge::engine
