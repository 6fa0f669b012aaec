// PrefixCache: the pages of finished and running sequences, found again by the tokens they hold. A tree: each node is one page, and the path to it
// spells its tokens; pages at the end of a sequence may be filled in part.
//
//   PrefixCache::Cursor at = cache.Enter("salt");                      // a sequence goes along the tree ...
//   cache.Extend(at, tokens, tokens.size() - 1, table);                // ... takes over what is cached ...
//   cache.Insert(at, tokens, table);                                   // ... and leaves what it computed; then cache.Leave(at)
//
// Page contents are a function of the tokens before them (docs/numerics.md), so it makes no difference who computed a page: a sequence that computed
// one that is there already swaps its own for it. So whoever uses a page uses all pages before it, and pages that only the cache holds can always
// be given up from the leaves on.
// Guarantees: holds one reference per node, at most max_pages of them at every moment. Gives up the page whose path was used least recently, and
// never one that a sequence holds. Nothing is shared between roots. A call costs the pages it walks over, times the logarithm of the branches.
// Deterministic. Engine thread only; pool and cache outlive the tables and cursors.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "cache/page_pool.h"
#include "cache/page_table.h"
#include "cache/saved_tree.h"
#include "cache/slot_pool.h"

namespace ridge::cache {

// Why the next token of a sequence was not in the cache.
enum class MissReason {
  kNone,      // all that may be reused was
  kNew,       // what is cached ends here: these tokens were never seen
  kDiverged,  // other tokens follow here
  kEvicted,   // it was cached and had to make room
  kNoState,   // pages go on, but no checkpoint of the recurrent state does
  kThought,   // it was a dead thinking turn, and dropped
};
std::string_view Name(MissReason reason);  // "none", "new", "diverged", "evicted", "no-state", "thought"

class PrefixCache {
 public:
  struct Node;

  // Where a sequence stands: its first `pages` pages are those of the path to `node`. Copied freely; belongs to one Enter.
  struct Cursor {
    Node* root = nullptr;  // null: the sequence takes no part
    Node* node = nullptr;
    int64_t pages = 0;
  };

  using StateKey = std::pair<int, uint64_t>;                         // rank (the lowest goes first), last use
  enum class StateKind : uint8_t { kRunEnd, kPromptEnd, kParting };  // the latter: where some have parted

  struct Partial {
    PageId page = kNoPage;  // its first `tokens` tokens are the wanted ones: to be copied, never written
    int64_t tokens = 0;
  };

  // pool is borrowed. page_tokens >= 1, max_pages >= 0.
  PrefixCache(PagePool* pool, int32_t page_tokens, int64_t max_pages);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The beginning of a root; kept as long as someone has entered it or pages are in it.
  Cursor Enter(std::string_view root);
  // ephemeral: when the last one leaves, the pages of the root go too.
  void Leave(Cursor& cursor, bool ephemeral = false);

  // Takes over the cached pages that hold tokens[cursor.pages * page_tokens ...), up to token `limit`: the table holds them too. The table has
  // cursor.pages pages. Returns how many: fewer where there is no memory for more.
  int64_t Extend(Cursor& cursor, std::span<const TokenId> tokens, int64_t limit, PageTable& table);
  // The page that holds most of the tokens that follow the cursor, at most up to token `limit`.
  Partial FindPartial(const Cursor& cursor, std::span<const TokenId> tokens, int64_t limit) const;
  // Why no more than `found` tokens of tokens[0, limit) were there, found counted from the cursor's page on. gone_ms: since when, of what was given up.
  MissReason Explain(const Cursor& cursor, std::span<const TokenId> tokens, int64_t found, int64_t limit,
                     int64_t* gone_ms = nullptr) const;

