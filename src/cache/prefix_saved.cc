// The prefix cache as plain values and back.
#include <algorithm>
#include <utility>

#include "cache/prefix_node.h"

namespace ridge::cache {
namespace {

Status Broken(const char* what) { return Fail(Code::kInvalidData, "it holds no tree of pages").Found(what); }

// The nodes used latest, as many as there is room for; a parent counts as used when its children were.
std::vector<bool> Latest(const SavedTree& tree, int64_t room) {
  std::vector<uint64_t> use(tree.nodes.size());
  for (size_t i = tree.nodes.size(); i-- > 0;) {
    use[i] = std::max(use[i], tree.nodes[i].last_use);
    if (tree.nodes[i].parent < 0) continue;
    uint64_t& parent = use[static_cast<size_t>(tree.nodes[i].parent)];
    parent = std::max(parent, use[i]);
  }
  std::vector<uint32_t> order(tree.nodes.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = static_cast<uint32_t>(i);
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) { return use[a] > use[b]; });  // parents stay first
  std::vector<bool> wanted(tree.nodes.size());
  for (size_t i = 0; i < order.size() && static_cast<int64_t>(i) < room; i++) wanted[order[i]] = true;
  return wanted;
}

}  // namespace

SavedTree PrefixCache::Export(const std::function<bool(std::string_view)>& leave_out) const {
  SavedTree tree;
  std::vector<std::pair<const Node*, int32_t>> nodes;  // and its number in the tree; -1: a root
  const auto add_children = [&](const Node* node, int32_t number) {
    for (const auto& [tokens, child] : node->children) {
      tree.nodes.push_back({.parent = number,
                            .root = static_cast<uint32_t>(tree.roots.size() - 1),
                            .tokens = tokens,
                            .last_use = child->last_use,
                            .page = child->page});
      nodes.emplace_back(child.get(), static_cast<int32_t>(tree.nodes.size() - 1));
    }
  };
  for (const auto& [name, root] : roots_) {
    if (root->children.empty() || leave_out(name)) continue;
    tree.roots.push_back(name);
    size_t next = nodes.size();
    add_children(root.get(), -1);
    for (; next < nodes.size(); next++) {
      const auto [node, number] = nodes[next];
      for (const Node::State& state : node->states) {
        tree.states.push_back({.node = static_cast<uint32_t>(number),
                               .tokens = state.tokens,
                               .minor = state.key.first < kPlainState,
                               .last_use = state.key.second,
                               .slot = state.slot});
      }
      add_children(node, number);
    }
  }
  return tree;
}

Status PrefixCache::ImportNodes(const SavedTree& tree, const std::vector<bool>& wanted, Imported& imported,
                                std::vector<Node*>& nodes) {
  for (size_t i = 0; i < tree.nodes.size(); i++) {
    const SavedTree::Node& saved = tree.nodes[i];
    if (saved.root >= tree.roots.size()) return Broken("a page of no root");
    if (saved.parent >= static_cast<int64_t>(i) || saved.parent < -1) return Broken("a page before the one it follows");
    if (saved.tokens.empty() || saved.tokens.size() > static_cast<size_t>(page_tokens_))
      return Broken("a page of a wrong size");
    if (saved.parent >= 0) {
      const SavedTree::Node& parent = tree.nodes[static_cast<size_t>(saved.parent)];
      if (parent.root != saved.root) return Broken("a page of two roots");
      if (parent.tokens.size() != static_cast<size_t>(page_tokens_)) return Broken("a page behind one filled in part");
    }
    Node* parent = nullptr;
    if (saved.parent >= 0) {
      parent = nodes[static_cast<size_t>(saved.parent)];
      if (parent == nullptr) continue;  // left out, and so are its children
    } else {
      const std::string& name = tree.roots[saved.root];
      auto at = roots_.find(name);
      if (at == roots_.end()) {
        auto root = std::make_unique<Node>();
        root->name = name;
        root->hash = RootHash(name);
        at = roots_.emplace(name, std::move(root)).first;
      }
      parent = at->second.get();
    }
    if (!wanted[i]) {
      RememberGone(HashOf(parent->hash, saved.tokens));
      continue;
    }
    if (parent->children.contains(saved.tokens)) return Broken("a page twice");
    RIDGE_ASSIGN_OR_RETURN(const PageId page, pool_->Allocate());
    nodes[i] = AddChild(parent, saved.tokens, page);
    pool_->Release(page);  // the tree holds it
    imported.pages[i] = page;
  }
  return {};
}

