// Checkpoints of recurrent state in the prefix cache: which there are, which is the deepest on a path, and which goes first.
#include <algorithm>
#include <new>
#include <utility>

#include "cache/prefix_node.h"

namespace ridge::cache {
namespace {

constexpr int kNeighbours = 64;  // pages with a common beginning that are looked at in each direction

size_t CommonPrefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first -
                             a.begin());
}

}  // namespace

void PrefixCache::EnableStates(SlotPool* slots, int64_t max_states) {
  RIDGE_CHECK(slots != nullptr && max_states >= 0 && states_.empty());
  slots_ = slots;
  max_states_ = max_states;
}

bool PrefixCache::RoomForState() {
  if (static_cast<int64_t>(states_.size()) + reserved_states_ < max_states_) return true;
  if (states_.empty() || states_.begin()->first.first == kPinnedState) return false;
  const auto [node, tokens] = states_.begin()->second;
  const auto at = std::ranges::find(node->states, tokens, &Node::State::tokens);
  slots_->Give(at->slot);
  node->states.erase(at);
  states_.erase(states_.begin());
  return true;
}

std::optional<int32_t> PrefixCache::ReserveState() {
  if (!RoomForState()) return std::nullopt;
  reserved_states_++;
  return slots_->Take();
}

void PrefixCache::DropState(int32_t slot) {
  reserved_states_--;
  slots_->Give(slot);
}

// The node on the cursor's path, or behind its end, whose page holds the last of these tokens.
PrefixCache::Node* PrefixCache::Holder(const Cursor& cursor, std::span<const TokenId> tokens) const {
  const int64_t n = static_cast<int64_t>(tokens.size()), full = n / page_tokens_;
  if (cursor.root == nullptr || n == 0 || full > cursor.pages) return nullptr;
  Node* node = cursor.node;
  for (int64_t depth = cursor.pages; depth > full; depth--) node = node->parent;
  if (n % page_tokens_ == 0) return node;
  const std::span<const TokenId> wanted = PageOf(tokens, full);
  const auto at = node->children.lower_bound(wanted);
  if (at == node->children.end() || CommonPrefix(at->first, wanted) < wanted.size()) return nullptr;
  return at->second.get();
}

bool PrefixCache::KeepState(const Cursor& cursor, std::span<const TokenId> tokens, int32_t slot, StateKind kind) {
  const int32_t in_page = static_cast<int32_t>((static_cast<int64_t>(tokens.size()) - 1) % page_tokens_) + 1;
  Node* node = Holder(cursor, tokens);
  if (node != nullptr) {
    if (const auto at = std::ranges::find(node->states, in_page, &Node::State::tokens); at != node->states.end()) {
      slots_->Give(slot);
      if (kind == StateKind::kRunEnd) {  // it came no further than those from which it went on
        at->uses = 0;
        at->kind = kind;
        at->key = Ranked(at->key, RankOf(kind));
      }
      return true;
    }
  }
  if (node == nullptr || !RoomForState()) {
    slots_->Give(slot);
    return false;
  }
  const StateKey key = {RankOf(kind), ++clock_};
  try {
    node->states.reserve(node->states.size() + 1);
    states_.emplace(key, std::pair(node, in_page));
  } catch (const std::bad_alloc&) {
    slots_->Give(slot);
    return false;
  }
  // Where some have parted the first one who comes will not be the last.
  node->states.push_back(
      {.tokens = in_page, .slot = slot, .key = key, .uses = kind == StateKind::kParting, .kind = kind});
  return true;
}

bool PrefixCache::KeepReservedState(const Cursor& cursor, std::span<const TokenId> tokens, int32_t slot,
                                    StateKind kind) {
  reserved_states_--;
  return KeepState(cursor, tokens, slot, kind);
}

// Ends of one kind are minor where the next turns go on from those of the other kind; until that is known, those of prompts.
int PrefixCache::RankOf(StateKind kind) const {
  constexpr uint32_t kRarely = 4;
  const bool minor = (kind == StateKind::kRunEnd && run_ends_used_ * kRarely < prompt_ends_used_) ||
                     (kind == StateKind::kPromptEnd && prompt_ends_used_ * kRarely <= run_ends_used_);
  return minor ? kMinorState : kPlainState;
}

// Used now. Pinned ones stay so. Needs no memory.
PrefixCache::StateKey PrefixCache::Ranked(StateKey key, int rank) {
  auto used = states_.extract(key);
  used.key() = {key.first == kPinnedState ? kPinnedState : rank, ++clock_};
  key = used.key();
  states_.insert(std::move(used));
  return key;
}