  // Keeps the full pages of the table up to `tokens`, all of which are computed. False: the limit of pages allows no more now.
  bool Insert(Cursor& cursor, std::span<const TokenId> tokens, PageTable& table);
  // Keeps also the page behind the cursor, of which tokens.size() - cursor.pages * page_tokens tokens are computed. The table may not write it again.
  bool InsertPartial(const Cursor& cursor, std::span<const TokenId> tokens, const PageTable& table);
  // The whole path was used now.
  void Touch(const Cursor& cursor);

  // Recurrent models: pages say what was computed, but only a checkpoint of the state lets a sequence go on from there. A checkpoint is a slot, kept
  // at a token of a page and given up with it, or when there are too many. First goes one from which a conversation has gone on: that one has a later
  // checkpoint; until a second request goes on from it. Then ends of runs or ends of prompts, whichever the next turns hardly ever go on from (it depends
  // on the template, and on whether answers are tokenized again as they were). Then those used least recently.
  // slots is borrowed and has max_states slots for this.
  void EnableStates(SlotPool* slots, int64_t max_states);
  struct StateMatch {
    int64_t tokens = 0;         // of the deepest checkpoint on the path; 0: there is none
    int32_t slot = kNoSlot;     // it
    PageId page = kNoPage;      // that holds its last token
    int64_t cached_tokens = 0;  // how far the pages go
    StateKey key = {};          // for UseState
  };
  // On the path of tokens[0, limit) from the cursor's root.
  StateMatch FindState(const Cursor& cursor, std::span<const TokenId> tokens, int64_t limit) const;
  // Somebody goes on from what was found just now.
  void UseState(const StateMatch& match);
  // A slot for a checkpoint to come, or nullopt: there is no room. It ends with KeepReservedState or DropState.
  std::optional<int32_t> ReserveState();
  void DropState(int32_t slot);
  bool KeepReservedState(const Cursor& cursor, std::span<const TokenId> tokens, int32_t slot, StateKind kind);
  // Keeps `slot`, the state after all of `tokens`, whose pages are the cursor's or behind it in the cache. The slot is the cache's afterwards, or free: false
  // where its page or room for it is missing.
  bool KeepState(const Cursor& cursor, std::span<const TokenId> tokens, int32_t slot,
                 StateKind kind = StateKind::kRunEnd);
  int64_t states() const { return static_cast<int64_t>(states_.size()); }
  std::vector<int32_t> StateSlots() const;  // of all checkpoints

  // The time, which never goes back; what was pinned until then no longer is.
  void Advance(int64_t now_ms);
  // Pages that pins may hold in all. Without it nothing is pinned.
  void EnablePins(int64_t max_pinned_pages) { max_pinned_ = max_pinned_pages; }
  // Of these tokens' pages, from the first on, what is cached and fits the limit is not given up until then, whoever needs room. Returns how many
  // tokens that are. Of a recurrent model the deepest checkpoint on the way too, as long as pins hold no more than half of all.
  int64_t Pin(const Cursor& cursor, std::span<const TokenId> tokens, int64_t until_ms);
  int64_t pinned_pages() const { return static_cast<int64_t>(pins_.size()); }
  int64_t max_pinned_pages() const { return max_pinned_; }
  std::optional<int64_t> next_pin_end_ms() const;

  // Where the tokens leave the tree, drops what goes on there with `thinking`, unless they do too: a conversation that goes on without the thoughts of
  // an earlier turn never comes back to them, nor to what followed. Pages in use stay. Returns how many went.
  int64_t DropThoughts(const Cursor& cursor, std::span<const TokenId> tokens, TokenId thinking);

  // All that is in the cache, but for the roots that `leave_out` names.
  SavedTree Export(const std::function<bool(std::string_view root)>& leave_out) const;
  // Where each page and checkpoint of a tree now lives; kNoPage and kNoSlot: there was no room for it, those used least recently first.
  struct Imported {
    std::vector<PageId> pages;   // by node
    std::vector<int32_t> slots;  // by checkpoint
  };
  // Takes a tree over, with pages and slots that are free and whose contents are the caller's to fill. Into an empty cache, while nobody has
  // entered. Errors: kInvalidData for what is no tree of this cache; then nothing is kept.
  Result<Imported> Import(const SavedTree& tree);
  // Gives up everything. Nobody may have entered.
  void Clear();

