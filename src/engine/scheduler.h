// Decides what the next step computes. Sees no device, clock or thread: sequences in, Plan out.
//
//   Scheduler scheduler({.max_running = 1, .step_tokens = 512, .context_tokens = 4096, .page_tokens = 32}, &pool);
//   scheduler.Add(std::move(sequence));
//   for (const Plan* plan = &scheduler.Next(); !plan->chunks.empty(); plan = &scheduler.Next()) { Run(*plan); scheduler.Commit(); Accept(...); }
//
// Order of a step: running sequences that decode, then prompt chunks of running ones, then waiting ones; beside sequences that
// decode only as many prompt tokens as StepCosts allows. When pages run
// out, cached ones that nobody holds are given up, and then the youngest running sequence gives its own back and waits again, before all others; what
// of it is no longer cached then is computed again.
// Drafts: when no prompt is worked on, sequences that speculate verify as many drafted tokens as DraftPolicy expects to pay; pages are never taken from
// anyone for them. Those that found nothing to look up may be drafted by a model: Next names them, and who runs that model places what it says.
// Prompts: pages of a prefix that is cached are taken over, and of a page that fits in part a copy; what an older sequence is just computing is
// waited for. The last token of a sequence is always computed.
// A prompt whose log-probabilities are asked for goes in chunks that have logit rows for all their tokens, so memory does not grow with it.
// Guarantees: of those that wait WaitingQueue says who is next; with one priority and tenant nobody is admitted before an older one. The running sequence that was admitted first always gets on. A plan has at most step_tokens
// tokens and max_logit_rows logit rows. A running sequence has a state slot of its own. Only the scheduler changes the pool. An allocation that fails costs one
// sequence its place (starved), a draft or a cached page, never the state of the others. Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cache/page_pool.h"
#include "cache/prefix_cache.h"
#include "engine/forecast.h"
#include "engine/sequence.h"
#include "engine/step_costs.h"
#include "engine/waiting_queue.h"

namespace ridge::engine {

struct SchedulerOptions {
  int64_t max_running = 1;
  int64_t step_tokens = 512;
  int64_t context_tokens = 4096;  // prompt and output of one sequence
  int32_t page_tokens = 32;
  int64_t cache_pages = 0;     // that the prefix cache may hold
  int64_t max_logit_rows = 0;  // of a step, drafts included; less than max_running: max_running
  bool draft_model = false;    // somebody looks at draft_asks
  bool recurrent = false;      // the model keeps state besides the KV; then
  int64_t checkpoints = 0;     // that the prefix cache may hold, and
  int64_t draft_slots = 0;     // drafts of a step at most. Slots are those below the sum of the three
  TokenId thinking =
      -1;  // begins the thoughts of a turn, which the next turn's prompt leaves out; -1: there is no such token
};

// Tokens [begin, begin + tokens.size()) of one sequence.
struct Chunk {
  Sequence* sequence = nullptr;  // borrowed until the sequence is removed
  int64_t begin = 0;
  std::span<const TokenId> tokens;
  std::span<const cache::PageId> pages;  // [P], of the sequence from its first token on
  bool logits = false;                   // of the last token, and of each draft
  std::span<const TokenId> drafts = {};  // behind tokens: perhaps the next ones
  int64_t score_begin =
      0;  // tokens [score_begin, score_begin + score_rows) have logits that score the prompt's next token
  int64_t score_rows = 0;

  int64_t logit_rows() const { return score_rows + (logits ? 1 + static_cast<int64_t>(drafts.size()) : 0); }
};

// A sequence that a draft model may draft for.
struct DraftAsk {
  Sequence* sequence = nullptr;
  int64_t most = 0;   // tokens
  int64_t left = -1;  // that the answer may still get; -1: no limit but the context
  int64_t take = 0;   // for who answers: how many it drafts
};

struct Plan {
  std::vector<Chunk> chunks;
  int64_t tokens = 0, logit_rows = 0;  // over all chunks
  StepShape shape;

  bool drafted() const {
    for (const Chunk& chunk : chunks) {
      if (!chunk.drafts.empty()) return true;
    }
    return false;
  }
};

class Scheduler {
 public:
  // pool is borrowed.
  Scheduler(const SchedulerOptions& options, cache::PagePool* pool);

  // Whether a prompt can ever be answered with one token at least. Errors: kOutOfRange with what is needed and available.
  Status CheckFits(int64_t prompt_tokens) const;
  // Longest sequence: the context, or what the pool holds if that is less.
  int64_t limit_tokens() const;

