// The engine's prefix cache to a file and back.
#include <algorithm>
#include <future>
#include <new>

#include "engine/engine.h"

namespace ridge::engine {
namespace {

double MsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

int64_t TokensOf(const cache::SavedTree& tree, const std::vector<cache::PageId>& pages) {
  int64_t tokens = 0;
  for (size_t i = 0; i < pages.size(); i++) {
    if (pages[i] != cache::kNoPage) tokens += static_cast<int64_t>(tree.nodes[i].tokens.size());
  }
  return tokens;
}

}  // namespace

// Errors: kResourceExhausted, when the task had no memory.
Status Engine::BetweenSteps(const std::function<void()>& task) {
  bool no_memory = false;
  std::promise<void> done;
  {
    const std::lock_guard lock(mutex_);
    tasks_.emplace_back([&] {
      try {
        task();
      } catch (const std::bad_alloc&) {
        no_memory = true;
      }
      done.set_value();
    });
  }
  mail_.notify_one();
  done.get_future().wait();
  if (no_memory) return Fail(Code::kResourceExhausted, "no memory for the prefix cache's file");
  return {};
}

Result<SavedCache> Engine::SaveCache(const std::string& path, const CacheKey& key) {
  Result<SavedCache> result;
  RIDGE_RETURN_IF_ERROR(BetweenSteps([&] { result = SaveNow(path, key); }));
  return result;
}

Result<SavedCache> Engine::RestoreCache(const std::string& path, const CacheKey& key) {
  Result<SavedCache> result;
  RIDGE_RETURN_IF_ERROR(BetweenSteps([&] {
    result = RestoreNow(path, key);
    Publish();
  }));
  return result;
}

Result<SavedCache> Engine::SaveNow(const std::string& path, const CacheKey& key) const {
  const Clock::time_point begin = Clock::now();
  const cache::SavedTree tree =
      scheduler_.cache().Export([](std::string_view root) { return root.starts_with(kGroupRoot); });
  SavedCache saved{.pages = static_cast<int64_t>(tree.nodes.size()),
                   .states = static_cast<int64_t>(tree.states.size())};
  if (saved.pages == 0) return saved;
  for (const cache::SavedTree::Node& node : tree.nodes) saved.tokens += static_cast<int64_t>(node.tokens.size());
  RIDGE_ASSIGN_OR_RETURN(saved.bytes, WriteCacheFile(path, key, tree, *state_));
  saved.ms = MsSince(begin);
  return saved;
}

// The first page of the path used latest, computed again: programs of two versions may round differently, and then what is cached and what is
// computed would not fit together.
Status Engine::CheckBits(const CacheFile& file) {
  const auto page_tokens = static_cast<size_t>(options_.state.page_tokens);
  const std::vector<cache::SavedTree::Node>& nodes = file.tree().nodes;
  size_t latest = nodes.size();
  for (size_t i = 0; i < nodes.size(); i++) {
    if (nodes[i].parent != -1 || nodes[i].tokens.size() != page_tokens) continue;
    if (latest == nodes.size() || nodes[i].last_use > nodes[latest].last_use) latest = i;
  }
  if (latest == nodes.size()) return {};
  std::vector<std::byte> saved(state_->page_bytes()), computed(state_->page_bytes());
  RIDGE_RETURN_IF_ERROR(file.ReadPage(latest, saved));
  RIDGE_ASSIGN_OR_RETURN(const cache::PageId page, pool_.Allocate());
  Sequence sequence;
  sequence.slot = 0;  // nobody runs, and no checkpoint is there yet
  const std::span<const TokenId> tokens = nodes[latest].tokens;
  Status ran;
  for (size_t at = 0; at < page_tokens && ran;) {
    const size_t n = std::min(page_tokens - at, static_cast<size_t>(options_.step_tokens));
    Plan plan;
    plan.chunks.push_back({.sequence = &sequence,
                           .begin = static_cast<int64_t>(at),
                           .tokens = tokens.subspan(at, n),
                           .pages = std::span(&page, 1)});
    ran = runner_.Run(plan);
    at += n;
  }
  state_->ReadPage(page, computed);
  pool_.Release(page);
  RIDGE_RETURN_IF_ERROR(ran);
  if (saved == computed) return {};
  return Fail(Code::kUnsupported, "the saved prefix cache has other bits than this program computes")
      .Found("its first page, computed again, differs");
}

Status Engine::FillRestored(const CacheFile& file, const cache::PrefixCache::Imported& places) {
  const cache::SavedTree& tree = file.tree();
  // All of the file is looked at, what there is no room for too: half a good file is a damaged one.
  std::vector<std::byte> piece(state_->page_bytes());
  std::vector<int64_t> begin_tokens(tree.nodes.size(), 0);
  for (size_t i = 0; i < tree.nodes.size(); i++) {
    RIDGE_RETURN_IF_ERROR(file.ReadPage(i, piece));
    if (places.pages[i] != cache::kNoPage) state_->WritePage(places.pages[i], piece);
    const int32_t parent = tree.nodes[i].parent;
    if (parent >= 0) begin_tokens[i] = begin_tokens[static_cast<size_t>(parent)] + options_.state.page_tokens;
  }
  piece.resize(state_->slot_bytes());
  for (size_t i = 0; i < tree.states.size(); i++) {
    int64_t tokens = 0;
    RIDGE_RETURN_IF_ERROR(file.ReadSlot(i, piece, tokens));
    if (tokens != begin_tokens[tree.states[i].node] + tree.states[i].tokens)
      return Fail(Code::kInvalidData, "the saved prefix cache is damaged").Found("a state of another token");
    if (places.slots[i] != cache::kNoSlot) state_->WriteSlot(places.slots[i], tokens, piece);
  }
  return {};
}

Result<SavedCache> Engine::RestoreNow(const std::string& path, const CacheKey& key) {
  const Clock::time_point begin = Clock::now();
  cache::PrefixCache& cache = scheduler_.cache();
  if (!options_.prefix_cache) return Fail(Code::kInvalidArgument, "the prefix cache is off");
  if (!scheduler_.idle() || cache.pages() > 0)
    return Fail(Code::kInvalidArgument, "the prefix cache is in use already");
  RIDGE_ASSIGN_OR_RETURN(const CacheFile file, CacheFile::Open(path, key, *state_));
  const cache::SavedTree& tree = file.tree();
  for (const cache::SavedTree::Node& node : tree.nodes) {
    const auto outside = [this](TokenId token) { return token < 0 || token >= options_.vocab; };
    if (std::ranges::any_of(node.tokens, outside))
      return Fail(Code::kInvalidData, "the saved prefix cache is damaged")
          .Where(path)
          .Found("a token outside the vocabulary");
  }
  const auto with_path = [&path](Error error) {
    if (error.where.empty()) error.where = path;
    return std::unexpected(std::move(error));
  };
  if (Status bits = CheckBits(file); !bits) return with_path(std::move(bits).error());
  Result<cache::PrefixCache::Imported> places = cache.Import(tree);
  if (!places) return with_path(std::move(places).error());
  if (Status filled = FillRestored(file, *places); !filled) {
    cache.Clear();
    return with_path(std::move(filled).error());
  }
  return SavedCache{.pages = cache.pages(),
                    .tokens = TokensOf(tree, places->pages),
                    .states = cache.states(),
                    .pages_left_out = static_cast<int64_t>(tree.nodes.size()) - cache.pages(),
                    .bytes = file.size_bytes(),
                    .ms = MsSince(begin)};
}

}  // namespace ridge::engine