  // Gives up at most n pages that no sequence holds, the least recently used first. Returns how many; less than n: there are no more.
  int64_t Evict(int64_t n);

  int64_t pages() const { return pages_; }
  int64_t max_pages() const { return max_pages_; }
  uint64_t evicted_pages() const { return evicted_pages_; }
  uint64_t refused_pages() const { return refused_pages_; }  // not kept because of the limit
  uint64_t dropped_pages() const { return dropped_pages_; }  // of dead thinking turns
  std::vector<PageId> AllPages() const;                      // one per node

  // Proves the guarantees in time linear in the nodes. Errors: kInternal.
  Status CheckIntegrity() const;

 private:
  using Tokens = std::vector<TokenId>;
  struct Less {
    using is_transparent = void;
    bool operator()(std::span<const TokenId> a, std::span<const TokenId> b) const;
  };
  using Children = std::map<Tokens, std::unique_ptr<Node>, Less>;

  static constexpr int kGoneOnState = 0, kMinorState = 1, kPlainState = 2, kPinnedState = 3;
  int RankOf(StateKind kind) const;
  bool RoomForState();
  StateKey Ranked(StateKey key, int rank);
  void PinState(Node* node, int32_t tokens);
  void Unpin(Node* node);
  void MovePin(Node* from, Node* to);
  Status CheckPins(std::span<const Node* const> nodes) const;
  int64_t DropBranch(Node* top);
  Node* Holder(const Cursor& cursor, std::span<const TokenId> tokens) const;
  void ForgetStates(Node* node);
  void MoveStates(Node* from, Node* to);
  Status CheckStates(std::span<const Node* const> nodes) const;

  bool MakeRoom();
  Node* AddChild(Node* parent, std::span<const TokenId> tokens, PageId page);
  void RemoveLeaf(Node* leaf);
  void DropPrefixOf(Node* node);
  void Stamp(Node* node);
  void ForgetRoot(Node* root);
  void RememberGone(uint64_t hash, MissReason why = MissReason::kEvicted);
  static uint64_t RootHash(std::string_view name);
  static uint64_t HashOf(uint64_t before, std::span<const TokenId> tokens);
  Status ImportNodes(const SavedTree& tree, const std::vector<bool>& wanted, Imported& imported,
                     std::vector<Node*>& nodes);
  Status ImportStates(const SavedTree& tree, const std::vector<Node*>& nodes, Imported& imported);
  std::span<const TokenId> PageOf(std::span<const TokenId> tokens, int64_t page) const;

  PagePool* pool_;
  int32_t page_tokens_;
  int64_t max_pages_;
  std::map<std::string, std::unique_ptr<Node>, std::less<>> roots_;
  std::map<uint64_t, Node*> leaves_;  // by last use, which is unique
  uint64_t clock_ = 0;
  int64_t pages_ = 0;
  uint64_t evicted_pages_ = 0, refused_pages_ = 0;
  // Path hashes of the pages given up latest, to explain misses.
  std::deque<uint64_t> ghost_order_;
  struct Gone {
    MissReason why = MissReason::kEvicted;
    int64_t at_ms = 0;
  };
  std::unordered_map<uint64_t, Gone> ghosts_;
  int64_t now_ms_ = 0, max_pinned_ = 0;
  std::set<std::pair<int64_t, Node*>> pins_;  // by their end
  uint64_t dropped_pages_ = 0;
  SlotPool* slots_ = nullptr;
  int64_t max_states_ = 0, reserved_states_ = 0;
  uint32_t run_ends_used_ = 0, prompt_ends_used_ = 0;     // lately
  std::map<StateKey, std::pair<Node*, int32_t>> states_;  // the first goes first
};

}  // namespace ridge::cache