  // Where there is no memory (std::bad_alloc) nothing has changed, and the caller still has the sequence.
  void Add(std::unique_ptr<Sequence>&& sequence);
  // The time in ms, which never goes back.
  void Advance(int64_t now_ms) { cache_.Advance(now_ms); }
  // Pages that pins of prefixes may hold in all: what is left beside the longest sequence, and half of the pool at most. So the oldest sequence
  // always gets on.
  int64_t max_pinned_pages() const;
  // The next step; empty when there is nothing to compute. Valid until the next call of any function here.
  const Plan& Next();
  // The sequence for which Next had no memory: then the plan is empty, and whoever called ends that sequence and asks again. All others are as they
  // were.
  std::optional<RequestId> starved() const { return starved_; }
  // The step that Next returned was not computed and will not be.
  void Abandon();
  // Page copies that must be done, in order, before the step that Next returned. Each is handed out once.
  std::vector<cache::PageCopy> TakeCopies() { return std::exchange(copies_, {}); }
  // The same of state slots; after the page copies.
  std::vector<cache::PageCopy> TakeStateCopies() { return std::exchange(state_copies_, {}); }
  // Between Next and Commit: who may be drafted by a model, and how many drafts the step still takes in all.
  std::span<DraftAsk> draft_asks() { return asks_; }
  int64_t draft_room() const { return draft_room_; }
  // Pages for so many drafts of a sequence that was asked for. False: there are none left.
  bool ReserveDrafts(Sequence& sequence, int64_t count);
  // What is in sequence.drafts joins the step. Only for sequences whose pages are reserved.
  void PlaceDrafts(Sequence& sequence);
  const StepCosts& costs() const { return costs_; }
  // What runs, for forecasts; the means are the caller's.
  Load CurrentLoad(double mean_answer_tokens) const;
  // The step that Next returned was computed, in so much time (0: not measured).
  void Commit(double step_ms = 0);
  // Appends a generated token; the reason if that was the last one.
  std::optional<FinishReason> Accept(Sequence& sequence, TokenId token) const;
  // The token that Accept just got is the next of the sequence's drafts: it is computed already.
  void AcceptDraft(Sequence& sequence) const { sequence.computed_tokens++; }
  // The token that Accept just got is not. `accepted` were; the pages of the others are given back.
  void EndDrafts(Sequence& sequence, int64_t accepted);
  // Takes a sequence out, wherever it is; its pages are the cache's or free. Null when there is none of this id.
  // held_pages: how many it held.
  std::unique_ptr<Sequence> Remove(RequestId id, int64_t* held_pages = nullptr);

  Sequence* Find(RequestId id) { return const_cast<Sequence*>(std::as_const(*this).Find(id)); }
  const Sequence* Find(RequestId id) const;  // null when there is none of this id
  std::optional<RequestId> AnyId() const;    // none: idle
  size_t waiting() const { return waiting_.size(); }
  size_t running() const { return running_.size(); }
  bool idle() const { return waiting_.empty() && running_.empty(); }
  int64_t preemptions() const { return preemptions_; }
  const cache::PrefixCache& cache() const { return cache_; }
  cache::PrefixCache& cache() { return cache_; }
  std::vector<RequestId> Ids() const;  // running, then waiting

  // Proves the guarantees that hold between calls. Errors: kInternal.
  Status CheckIntegrity() const;

 private:
  int64_t available_pages() const { return pool_->free_pages() + pool_->idle_pages() - pool_->pinned_idle_pages(); }
  void Begin(Sequence& sequence, cache::MissReason reason, int64_t token, int64_t gone_ms);
  bool MakeRoom(const Sequence& sequence, int64_t tokens);
  bool MayAdmit() const;
  int64_t Prompts() const;  // that are under way, or wait and have a place
  void PlanStep();
  void Clear();
  bool Admit();
  void PlacePrompt(Sequence& sequence);
  void ExtendCached(Sequence& sequence);
  bool CopyCached(Sequence& sequence);
  void Keep(Sequence& sequence);
  void Release(Sequence& sequence);
  bool Place(Sequence& sequence, int64_t count);
  bool PlaceOrPreempt(Sequence& sequence, int64_t count);
  void Preempt(size_t index);
  void Speculate();
  int64_t DraftRoom(const Sequence& sequence) const;
  Chunk* ChunkOf(const Sequence& sequence);
  void Unplan(const Sequence& sequence);
  // Recurrent models (scheduler_state.cc).
  int64_t state_gap() const;
  bool Mark(Sequence& sequence, int64_t token, bool minor);
  bool WaitsForState(Sequence& sequence, int64_t have);
  bool Resume(Sequence& sequence);
  void KeepMarks(Sequence& sequence);
  void TakeDraftSlots(Sequence& sequence, int64_t count);
  bool SettleDrafts(Sequence& sequence);
  void ReleaseState(Sequence& sequence);

  SchedulerOptions options_;
  cache::PagePool* pool_;
  cache::SlotPool slots_;  // of recurrent state, whether the model has such state or not
  cache::PrefixCache cache_;
  WaitingQueue waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in order of admission
  Plan plan_;
  std::vector<cache::PageCopy> copies_;
  std::vector<cache::PageCopy> state_copies_;
  StepCosts costs_;
  DraftPolicy draft_policy_;
  std::vector<DraftChoice> choices_;  // scratch
  std::vector<DraftAsk> asks_;
  int64_t draft_room_ = 0;
  int64_t prompt_room_ = 0;  // prompt tokens that the plan still takes
  int64_t score_room_ = 0;   // logit rows for prompts beside one row for each sequence
  int64_t preemptions_ = 0;
  Sequence* at_ = nullptr;  // that Next works on
  std::optional<RequestId> starved_;
};

}  // namespace ridge::engine
