#include "cache/prefix_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "cache/prefix_node.h"

namespace ridge::cache {
namespace {

constexpr size_t kGhosts = 1 << 14;

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

size_t CommonPrefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t n = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first -
                             a.begin());
}

}  // namespace

std::string_view Name(MissReason reason) {
  switch (reason) {
    case MissReason::kNone: return "none";
    case MissReason::kNew: return "new";
    case MissReason::kDiverged: return "diverged";
    case MissReason::kEvicted: return "evicted";
    case MissReason::kNoState: return "no-state";
    case MissReason::kThought: return "thought";
  }
  return "?";
}

bool PrefixCache::Less::operator()(std::span<const TokenId> a, std::span<const TokenId> b) const {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

PrefixCache::PrefixCache(PagePool* pool, int32_t page_tokens, int64_t max_pages)
    : pool_(pool), page_tokens_(page_tokens), max_pages_(max_pages) {
  RIDGE_CHECK(pool != nullptr && page_tokens >= 1 && max_pages >= 0);
}

PrefixCache::~PrefixCache() { Clear(); }

// Leaf by leaf: a tree as deep as a context is long must not be destroyed by recursion.
void PrefixCache::Clear() {
  while (!leaves_.empty()) RemoveLeaf(leaves_.begin()->second);
}

PrefixCache::Cursor PrefixCache::Enter(std::string_view root) {
  auto at = roots_.find(root);
  if (at == roots_.end()) {
    auto node = std::make_unique<Node>();
    node->name = std::string(root);
    node->hash = RootHash(root);
    at = roots_.emplace(node->name, std::move(node)).first;
  }
  at->second->entered++;
  return {at->second.get(), at->second.get(), 0};
}

void PrefixCache::Leave(Cursor& cursor, bool ephemeral) {
  Node* root = std::exchange(cursor, {}).root;
  if (root == nullptr || --root->entered > 0) return;
  if (ephemeral) {
    root->entered = 1;                                                   // stays until the loop is done
    for (Node* node = root; node != root || !root->children.empty();) {  // leaf by leaf: this must not need memory
      if (!node->children.empty()) {
        node = node->children.begin()->second.get();
        continue;
      }
      Node* parent = node->parent;
      RemoveLeaf(node);
      node = parent;
    }
    root->entered = 0;
  }
  ForgetRoot(root);
}

void PrefixCache::ForgetRoot(Node* root) {
  if (root->entered == 0 && root->children.empty()) roots_.erase(roots_.find(root->name));
}

std::span<const TokenId> PrefixCache::PageOf(std::span<const TokenId> tokens, int64_t page) const {
  const size_t begin = static_cast<size_t>(page * page_tokens_);
  return tokens.subspan(begin, std::min(static_cast<size_t>(page_tokens_), tokens.size() - begin));
}

int64_t PrefixCache::Extend(Cursor& cursor, std::span<const TokenId> tokens, int64_t limit, PageTable& table) {
  RIDGE_CHECK(static_cast<int64_t>(table.pages().size()) == cursor.pages);
  int64_t taken = 0;
  for (; (cursor.pages + 1) * page_tokens_ <= limit; taken++) {
    const auto at = cursor.node->children.find(PageOf(tokens, cursor.pages));
    if (at == cursor.node->children.end()) break;
    try {
      table.AdoptNext(at->second->page);
    } catch (const std::bad_alloc&) {
      break;
    }
    cursor.node = at->second.get();
    cursor.pages++;
    Stamp(cursor.node);
  }
  return taken;
}

PrefixCache::Partial PrefixCache::FindPartial(const Cursor& cursor, std::span<const TokenId> tokens,
                                              int64_t limit) const {
  tokens = tokens.first(static_cast<size_t>(limit));
  if (static_cast<int64_t>(tokens.size()) <= cursor.pages * page_tokens_) return {};
  const std::span<const TokenId> wanted = PageOf(tokens, cursor.pages);
  const Children& children = cursor.node->children;
  Partial best;
  // In order of tokens the longest common beginning is with a neighbour.
  auto at = children.lower_bound(wanted);
  for (int i = 0; i < 2; i++) {
    if (at != children.end()) {
      const int64_t common = static_cast<int64_t>(CommonPrefix(at->first, wanted));
      if (common > best.tokens) best = {at->second->page, common};
    }
    if (at == children.begin()) break;
    --at;
  }
  return best;
}

MissReason PrefixCache::Explain(const Cursor& cursor, std::span<const TokenId> tokens, int64_t found, int64_t limit,
                                int64_t* gone_ms) const {
  tokens = tokens.first(static_cast<size_t>(limit));
  const int64_t begin = cursor.pages * page_tokens_;
  if (begin + found >= limit) return MissReason::kNone;
  const std::span<const TokenId> wanted = PageOf(tokens, cursor.pages);
  uint64_t hash = cursor.node->hash;
  for (size_t i = 0; i < wanted.size(); i++) {
    hash = Mix(hash, static_cast<uint64_t>(wanted[i]));
    if (static_cast<int64_t>(i) < found) continue;
    const auto gone = ghosts_.find(hash);
    if (gone == ghosts_.end()) continue;
    if (gone_ms != nullptr) *gone_ms = now_ms_ - gone->second.at_ms;
    return gone->second.why;
  }
  // Does anything that begins with the tokens found go on?
  const auto at = cursor.node->children.lower_bound(wanted.first(static_cast<size_t>(found)));
  if (at == cursor.node->children.end()) return MissReason::kNew;
  const bool same = CommonPrefix(at->first, wanted) >= static_cast<size_t>(found);
  return same && at->first.size() > static_cast<size_t>(found) ? MissReason::kDiverged : MissReason::kNew;
}

void PrefixCache::Stamp(Node* node) {
  if (node->children.empty()) {
    auto leaf = leaves_.extract(node->last_use);
    leaf.key() = clock_ + 1;
    leaves_.insert(std::move(leaf));
  }
  node->last_use = ++clock_;
}

void PrefixCache::Touch(const Cursor& cursor) {
  for (Node* node = cursor.node; node != nullptr && node->parent != nullptr; node = node->parent) Stamp(node);
}

bool PrefixCache::MakeRoom() {
  if (pages_ < max_pages_ || Evict(1) == 1) return true;
  refused_pages_++;
  return false;
}

PrefixCache::Node* PrefixCache::AddChild(Node* parent, std::span<const TokenId> tokens, PageId page) {
  auto node = std::make_unique<Node>();
  Node* raw = node.get();
  raw->parent = parent;
  raw->page = page;
  raw->hash = HashOf(parent->hash, tokens);
  const auto leaf = leaves_.emplace(clock_ + 1, raw).first;
  try {
    raw->self = parent->children.emplace(Tokens(tokens.begin(), tokens.end()), std::move(node)).first;
  } catch (const std::bad_alloc&) {
    leaves_.erase(leaf);
    throw;
  }
  raw->last_use = ++clock_;
  if (parent->parent != nullptr && parent->children.size() == 1) leaves_.erase(parent->last_use);
  pool_->AddRef(page);
  pool_->SetCached(page, true);
  pages_++;
  return raw;
}

void PrefixCache::RemoveLeaf(Node* leaf) {
  Unpin(leaf);
  ForgetStates(leaf);
  auto place = leaves_.extract(leaf->last_use);  // kept for the parent: giving up pages must not need memory
  pool_->SetCached(leaf->page, false);
  pool_->Release(leaf->page);
  pages_--;
  Node* parent = leaf->parent;
  parent->children.erase(leaf->self);
  if (!parent->children.empty()) return;
  if (parent->parent == nullptr) return ForgetRoot(parent);
  place.key() = parent->last_use;
  place.mapped() = parent;
  leaves_.insert(std::move(place));
}

// A page filled in part goes when one that begins the same way and holds more comes.
void PrefixCache::DropPrefixOf(Node* node) {
  if (node->self == node->parent->children.begin()) return;
  const auto before = std::prev(node->self);
  const Tokens &less = before->first, &more = node->self->first;
  if (less.size() >= more.size() || CommonPrefix(less, more) < less.size()) return;
  MoveStates(before->second.get(), node);
  MovePin(before->second.get(), node);
  RemoveLeaf(before->second.get());
}

bool PrefixCache::Insert(Cursor& cursor, std::span<const TokenId> tokens, PageTable& table) {
  while ((cursor.pages + 1) * page_tokens_ <= static_cast<int64_t>(tokens.size())) {
    const std::span<const TokenId> page_tokens = PageOf(tokens, cursor.pages);
    const size_t i = static_cast<size_t>(cursor.pages);
    const auto at = cursor.node->children.find(page_tokens);
    Node* next = nullptr;
    if (at != cursor.node->children.end()) {
      next = at->second.get();
      Stamp(next);
      if (table.pages()[i] != next->page) table.Replace(i, next->page);
    } else {
      if (!MakeRoom()) return false;
      next = AddChild(cursor.node, page_tokens, table.pages()[i]);
      DropPrefixOf(next);
    }
    cursor.node = next;
    cursor.pages++;
  }
  return true;
}

bool PrefixCache::InsertPartial(const Cursor& cursor, std::span<const TokenId> tokens, const PageTable& table) {
  const std::span<const TokenId> page_tokens = PageOf(tokens, cursor.pages);
  RIDGE_CHECK(page_tokens.size() < static_cast<size_t>(page_tokens_));
  if (page_tokens.empty()) return true;
  const auto covers = [&] {
    const auto at = cursor.node->children.lower_bound(page_tokens);
    return at != cursor.node->children.end() && CommonPrefix(at->first, page_tokens) == page_tokens.size();
  };
  if (covers()) return true;
  if (!MakeRoom()) return false;
  DropPrefixOf(AddChild(cursor.node, page_tokens, table.pages()[static_cast<size_t>(cursor.pages)]));
  return true;
}

uint64_t PrefixCache::RootHash(std::string_view name) { return Mix(0, std::hash<std::string_view>()(name)); }

uint64_t PrefixCache::HashOf(uint64_t before, std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) before = Mix(before, static_cast<uint64_t>(token));
  return before;
}

