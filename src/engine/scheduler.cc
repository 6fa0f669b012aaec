#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/quantity.h"

namespace ridge::engine {
namespace {

// Looking up costs nothing, so a draft model's odds must be better by this.
constexpr double kModelsCost = 0.15;

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, cache::PagePool* pool)
    : options_(options),
      pool_(pool),
      slots_(options.max_running + (options.recurrent ? options.checkpoints + options.draft_slots : 0)),
      cache_(pool, options.page_tokens, options.cache_pages),
      costs_(std::max(options.max_running, options.max_logit_rows)) {
  RIDGE_CHECK(options.max_running >= 1 && options.step_tokens >= options.max_running && options.context_tokens >= 1 &&
              options.page_tokens >= 1);
  const auto most = static_cast<size_t>(options.max_running);
  plan_.chunks.reserve(most);
  running_.reserve(most);
  choices_.reserve(most);
  asks_.reserve(most);
  if (options.recurrent) cache_.EnableStates(&slots_, options.checkpoints);
  cache_.EnablePins(max_pinned_pages());
}

int64_t Scheduler::max_pinned_pages() const {
  const int64_t all = pool_->capacity_pages();
  return std::min(all / 2, all - cache::PagesForTokens(limit_tokens(), options_.page_tokens));
}

int64_t Scheduler::limit_tokens() const {
  return std::min(options_.context_tokens, static_cast<int64_t>(pool_->capacity_pages()) * options_.page_tokens);
}

Status Scheduler::CheckFits(int64_t prompt_tokens) const {
  if (prompt_tokens < limit_tokens()) return {};
  return Fail(Code::kOutOfRange, "the prompt does not fit the context")
      .Found(fmt::format("{}, and one more for the answer", ridge::Count(prompt_tokens, "token")))
      .Expected(fmt::format("{} at most", ridge::Count(limit_tokens(), "token")))
      .Remedy(limit_tokens() < options_.context_tokens ? "shorten the prompt or give a larger KV pool with --kv-memory"
                                                       : "shorten the prompt or give more context with -c");
}

void Scheduler::Add(std::unique_ptr<Sequence>&& sequence) {
  sequence->pages.emplace(pool_, options_.page_tokens);
  if (sequence->cache_root) sequence->cursor = cache_.Enter(*sequence->cache_root);
  try {
    waiting_.Push(std::move(sequence));
  } catch (const std::bad_alloc&) {
    cache_.Leave(sequence->cursor, sequence->ephemeral_root);
    throw;
  }
}

// Room for `tokens` tokens in all, from the cache if need be.
bool Scheduler::MakeRoom(const Sequence& sequence, int64_t tokens) {
  const int64_t more = cache::PagesForTokens(tokens, options_.page_tokens) -
                       static_cast<int64_t>(sequence.pages->pages().size()) - pool_->free_pages();
  return more <= 0 || cache_.Evict(more) == more;
}

// Leaves full pages that are new to the cache there.
void Scheduler::Keep(Sequence& sequence) {
  if (sequence.cursor.root == nullptr) return;
  if (sequence.computed_tokens < (sequence.cursor.pages + 1) * options_.page_tokens) return;
  try {
    cache_.Insert(sequence.cursor,
                  std::span<const TokenId>(sequence.tokens).first(static_cast<size_t>(sequence.computed_tokens)),
                  *sequence.pages);
  } catch (const std::bad_alloc&) {  // it is computed again when it is needed
  }
  KeepMarks(sequence);
}

// Gives all pages back, to the cache first.
void Scheduler::Release(Sequence& sequence) {
  Keep(sequence);
  cache::PrefixCache::Cursor& at = sequence.cursor;
  if (at.root != nullptr) {
    if (sequence.computed_tokens / options_.page_tokens == at.pages) {
      try {
        cache_.InsertPartial(
            at, std::span<const TokenId>(sequence.tokens).first(static_cast<size_t>(sequence.computed_tokens)),
            *sequence.pages);
      } catch (const std::bad_alloc&) {
      }
    }
    cache_.Touch(at);
  }
  ReleaseState(sequence);
  at.node = at.root;
  at.pages = 0;
  sequence.pages->Clear();
  sequence.computed_tokens = 0;
  sequence.drafts.clear();
}

// Takes over cached pages behind what is computed, as long as they are whole.
void Scheduler::ExtendCached(Sequence& sequence) {
  if (sequence.cursor.root == nullptr || options_.recurrent || sequence.scoring()) return;
  if (sequence.computed_tokens != sequence.cursor.pages * options_.page_tokens) return;
  sequence.computed_tokens +=
      cache_.Extend(sequence.cursor, sequence.tokens, sequence.length() - 1, *sequence.pages) * options_.page_tokens;
}

// Copies what a page of the cache, or of a running sequence on the same path, holds of the next tokens. False: an older sequence is about to
// compute more of them, so waiting is better than computing.
bool Scheduler::CopyCached(Sequence& sequence) {
  if (options_.recurrent) return Resume(sequence);
  const cache::PrefixCache::Cursor& at = sequence.cursor;
  if (at.root == nullptr || sequence.scoring()) return true;
  const int64_t begin = at.pages * options_.page_tokens, limit = sequence.length() - 1;
  if (sequence.computed_tokens != begin) return true;
  cache::PrefixCache::Partial best = cache_.FindPartial(at, sequence.tokens, limit);
  const int64_t wanted = std::min<int64_t>(limit - begin, options_.page_tokens);
  for (const auto& other : running_) {
    if (other.get() == &sequence) break;
    if (other->cursor.node != at.node) continue;
    const int64_t most = std::min(wanted, other->length() - begin);
    int64_t common = 0;
    while (common < most &&
           other->tokens[static_cast<size_t>(begin + common)] == sequence.tokens[static_cast<size_t>(begin + common)])
      common++;
    const int64_t ready = std::clamp<int64_t>(other->computed_tokens - begin, 0, common);
    // A step's wait must be worth it. What the other one decodes is known as it comes, not before.
    if (common > std::max(ready, best.tokens) && (common == wanted || common - ready >= options_.page_tokens / 2))
      return false;
    if (ready > best.tokens) best = {other->pages->pages()[static_cast<size_t>(at.pages)], ready};
  }
  int64_t gone_ms = -1;
  const cache::MissReason reason = cache_.Explain(at, sequence.tokens, best.tokens, limit, &gone_ms);
  if (best.tokens > 0 && MakeRoom(sequence, begin + 1)) {
    RIDGE_CHECK(sequence.pages->Reserve(begin + 1).has_value());
    const cache::PageId to = sequence.pages->pages().back();
    // Room may have been made by giving up the page itself; its contents are still there.
    if (to != best.page) copies_.push_back({.from = best.page, .to = to});
    sequence.computed_tokens = begin + best.tokens;
  }
  Begin(sequence, reason, begin + best.tokens, gone_ms);
  return true;
}

// Once for each sequence, when what it takes over is settled. What it takes over may be dropped: the copies of this step are made before anything is
// written.
void Scheduler::Begin(Sequence& sequence, cache::MissReason reason, int64_t token, int64_t gone_ms) {
  if (sequence.miss) return;
  sequence.miss = {.reason = reason, .at_token = token, .gone_ms = gone_ms};
  if (options_.thinking < 0) return;
  try {
    cache_.DropThoughts(sequence.cursor, sequence.tokens, options_.thinking);
  } catch (const std::bad_alloc&) {  // they stay until they are used least recently
  }
}

bool Scheduler::Place(Sequence& sequence, int64_t count) {
  at_ = &sequence;
  if (!MakeRoom(sequence, sequence.computed_tokens + count)) return false;
  if (!sequence.pages->Reserve(sequence.computed_tokens + count)) return false;
  const auto begin = static_cast<size_t>(sequence.computed_tokens);
  const bool logits = count == sequence.pending() && sequence.max_tokens != 0;
  // The row of a token scores the next one.
  const int64_t first = std::max<int64_t>(0, sequence.scored_tokens - 1 - sequence.computed_tokens);
  const int64_t end = std::min(count, sequence.prompt_tokens - 1 - sequence.computed_tokens);
  plan_.chunks.push_back(
      {.sequence = &sequence,
       .begin = sequence.computed_tokens,
       .tokens = std::span<const TokenId>(sequence.tokens).subspan(begin, static_cast<size_t>(count)),
       .pages = sequence.pages->pages(),
       .logits = logits,
       .score_begin = first,
       .score_rows = sequence.scores ? std::max<int64_t>(0, end - first) : 0});
  plan_.tokens += count;
  plan_.logit_rows += plan_.chunks.back().logit_rows();
  return true;
}

void Scheduler::Unplan(const Sequence& sequence) {
  const auto at = std::find_if(plan_.chunks.begin(), plan_.chunks.end(),
                               [&](const Chunk& chunk) { return chunk.sequence == &sequence; });
  if (at == plan_.chunks.end()) return;
  plan_.tokens -= static_cast<int64_t>(at->tokens.size());
  plan_.logit_rows -= at->logit_rows();
  plan_.chunks.erase(at);
}

void Scheduler::Preempt(size_t index) {
  Sequence& sequence = *running_[index];
  at_ = &sequence;
  Unplan(sequence);
  Release(sequence);
  sequence.preemptions++;
  preemptions_++;
  waiting_.PushFront(std::move(running_[index]));
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
}

bool Scheduler::PlaceOrPreempt(Sequence& sequence, int64_t count) {
  while (!Place(sequence, count)) {
    const bool self = running_.back().get() == &sequence;
    RIDGE_CHECK(running_.size() > 1);  // one sequence alone fits: CheckFits and Accept keep it below limit_tokens
    Preempt(running_.size() - 1);
    if (self) return false;
  }
  return true;
}

bool Scheduler::MayAdmit() const {
  return !waiting_.empty() && static_cast<int64_t>(running_.size()) < options_.max_running &&
         (running_.empty() || available_pages() > 0);
}

// The oldest waiting sequence begins, if it may.
bool Scheduler::Admit() {
  if (!MayAdmit() || prompt_room_ <= 0) return false;
  Sequence& sequence = *waiting_.Head();
  at_ = &sequence;
  ExtendCached(sequence);
  // Room for all of it, not only for the first chunk, or it would be preempted and recomputed at every turn.
  const int64_t needed = cache::PagesForTokens(sequence.length() + 1, options_.page_tokens) -
                         static_cast<int64_t>(sequence.pages->pages().size());
  if (!running_.empty() && needed > available_pages()) {
    Release(sequence);
    return false;
  }
  // A decode step should not allocate. Not earlier: thousands may wait.
  const int64_t limit = limit_tokens();
  const int64_t most =
      sequence.max_tokens < 0 ? limit : std::min(limit, sequence.prompt_tokens + std::min(sequence.max_tokens, limit));
  sequence.tokens.reserve(static_cast<size_t>(std::max(most, sequence.length())));
  sequence.slot = slots_.Take();
  running_.push_back(waiting_.TakeHead());
  PlacePrompt(sequence);
  return true;
}

void Scheduler::PlacePrompt(Sequence& sequence) {
  at_ = &sequence;
  if (!CopyCached(sequence)) return;
  int64_t count = std::min(sequence.pending(), prompt_room_);
  if (sequence.scoring()) {
    const int64_t scored = std::max<int64_t>(0, sequence.scored_tokens - 1 - sequence.computed_tokens);
    count = std::min(count, scored + score_room_ + 1);
  }
  if (!PlaceOrPreempt(sequence, count)) return;
  prompt_room_ -= count;
  score_room_ -= std::max<int64_t>(0, plan_.chunks.back().logit_rows() - 1);
}

// Drafts that a sequence may have. A step gives one token more than its drafts; none beyond the end of the answer, nor of the pages that are free.
int64_t Scheduler::DraftRoom(const Sequence& sequence) const {
  int64_t room = std::min(limit_tokens() - sequence.length() - 1, DraftPolicy::kMostDrafts);
  if (sequence.max_tokens >= 0) room = std::min(room, sequence.max_tokens - sequence.generated() - 1);
  const int64_t in_pages = sequence.pages->capacity_tokens() - sequence.length();
  if (room > in_pages && pool_->free_pages() < static_cast<int64_t>(plan_.chunks.size())) room = in_pages;
  return std::max<int64_t>(room, 0);
}

Chunk* Scheduler::ChunkOf(const Sequence& sequence) {
  const auto at = std::ranges::find(plan_.chunks, &sequence, &Chunk::sequence);
  return at == plan_.chunks.end() ? nullptr : &*at;
}

bool Scheduler::ReserveDrafts(Sequence& sequence, int64_t count) {
  bool there = false;
  try {
    there = sequence.pages->Reserve(sequence.length() + count).has_value();
    if (there) TakeDraftSlots(sequence, count);
  } catch (const std::bad_alloc&) {
    there = false;
  }
  ChunkOf(sequence)->pages = sequence.pages->pages();
  return there;
}

void Scheduler::PlaceDrafts(Sequence& sequence) {
  const auto count = static_cast<int64_t>(sequence.drafts.size());
  sequence.pages->Truncate(sequence.length() + count);
  TakeDraftSlots(sequence, count);
  Chunk& chunk = *ChunkOf(sequence);
  chunk.pages = sequence.pages->pages();
  chunk.drafts = sequence.drafts;
  plan_.tokens += count;
  plan_.logit_rows += count;
  plan_.shape.decode_tokens += count;
  draft_room_ -= count;
}

// All chunks of the plan decode one token each.
void Scheduler::Speculate() {
  draft_room_ = std::min(std::max(options_.max_logit_rows, options_.max_running), options_.step_tokens) - plan_.tokens;
  if (options_.recurrent) draft_room_ = std::min(draft_room_, options_.draft_slots);
  if (draft_room_ <= 0) return;
  choices_.assign(plan_.chunks.size(), {});
  for (size_t i = 0; i < plan_.chunks.size(); i++) {
    Sequence& sequence = *plan_.chunks[i].sequence;
    sequence.drafts.clear();
    if (!sequence.looks_up || !plan_.chunks[i].logits) continue;
    const int64_t room = DraftRoom(sequence);
    if (room == 0) continue;
    try {
      sequence.draft_match = sequence.lookup.Draft(sequence.tokens, room, sequence.drafts);
    } catch (const std::bad_alloc&) {
      sequence.draft_match = 0;
      sequence.drafts.clear();
    }
    if (sequence.draft_match == 0) continue;
    const double odds = draft_policy_.Odds(sequence.draft_record, sequence.draft_match);
    if (sequence.model_odds > odds + kModelsCost) continue;  // the model will be asked
    choices_[i] = {.odds = odds, .most = static_cast<int64_t>(sequence.drafts.size())};
  }
  try {
    draft_policy_.Choose(choices_, plan_.tokens, draft_room_, costs_);
  } catch (const std::bad_alloc&) {
    for (DraftChoice& choice : choices_) choice.take = 0;
  }
  for (size_t i = 0; i < plan_.chunks.size(); i++) {
    Sequence& sequence = *plan_.chunks[i].sequence;
    sequence.drafts.resize(std::min(sequence.drafts.size(), static_cast<size_t>(choices_[i].take)));
    sequence.model_drafts = false;
    if (!sequence.drafts.empty()) {
      if (ReserveDrafts(sequence, static_cast<int64_t>(sequence.drafts.size()))) {
        PlaceDrafts(sequence);
        continue;
      }
      sequence.drafts.clear();
    }
    if (!options_.draft_model || !sequence.asks_model || !plan_.chunks[i].logits) continue;
    const int64_t room = DraftRoom(sequence);
    int64_t left = limit_tokens() - sequence.length();
    left = sequence.max_tokens < 0 ? -1 : std::min(left, sequence.max_tokens - sequence.generated());
    if (room > 0) asks_.push_back({.sequence = &sequence, .most = room, .left = left});
  }
}

void Scheduler::EndDrafts(Sequence& sequence, int64_t accepted) {
  const int64_t proposed = static_cast<int64_t>(sequence.drafts.size());
  RIDGE_CHECK(accepted >= 0 && accepted <= proposed && sequence.pending() == 1);
  SettleDrafts(sequence);
  sequence.pages->Truncate(sequence.computed_tokens);
  if (!sequence.model_drafts) draft_policy_.Learn(sequence.draft_record, sequence.draft_match, proposed, accepted);
  sequence.drafts.clear();
}

int64_t Scheduler::Prompts() const {
  const int64_t begun = std::ranges::count_if(running_, [](const auto& s) { return !s->decoding(); });
  const int64_t places = options_.max_running - static_cast<int64_t>(running_.size());
  return begun + std::min(static_cast<int64_t>(waiting_.size()), places);
}

const Plan& Scheduler::Next() {
  starved_.reset();
  at_ = nullptr;
  Clear();
  try {
    PlanStep();
  } catch (const std::bad_alloc&) {
    // What was placed up to here is placed again by the next plan. Copies that are asked for are still to be made.
    if (at_ == nullptr) throw;
    starved_ = at_->id;
    Abandon();
  }
  return plan_;
}

void Scheduler::Clear() {
  plan_.chunks.clear();
  plan_.tokens = plan_.logit_rows = 0;
  plan_.shape = {};
  asks_.clear();
  draft_room_ = 0;
}

void Scheduler::Abandon() {
  for (const auto& sequence : running_) {
    sequence->drafts.clear();
    SettleDrafts(*sequence);
    sequence->pages->Truncate(sequence->computed_tokens);
  }
  Clear();
}

void Scheduler::PlanStep() {
  score_room_ = std::max(options_.max_logit_rows, options_.max_running) - options_.max_running;
  for (const auto& sequence : running_) Keep(*sequence);
  // Preemption only takes from the end of running_, so an index stays valid while sequences before it are placed.
  for (size_t i = 0; i < running_.size(); i++) {
    if (running_[i]->decoding()) PlaceOrPreempt(*running_[i], 1);
  }
  const int64_t decodes = plan_.tokens;
  const bool prompts = std::ranges::any_of(running_, [](const auto& s) { return !s->decoding(); }) || MayAdmit();
  prompt_room_ = prompts ? costs_.PromptTokens(decodes, options_.step_tokens - decodes, Prompts()) : 0;
  for (size_t i = 0; i < running_.size() && prompt_room_ > 0; i++) {
    if (running_[i]->decoding()) continue;
    ExtendCached(*running_[i]);
    PlacePrompt(*running_[i]);
  }
  while (Admit()) {
  }
  plan_.shape = {};
  for (const Chunk& chunk : plan_.chunks) {
    const int64_t n = static_cast<int64_t>(chunk.tokens.size());
    (chunk.sequence->decoding() ? plan_.shape.decode_tokens : plan_.shape.prompt_tokens) += n;
  }
  if (!prompts) Speculate();
}

void Scheduler::Commit(double step_ms) {
  costs_.Observe(plan_.shape, step_ms);
  for (const Chunk& chunk : plan_.chunks) {
    chunk.sequence->computed_tokens += static_cast<int64_t>(chunk.tokens.size());
    waiting_.Charge(*chunk.sequence, static_cast<int64_t>(chunk.tokens.size()));
  }
}

std::optional<FinishReason> Scheduler::Accept(Sequence& sequence, TokenId token) const {
  sequence.tokens.push_back(token);
  if (std::find(sequence.stop_tokens.begin(), sequence.stop_tokens.end(), token) != sequence.stop_tokens.end())
    return FinishReason::kStop;
  if (sequence.max_tokens >= 0 && sequence.generated() >= sequence.max_tokens) return FinishReason::kLength;
  if (sequence.length() >= limit_tokens()) return FinishReason::kLength;
  return std::nullopt;
}

std::unique_ptr<Sequence> Scheduler::Remove(RequestId id, int64_t* held_pages) {
  const auto same = [id](const std::unique_ptr<Sequence>& sequence) { return sequence->id == id; };
  std::unique_ptr<Sequence> found;
  if (const auto at = std::find_if(running_.begin(), running_.end(), same); at != running_.end()) {
    found = std::move(*at);
    running_.erase(at);
  } else {
    found = waiting_.Remove(id);
  }
  if (found) {
    Unplan(*found);
    if (held_pages != nullptr) *held_pages = static_cast<int64_t>(found->pages->pages().size());
    Release(*found);
    if (found->pin_until_ms > 0) {
      found->pinned_tokens = cache_.Pin(
          found->cursor, std::span<const TokenId>(found->tokens).first(static_cast<size_t>(found->prompt_tokens)),
          found->pin_until_ms);
    }
    cache_.Leave(found->cursor, found->ephemeral_root);
    found->pages.reset();
    waiting_.Leave(*found);
  }
  return found;
}

const Sequence* Scheduler::Find(RequestId id) const {
  for (const auto& sequence : running_) {
    if (sequence->id == id) return sequence.get();
  }
  return waiting_.Find(id);
}

std::optional<RequestId> Scheduler::AnyId() const {
  if (!running_.empty()) return running_.front()->id;
  return waiting_.empty() ? std::nullopt : std::optional(waiting_.first_id());
}

std::vector<RequestId> Scheduler::Ids() const {
  std::vector<RequestId> ids;
  for (const auto& sequence : running_) ids.push_back(sequence->id);
  for (const Sequence* sequence : waiting_.All()) ids.push_back(sequence->id);
  return ids;
}

Load Scheduler::CurrentLoad(double mean_answer_tokens) const {
  Load load{.max_running = options_.max_running, .mean_answer_tokens = mean_answer_tokens};
  int64_t decoding = 0;
  for (const auto& sequence : running_) {
    load.prompt_tokens += std::max<int64_t>(0, sequence->prompt_tokens - sequence->computed_tokens);
    decoding += sequence->decoding();
    int64_t left = limit_tokens() - sequence->length();
    if (sequence->max_tokens >= 0) left = std::min(left, sequence->max_tokens - sequence->generated());
    if (mean_answer_tokens > 0) {  // who is past the mean may end soon
      const double rest =
          std::max(mean_answer_tokens - static_cast<double>(sequence->generated()), mean_answer_tokens / 4);
      left = std::min(left, static_cast<int64_t>(rest) + 1);
    }
    load.left_tokens.push_back(std::max<int64_t>(left, 1));
  }
  load.prompt_token_ms = costs_.BusyPromptTokenMs(decoding, std::max<int64_t>(1, Prompts()));
  load.decode_ms = costs_.DecodeMs(static_cast<int64_t>(running_.size())).value_or(0);
  return load;
}

Status Scheduler::CheckIntegrity() const {
  const auto broken = [](const char* what) -> Status {
    return Fail(Code::kInternal, "the scheduler is inconsistent").Found(what);
  };
  std::vector<std::span<const cache::PageId>> holders;
  if (static_cast<int64_t>(running_.size()) > options_.max_running) return broken("more sequences run than may");
  std::vector<int32_t> slots = cache_.StateSlots();
  for (const auto& sequence : running_) {
    slots.push_back(sequence->slot);
    for (const StateMark& mark : sequence->marks) slots.push_back(mark.slot);
    slots.insert(slots.end(), sequence->draft_slots.begin(), sequence->draft_slots.end());
    holders.push_back(sequence->pages->pages());
    if (sequence->computed_tokens > sequence->length()) return broken("more tokens computed than there are");
    if (sequence->pages->capacity_tokens() < sequence->computed_tokens) return broken("computed tokens without pages");
  }
  for (const Sequence* sequence : waiting_.All()) {
    if (sequence->computed_tokens != 0 || !sequence->pages->pages().empty())
      return broken("a waiting sequence holds pages");
  }
  RIDGE_RETURN_IF_ERROR(slots_.CheckIntegrity(slots));
  RIDGE_RETURN_IF_ERROR(cache_.CheckIntegrity());
  const std::vector<cache::PageId> cached = cache_.AllPages();
  holders.push_back(cached);
  return pool_->CheckIntegrity(holders);
}

}  // namespace ridge::engine
