// A node of the prefix cache's tree; for prefix_cache.cc and prefix_states.cc only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/prefix_cache.h"

namespace ridge::cache {

struct PrefixCache::Node {
  // A checkpoint: the state of recurrent layers after `tokens` tokens of this page.
  struct State {
    int32_t tokens = 0;
    int32_t slot = kNoSlot;
    StateKey key;  // in states_
    int uses = 0;  // by those who went on from here: 2 and more are alike
    StateKind kind = StateKind::kRunEnd;
  };

  Node* parent = nullptr;   // null: a root
  Children::iterator self;  // in the parent's children; not of a root
  PageId page = kNoPage;
  uint64_t last_use = 0;
  int64_t pinned_until_ms = 0;  // 0: not pinned. Never later than the parent's
  uint64_t hash = 0;            // of all tokens up to here, and of the root's name
  std::string name;             // of a root
  int64_t entered = 0;          // of a root: cursors
  Children children;            // no key is the beginning of another; a key of less than a page is a leaf
  std::vector<State> states;
};

}  // namespace ridge::cache
