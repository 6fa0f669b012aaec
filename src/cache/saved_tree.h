// The prefix cache's tree as plain values: what a file can hold, and another process take over.
//
//   const SavedTree tree = cache.Export([](std::string_view) { return false; });   // then the contents of tree.nodes[i].page
//   RIDGE_ASSIGN_OR_RETURN(PrefixCache::Imported now, other.Import(tree));          // node i lives in now.pages[i]
//
// Guarantees: parents come before their children.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/token_id.h"
#include "cache/page_pool.h"
#include "cache/slot_pool.h"

namespace ridge::cache {

struct SavedTree {
  struct Node {
    int32_t parent = -1;  // an earlier node; -1: the root itself
    uint32_t root = 0;    // in roots
    std::vector<TokenId> tokens;
    uint64_t last_use = 0;  // the larger the later, of nodes and states together
    PageId page = kNoPage;  // where its contents are, in the cache that was exported
  };
  struct State {
    uint32_t node = 0;   // whose page holds it
    int32_t tokens = 0;  // of that page
    bool minor = false;
    uint64_t last_use = 0;
    int32_t slot = kNoSlot;
  };
  std::vector<std::string> roots;
  std::vector<Node> nodes;
  std::vector<State> states;
};

}  // namespace ridge::cache