void PrefixCache::RememberGone(uint64_t hash, MissReason why) {
  try {
    if (ghosts_.insert_or_assign(hash, Gone{why, now_ms_}).second) ghost_order_.push_back(hash);
  } catch (const std::bad_alloc&) {  // one miss explains itself less well
  }
  if (ghost_order_.size() <= kGhosts) return;
  ghosts_.erase(ghost_order_.front());
  ghost_order_.pop_front();
}

int64_t PrefixCache::Evict(int64_t n) {
  int64_t freed = 0;
  const uint64_t begin = clock_;
  while (freed < n && !leaves_.empty() && leaves_.begin()->first <= begin) {
    Node* leaf = leaves_.begin()->second;
    if (pool_->references(leaf->page) > 1 || leaf->pinned_until_ms > 0) {
      Stamp(leaf);  // in use, or promised: as recent as can be
      continue;
    }
    RememberGone(leaf->hash);
    RemoveLeaf(leaf);
    evicted_pages_++;
    freed++;
  }
  return freed;
}

std::vector<PageId> PrefixCache::AllPages() const {
  std::vector<const Node*> nodes;
  for (const auto& [name, root] : roots_) nodes.push_back(root.get());
  std::vector<PageId> pages;
  for (size_t i = 0; i < nodes.size(); i++) {
    if (nodes[i]->parent != nullptr) pages.push_back(nodes[i]->page);
    for (const auto& [tokens, child] : nodes[i]->children) nodes.push_back(child.get());
  }
  return pages;
}

