// Recurrent models: where a sequence may go on from, who waits for whose checkpoint, and which checkpoints a prompt leaves on its way.
#include <algorithm>
#include <new>

#include "engine/scheduler.h"

namespace ridge::engine {
namespace {

constexpr int64_t kTailTokens =
    8;  // of a prompt: what templates put behind the last message, and take back in the next turn

const StateMark* FindMark(const Sequence& sequence, int64_t token) {
  const auto at = std::ranges::find(sequence.marks, token, &StateMark::token);
  return at == sequence.marks.end() ? nullptr : &*at;
}

}  // namespace

// Tokens that must lie between two checkpoints: computing them again is cheaper than a slot.
int64_t Scheduler::state_gap() const { return 2 * options_.page_tokens; }

bool Scheduler::Mark(Sequence& sequence, int64_t token, bool minor) {
  if (FindMark(sequence, token) != nullptr) return true;
  sequence.marks.reserve(sequence.marks.size() + 1);
  const std::optional<int32_t> slot = cache_.ReserveState();
  if (slot) sequence.marks.push_back({.token = token, .slot = *slot, .minor = minor});
  return slot.has_value();
}

// True: an older sequence is about to compute most of what this one would, and leaves a checkpoint where the two part.
bool Scheduler::WaitsForState(Sequence& sequence, int64_t have) {
  if (sequence.waits_for != 0) {
    const auto other = std::ranges::find(running_, sequence.waits_for, [](const auto& s) { return s->id; });
    if (other != running_.end() && (*other)->computed_tokens < sequence.waits_token &&
        FindMark(**other, sequence.waits_token) != nullptr)
      return true;
    sequence.waits_for = 0;
  }
  Sequence* best = nullptr;
  for (const auto& other : running_) {
    if (other.get() == &sequence) break;
    if (other->cursor.root != sequence.cursor.root || !other->resumed) continue;
    const size_t n = static_cast<size_t>(std::min(other->length(), sequence.length() - 1));
    const auto end = sequence.tokens.begin() + static_cast<std::ptrdiff_t>(n);
    const int64_t common =
        std::mismatch(sequence.tokens.begin(), end, other->tokens.begin()).first - sequence.tokens.begin();
    const int64_t token = common / options_.page_tokens * options_.page_tokens;
    if (token < have + state_gap() || other->computed_tokens >= token) continue;
    if (best == nullptr || token > sequence.waits_token) best = other.get(), sequence.waits_token = token;
  }
  if (best == nullptr || !Mark(*best, sequence.waits_token, /*minor=*/false)) return false;
  sequence.waits_for = best->id;
  return true;
}

// Takes over what is cached up to the deepest checkpoint. False: waiting is better than computing.
bool Scheduler::Resume(Sequence& sequence) {
  if (sequence.resumed) return true;
  const int64_t limit = sequence.length() - 1, page = options_.page_tokens;
  cache::PrefixCache::Cursor& at = sequence.cursor;
  if (at.root == nullptr || sequence.scoring()) return sequence.resumed = true;
  cache::PrefixCache::StateMatch match = cache_.FindState(at, sequence.tokens, limit);
  if (WaitsForState(sequence, match.tokens)) return false;
  cache_.UseState(match);
  // All that this may need, before anything changes.
  copies_.reserve(copies_.size() + 1);
  state_copies_.reserve(state_copies_.size() + 1);
  sequence.marks.reserve(sequence.marks.size() + 2);
  sequence.resumed = true;
  const int64_t whole = match.tokens / page * page;
  const auto start_over = [&] {
    sequence.pages->Clear();
    at.node = at.root;
    at.pages = 0;
    match.tokens = 0;
  };
  cache_.Extend(at, sequence.tokens, whole, *sequence.pages);
  if (at.pages * page < whole) {  // no memory for its table
    start_over();
  } else if (whole < match.tokens) {
    if (MakeRoom(sequence, whole + 1)) {
      try {
        RIDGE_CHECK(sequence.pages->Reserve(whole + 1).has_value());
      } catch (const std::bad_alloc&) {
        start_over();
        throw;
      }
      // Room may have been made by giving up the page itself; its contents are still there. The same holds for the slot.
      if (sequence.pages->pages().back() != match.page)
        copies_.push_back({.from = match.page, .to = sequence.pages->pages().back()});
    } else {
      start_over();
    }
  }
  if (match.tokens > 0) {
    state_copies_.push_back({.from = match.slot, .to = sequence.slot});
    sequence.computed_tokens = match.tokens;
  }
  const bool state_ends = match.cached_tokens > match.tokens;
  int64_t gone_ms = -1;
  const cache::MissReason reason =
      state_ends ? cache::MissReason::kNoState
                 : cache_.Explain(at, sequence.tokens, match.tokens - at.pages * page, limit, &gone_ms);
  // Where this sequence leaves what others have computed, more are likely to leave it; and the next turn goes on near the end of this prompt.
  int64_t last = match.tokens;
  const int64_t parting = std::min(match.cached_tokens, limit) / page * page;
  if (parting >= last + state_gap() && Mark(sequence, parting, /*minor=*/false)) last = parting;
  const int64_t end = (sequence.prompt_tokens - kTailTokens) / page * page;
  if (sequence.generated() == 0 && end >= last + state_gap()) Mark(sequence, end, /*minor=*/true);
  Begin(sequence, reason, match.tokens, gone_ms);
  return true;
}

// Checkpoints whose pages the cache has now.
void Scheduler::KeepMarks(Sequence& sequence) {
  using Kind = cache::PrefixCache::StateKind;
  std::erase_if(sequence.marks, [&](const StateMark& mark) {
    if (mark.token > sequence.computed_tokens || mark.token > sequence.cursor.pages * options_.page_tokens)
      return false;
    cache_.KeepReservedState(sequence.cursor,
                             std::span<const TokenId>(sequence.tokens).first(static_cast<size_t>(mark.token)),
                             mark.slot, mark.minor ? Kind::kPromptEnd : Kind::kParting);
    return true;
  });
}

// As many slots as drafts, for the states on the way: whichever draft is refused first, the state before it is there.
void Scheduler::TakeDraftSlots(Sequence& sequence, int64_t count) {
  if (!options_.recurrent) return;
  sequence.draft_begin = sequence.computed_tokens;
  std::vector<int32_t>& slots = sequence.draft_slots;
  slots.reserve(static_cast<size_t>(count));
  while (static_cast<int64_t>(slots.size()) < count) slots.push_back(slots_.Take());
  for (; static_cast<int64_t>(slots.size()) > count; slots.pop_back()) slots_.Give(slots.back());
}

// After a step with drafts: the slot that has seen just the computed tokens becomes the sequence's own. False: there is none, since the step failed.
bool Scheduler::SettleDrafts(Sequence& sequence) {
  std::vector<int32_t>& slots = sequence.draft_slots;
  if (slots.empty()) return true;
  const int64_t at = sequence.computed_tokens - sequence.draft_begin - 1;
  RIDGE_CHECK(at <= static_cast<int64_t>(slots.size()));
  if (at >= 0 && at < static_cast<int64_t>(slots.size())) std::swap(sequence.slot, slots[static_cast<size_t>(at)]);
  for (const int32_t slot : slots) slots_.Give(slot);
  slots.clear();
  return at >= 0;
}

// The end of a run: the slot itself becomes the checkpoint there.
void Scheduler::ReleaseState(Sequence& sequence) {
  for (const StateMark& mark : sequence.marks) cache_.DropState(mark.slot);
  sequence.marks.clear();
  const bool settled = SettleDrafts(sequence);
  if (sequence.slot >= 0) {
    if (options_.recurrent && settled && sequence.cursor.root != nullptr && sequence.computed_tokens > 0) {
      cache_.KeepState(sequence.cursor,
                       std::span<const TokenId>(sequence.tokens).first(static_cast<size_t>(sequence.computed_tokens)),
                       sequence.slot);
    } else {
      slots_.Give(sequence.slot);
    }
  }
  sequence.slot = cache::kNoSlot;
  sequence.resumed = false;
  sequence.waits_for = 0;
}

}  // namespace ridge::engine