Status PrefixCache::ImportStates(const SavedTree& tree, const std::vector<Node*>& nodes, Imported& imported) {
  std::vector<size_t> order(tree.states.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  // Those that would go last come first.
  std::ranges::sort(order, [&](size_t a, size_t b) {
    return std::pair(tree.states[b].minor, tree.states[a].last_use) >
           std::pair(tree.states[a].minor, tree.states[b].last_use);
  });
  for (const size_t i : order) {
    const SavedTree::State& saved = tree.states[i];
    if (saved.node >= tree.nodes.size() || saved.tokens < 1 ||
        static_cast<size_t>(saved.tokens) > tree.nodes[saved.node].tokens.size())
      return Broken("a checkpoint of no page");
    Node* node = nodes[saved.node];
    if (node == nullptr || static_cast<int64_t>(states_.size()) + reserved_states_ >= max_states_) continue;
    if (std::ranges::find(node->states, saved.tokens, &Node::State::tokens) != node->states.end())
      return Broken("a checkpoint twice");
    const StateKey key = {saved.minor ? kMinorState : kPlainState, saved.last_use};
    if (states_.contains(key)) return Broken("two checkpoints used at once");
    const int32_t slot = slots_->Take();
    node->states.push_back({.tokens = saved.tokens, .slot = slot, .key = key});
    states_.emplace(key, std::pair(node, saved.tokens));
    imported.slots[i] = slot;
  }
  return {};
}

Result<PrefixCache::Imported> PrefixCache::Import(const SavedTree& tree) {
  RIDGE_CHECK(roots_.empty() && pages_ == 0);
  Imported imported{.pages = std::vector<PageId>(tree.nodes.size(), kNoPage),
                    .slots = std::vector<int32_t>(tree.states.size(), kNoSlot)};
  std::vector<Node*> nodes(tree.nodes.size());
  const int64_t room = std::min<int64_t>(max_pages_, pool_->free_pages());
  const auto give_up = [&](Error error) {
    Clear();
    std::erase_if(roots_, [](const auto& root) { return root.second->children.empty(); });
    return std::unexpected(std::move(error));
  };
  for (const SavedTree::Node& node : tree.nodes) {
    if (node.parent >= static_cast<int64_t>(tree.nodes.size())) return give_up(Broken("a page behind none").error());
  }
  if (const Status done = ImportNodes(tree, Latest(tree, room), imported, nodes); !done) return give_up(done.error());
  if (const Status done = ImportStates(tree, nodes, imported); !done) return give_up(done.error());
  // In the order of their last use, as before.
  std::vector<size_t> order;
  for (size_t i = 0; i < nodes.size(); i++) {
    clock_ = std::max(clock_, std::min<uint64_t>(tree.nodes[i].last_use, UINT64_MAX / 2));
    if (nodes[i] != nullptr) order.push_back(i);
  }
  for (const auto& [key, where] : states_) clock_ = std::max(clock_, std::min<uint64_t>(key.second, UINT64_MAX / 2));
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return tree.nodes[a].last_use < tree.nodes[b].last_use; });
  for (const size_t i : order) Stamp(nodes[i]);
  std::erase_if(roots_, [](const auto& root) { return root.second->children.empty(); });
  if (const Status whole = CheckIntegrity(); !whole) return give_up(Broken(whole.error().found.c_str()).error());
  return imported;
}

}  // namespace ridge::cache