void PrefixCache::UseState(const StateMatch& match) {
  const auto at = states_.find(match.key);
  if (match.tokens == 0 || at == states_.end()) return;
  const auto [node, tokens] = at->second;
  Node::State& state = *std::ranges::find(node->states, tokens, &Node::State::tokens);
  state.uses = std::min(state.uses + 1, 2);
  state.key = Ranked(state.key, state.uses > 1 ? kPlainState : kGoneOnState);
  if (state.uses > 1 || state.kind == StateKind::kParting) return;
  constexpr uint32_t kRemembered = 64;
  (state.kind == StateKind::kRunEnd ? run_ends_used_ : prompt_ends_used_)++;
  if (run_ends_used_ + prompt_ends_used_ < kRemembered) return;
  run_ends_used_ /= 2;
  prompt_ends_used_ /= 2;
}

PrefixCache::StateMatch PrefixCache::FindState(const Cursor& cursor, std::span<const TokenId> tokens,
                                               int64_t limit) const {
  tokens = tokens.first(static_cast<size_t>(limit));
  StateMatch match;
  Node* node = cursor.root;
  int64_t pages = 0;
  const auto look = [&](Node* at, int64_t common) {  // of the page behind `pages`
    for (const Node::State& state : at->states) {
      if (state.tokens > common || pages * page_tokens_ + state.tokens <= match.tokens) continue;
      match.tokens = pages * page_tokens_ + state.tokens;
      match.slot = state.slot;
      match.page = at->page;
      match.key = state.key;
    }
  };
  for (; (pages + 1) * page_tokens_ <= limit; pages++) {
    const auto at = node->children.find(PageOf(tokens, pages));
    if (at == node->children.end()) break;
    node = at->second.get();
    look(node, page_tokens_);
  }
  match.cached_tokens = pages * page_tokens_;
  // Behind the path, and if there is nothing beside it, in pages that leave it later than the deepest checkpoint so far. Pages with a common beginning
  // lie side by side, those with the longest nearest.
  for (Node* parent = node; parent != nullptr && pages >= match.tokens / page_tokens_;
       parent = parent->parent, pages--) {
    const int64_t before = match.tokens;
    const std::span<const TokenId> wanted = PageOf(tokens, pages);
    const auto visit = [&](Children::iterator at) {
      const int64_t common = static_cast<int64_t>(CommonPrefix(at->first, wanted));
      match.cached_tokens = std::max(match.cached_tokens, pages * page_tokens_ + common);
      if (common > 0) look(at->second.get(), common);
      return common > 0;
    };
    const auto middle = parent->children.lower_bound(wanted);
    auto up = middle, down = middle;
    for (int i = 0; i < kNeighbours && up != parent->children.end() && visit(up); i++) ++up;
    for (int i = 0; i < kNeighbours && down != parent->children.begin(); i++) {
      if (!visit(--down)) break;
    }
    if (match.tokens > before) break;
  }
  return match;
}

// A page that is given up takes its checkpoints along.
void PrefixCache::ForgetStates(Node* node) {
  for (const Node::State& state : node->states) {
    states_.erase(state.key);
    slots_->Give(state.slot);
  }
  node->states.clear();
}

// A page that holds all that another holds, and more, takes its place.
void PrefixCache::MoveStates(Node* from, Node* to) {
  try {
    to->states.reserve(to->states.size() + from->states.size());
  } catch (const std::bad_alloc&) {  // they go with their page
    return;
  }
  for (const Node::State& state : std::exchange(from->states, {})) {
    states_.at(state.key).first = to;
    to->states.push_back(state);
  }
}

std::vector<int32_t> PrefixCache::StateSlots() const {
  std::vector<int32_t> slots;
  for (const auto& [key, where] : states_)
    slots.push_back(std::ranges::find(where.first->states, where.second, &Node::State::tokens)->slot);
  return slots;
}

Status PrefixCache::CheckStates(std::span<const Node* const> nodes) const {
  const auto broken = [](const char* what) -> Status {
    return Fail(Code::kInternal, "the checkpoints of the prefix cache are inconsistent").Found(what);
  };
  size_t states = 0;
  for (const Node* node : nodes) {
    for (const Node::State& state : node->states) {
      states++;
      if (node->parent == nullptr) return broken("a checkpoint of no page");
      if (state.tokens < 1 || state.tokens > static_cast<int32_t>(node->self->first.size()))
        return broken("a checkpoint behind its page");
      const auto at = states_.find(state.key);
      if (at == states_.end() || at->second != std::pair(const_cast<Node*>(node), state.tokens))
        return broken("a checkpoint that cannot be given up");
    }
  }
  if (states != states_.size()) return broken("another number than counted");
  if (static_cast<int64_t>(states) + reserved_states_ > std::max<int64_t>(max_states_, 0) || reserved_states_ < 0)
    return broken("more than the limit");
  return {};
}

}  // namespace ridge::cache
