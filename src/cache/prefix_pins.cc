// What the cache keeps by promise, and what it drops because nobody comes back to it.
#include <algorithm>
#include <new>
#include <utility>

#include "cache/prefix_node.h"

namespace ridge::cache {
namespace {

bool BeginsWith(std::span<const TokenId> all, std::span<const TokenId> beginning) {
  return all.size() >= beginning.size() && std::equal(beginning.begin(), beginning.end(), all.begin());
}

}  // namespace

void PrefixCache::Advance(int64_t now_ms) {
  now_ms_ = std::max(now_ms_, now_ms);
  while (!pins_.empty() && pins_.begin()->first <= now_ms_) Unpin(pins_.begin()->second);
}

std::optional<int64_t> PrefixCache::next_pin_end_ms() const {
  return pins_.empty() ? std::nullopt : std::optional(pins_.begin()->first);
}

void PrefixCache::Unpin(Node* node) {
  if (node->pinned_until_ms == 0) return;
  pins_.erase({node->pinned_until_ms, node});
  node->pinned_until_ms = 0;
  pool_->SetPinned(node->page, false);
  for (Node::State& state : node->states) {
    if (state.key.first != kPinnedState) continue;
    auto kept = states_.extract(state.key);
    kept.key() = state.key = {kPlainState, state.key.second};
    states_.insert(std::move(kept));
  }
}

// A page that holds all that another holds takes its pin over too; its checkpoints have moved before.
void PrefixCache::MovePin(Node* from, Node* to) {
  if (from->pinned_until_ms == 0) return;
  auto pin = pins_.extract(std::pair(from->pinned_until_ms, from));  // kept for the other: this must not need memory
  pin.value().second = to;
  pins_.insert(std::move(pin));
  to->pinned_until_ms = std::exchange(from->pinned_until_ms, 0);
  pool_->SetPinned(from->page, false);
  pool_->SetPinned(to->page, true);
}

void PrefixCache::PinState(Node* node, int32_t tokens) {
  int64_t pinned = 0;
  for (auto at = states_.rbegin(); at != states_.rend() && at->first.first == kPinnedState; ++at) pinned++;
  if (2 * (pinned + 1) > max_states_) return;
  Node::State& state = *std::ranges::find(node->states, tokens, &Node::State::tokens);
  if (state.key.first == kPinnedState) return;
  auto kept = states_.extract(state.key);
  kept.key() = state.key = {kPinnedState, state.key.second};
  states_.insert(std::move(kept));
}

int64_t PrefixCache::Pin(const Cursor& cursor, std::span<const TokenId> tokens, int64_t until_ms) {
  if (cursor.root == nullptr || until_ms <= now_ms_) return 0;
  Node* node = cursor.root;
  Node* with_state = nullptr;
  int32_t state_tokens = 0;
  int64_t pinned_tokens = 0;
  for (int64_t page = 0; page * page_tokens_ < static_cast<int64_t>(tokens.size()); page++) {
    const std::span<const TokenId> wanted = PageOf(tokens, page);
    const auto at = node->children.lower_bound(wanted);  // a page may hold more than is wanted
    if (at == node->children.end() || !BeginsWith(at->first, wanted)) break;
    node = at->second.get();
    const bool pinned = node->pinned_until_ms > 0;
    if (!pinned && static_cast<int64_t>(pins_.size()) >= max_pinned_) break;
    if (node->pinned_until_ms < until_ms) {
      try {
        pins_.emplace(until_ms, node);
      } catch (const std::bad_alloc&) {
        break;  // what is pinned up to here is told
      }
      if (pinned) {
        pins_.erase({node->pinned_until_ms, node});
      } else {
        pool_->SetPinned(node->page, true);
      }
      node->pinned_until_ms = until_ms;
    }
    pinned_tokens += static_cast<int64_t>(wanted.size());
    for (const Node::State& state : node->states) {
      if (state.tokens > static_cast<int32_t>(wanted.size())) continue;
      if (with_state == node && state.tokens < state_tokens) continue;
      with_state = node;
      state_tokens = state.tokens;
    }
  }
  if (with_state != nullptr) PinState(with_state, state_tokens);
  return pinned_tokens;
}

int64_t PrefixCache::DropBranch(Node* top) {
  std::vector<Node*> down = {top};  // parents before children
  for (size_t i = 0; i < down.size(); i++) {
    for (const auto& [tokens, child] : down[i]->children) down.push_back(child.get());
  }
  int64_t dropped = 0;
  for (size_t i = down.size(); i-- > 0;) {
    Node* node = down[i];
    if (!node->children.empty() || node->pinned_until_ms > 0 || pool_->references(node->page) > 1) continue;
    RememberGone(node->hash, MissReason::kThought);
    RemoveLeaf(node);
    dropped++;
  }
  return dropped;
}

int64_t PrefixCache::DropThoughts(const Cursor& cursor, std::span<const TokenId> tokens, TokenId thinking) {
  if (cursor.root == nullptr) return 0;
  Node* node = cursor.root;
  int64_t page = 0;
  for (; (page + 1) * page_tokens_ <= static_cast<int64_t>(tokens.size()); page++) {
    const auto at = node->children.find(PageOf(tokens, page));
    if (at == node->children.end()) break;
    node = at->second.get();
  }
  if (page * page_tokens_ >= static_cast<int64_t>(tokens.size())) return 0;
  const std::span<const TokenId> wanted = PageOf(tokens, page);
  int64_t dropped = 0;
  for (size_t common = 0; common < wanted.size() && !node->children.empty(); common++) {
    if (wanted[common] == thinking) continue;
    Tokens branch(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(common));
    branch.push_back(thinking);
    std::vector<Node*> dead;
    for (auto at = node->children.lower_bound(branch); at != node->children.end() && BeginsWith(at->first, branch);
         ++at) {
      dead.push_back(at->second.get());
    }
    for (Node* top : dead) dropped += DropBranch(top);
  }
  dropped_pages_ += static_cast<uint64_t>(dropped);
  return dropped;
}

Status PrefixCache::CheckPins(std::span<const Node* const> nodes) const {
  const auto broken = [](const char* what) -> Status {
    return Fail(Code::kInternal, "the pins of the prefix cache are inconsistent").Found(what);
  };
  size_t pins = 0, states = 0;
  for (const Node* node : nodes) {
    for (const Node::State& state : node->states) {
      if (state.key.first != kPinnedState) continue;
      states++;
      if (node->pinned_until_ms == 0) return broken("a pinned checkpoint of a page that is not");
    }
    if (node->pinned_until_ms == 0) continue;
    pins++;
    if (!pins_.contains({node->pinned_until_ms, const_cast<Node*>(node)})) return broken("a pin that never ends");
    if (node->parent->parent != nullptr && node->parent->pinned_until_ms < node->pinned_until_ms)
      return broken("a page that is pinned longer than the one before it");
  }
  if (pins != pins_.size()) return broken("another number than counted");
  if (pins_.size() > static_cast<size_t>(std::max<int64_t>(max_pinned_, 0)) ||
      2 * states > static_cast<size_t>(std::max<int64_t>(max_states_, 0)))
    return broken("more than the limit");
  return {};
}

}  // namespace ridge::cache