Status PrefixCache::CheckIntegrity() const {
  const auto broken = [](const char* what) -> Status {
    return Fail(Code::kInternal, "the prefix cache is inconsistent").Found(what);
  };
  std::vector<const Node*> nodes;
  for (const auto& [name, root] : roots_) {
    if (root->entered == 0 && root->children.empty()) return broken("a root without pages that nobody has entered");
    nodes.push_back(root.get());
  }
  int64_t pages = 0;
  size_t leaves = 0;
  for (size_t i = 0; i < nodes.size(); i++) {
    const Node* node = nodes[i];
    if (node->parent != nullptr) {
      pages++;
      const Tokens& tokens = node->self->first;
      if (tokens.empty() || tokens.size() > static_cast<size_t>(page_tokens_)) return broken("a page of a wrong size");
      if (!node->children.empty() && tokens.size() != static_cast<size_t>(page_tokens_))
        return broken("a page filled in part with pages behind it");
      if (pool_->references(node->page) < 1) return broken("a free page");
      // Of a sequence's pages either all up to one are the tree's, or none.
      if (node->parent->parent != nullptr && pool_->references(node->page) > 1 &&
          pool_->references(node->parent->page) == 1)
        return broken("a page in use behind one that is not");
      if (node->children.empty()) {
        leaves++;
        const auto at = leaves_.find(node->last_use);
        if (at == leaves_.end() || at->second != node) return broken("a leaf that cannot be given up");
      }
    }
    const Tokens* last = nullptr;
    for (const auto& [tokens, child] : node->children) {
      if (child->parent != node) return broken("a child of another parent");
      if (last != nullptr && CommonPrefix(*last, tokens) == last->size()) return broken("a page that another contains");
      last = &tokens;
      nodes.push_back(child.get());
    }
  }
  if (pages != pages_) return broken("another number of pages than counted");
  if (pages > max_pages_) return broken("more pages than the limit");
  if (leaves != leaves_.size()) return broken("another number of leaves than counted");
  RIDGE_RETURN_IF_ERROR(CheckPins(nodes));
  return CheckStates(nodes);
}

}  // namespace ridge::cache
