#include "engine/scheduler.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace ridge::engine {
namespace {

std::unique_ptr<Sequence> NewSequence(RequestId id, int64_t prompt, int64_t max_tokens = -1) {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = id;
  sequence->prompt_tokens = prompt;
  sequence->max_tokens = max_tokens;
  for (int64_t i = 0; i < prompt; i++)
    sequence->tokens.push_back(static_cast<TokenId>(id * 1000 + static_cast<uint64_t>(i)));
  return sequence;
}

// What the KV of a token depends on: itself, all before it, and who may share it.
TokenId HashOf(const Sequence& sequence, int64_t t) {
  uint64_t hash = std::hash<std::string>()(sequence.cache_root.value_or("none"));
  for (int64_t i = 0; i <= t; i++)
    hash = hash * 1000003 + static_cast<uint64_t>(sequence.tokens[static_cast<size_t>(i)]) + 1;
  return static_cast<TokenId>(hash ^ (hash >> 32));
}

cache::PagePool Pool(int32_t pages) { return std::move(*cache::PagePool::Create(pages)); }

TEST(Scheduler, CutsAPromptIntoChunksAndAsksForLogitsOfTheLastTokenOnly) {
  cache::PagePool pool = Pool(8);
  Scheduler scheduler({.max_running = 1, .step_tokens = 5, .context_tokens = 100, .page_tokens = 4}, &pool);
  scheduler.Add(NewSequence(1, 12));
  std::vector<std::pair<int64_t, size_t>> chunks;
  for (int i = 0; i < 3; i++) {
    const Plan& plan = scheduler.Next();
    ASSERT_EQ(plan.chunks.size(), 1u);
    chunks.emplace_back(plan.chunks[0].begin, plan.chunks[0].tokens.size());
    EXPECT_EQ(plan.chunks[0].logits, i == 2);
    EXPECT_EQ(plan.logit_rows, i == 2 ? 1 : 0);
    EXPECT_EQ(plan.chunks[0].tokens[0], 1000 + plan.chunks[0].begin);
    EXPECT_GE(plan.chunks[0].pages.size() * 4,
              static_cast<size_t>(plan.chunks[0].begin) + plan.chunks[0].tokens.size());
    scheduler.Commit();
  }
  EXPECT_EQ(chunks, (std::vector<std::pair<int64_t, size_t>>{{0, 5}, {5, 5}, {10, 2}}));
}

TEST(Scheduler, RefusesWhatCanNeverFitWithFigures) {
  cache::PagePool pool = Pool(2);
  const Scheduler by_pool({.max_running = 1, .step_tokens = 8, .context_tokens = 100, .page_tokens = 4}, &pool);
  EXPECT_EQ(by_pool.limit_tokens(), 8);
  EXPECT_TRUE(by_pool.CheckFits(7));
  const Status refused = by_pool.CheckFits(8);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kOutOfRange);
  EXPECT_NE(refused.error().found.find("8 tokens"), std::string::npos);
  EXPECT_NE(refused.error().expected.find("8 tokens"), std::string::npos);
  const Scheduler by_context({.max_running = 1, .step_tokens = 8, .context_tokens = 5, .page_tokens = 4}, &pool);
  EXPECT_TRUE(by_context.CheckFits(4));
  EXPECT_FALSE(by_context.CheckFits(5));
}

TEST(Scheduler, EndsForStopTokenLengthAndFullContext) {
  cache::PagePool pool = Pool(8);
  Scheduler scheduler({.max_running = 1, .step_tokens = 8, .context_tokens = 6, .page_tokens = 4}, &pool);
  auto limited = NewSequence(1, 2, 2);
  EXPECT_EQ(scheduler.Accept(*limited, 7), std::nullopt);
  EXPECT_EQ(scheduler.Accept(*limited, 7), FinishReason::kLength);
  auto stopped = NewSequence(2, 2, 2);
  stopped->stop_tokens = {3, 9};
  EXPECT_EQ(scheduler.Accept(*stopped, 7), std::nullopt);
  EXPECT_EQ(scheduler.Accept(*stopped, 9), FinishReason::kStop) << "a stop token beats the length";
  auto full = NewSequence(3, 4);
  EXPECT_EQ(scheduler.Accept(*full, 7), std::nullopt);
  EXPECT_EQ(scheduler.Accept(*full, 7), FinishReason::kLength);
}

TEST(Scheduler, DecodesComeBeforePromptChunksAndOlderRequestsFirst) {
  cache::PagePool pool = Pool(64);
  Scheduler scheduler({.max_running = 3, .step_tokens = 6, .context_tokens = 100, .page_tokens = 4}, &pool);
  scheduler.Add(NewSequence(1, 3));
  EXPECT_EQ(scheduler.Next().chunks.size(), 1u);
  Sequence& first = *scheduler.Next().chunks[0].sequence;
  scheduler.Commit();
  (void)scheduler.Accept(first, 5);
  scheduler.Add(NewSequence(2, 4));
  scheduler.Add(NewSequence(3, 9));
  const Plan& plan = scheduler.Next();
  ASSERT_EQ(plan.chunks.size(), 3u);
  EXPECT_EQ(plan.chunks[0].sequence->id, 1u);
  EXPECT_EQ(plan.chunks[0].tokens.size(), 1u);
  EXPECT_EQ(plan.chunks[1].sequence->id, 2u);
  EXPECT_EQ(plan.chunks[1].tokens.size(), 4u);
  EXPECT_EQ(plan.chunks[2].sequence->id, 3u);
  EXPECT_EQ(plan.chunks[2].tokens.size(), 1u) << "what the budget leaves";
  EXPECT_EQ(plan.tokens, 6);
  EXPECT_EQ(plan.logit_rows, 2);
}

TEST(Scheduler, RemovedSequencesGiveTheirPagesBackWhereverTheyAre) {
  cache::PagePool pool = Pool(8);
  Scheduler scheduler({.max_running = 1, .step_tokens = 8, .context_tokens = 30, .page_tokens = 4}, &pool);
  scheduler.Add(NewSequence(1, 8));
  scheduler.Add(NewSequence(2, 8));
  (void)scheduler.Next();
  EXPECT_EQ(pool.held_pages(), 2);
  EXPECT_EQ(scheduler.Remove(3), nullptr);
  EXPECT_EQ(scheduler.Remove(2)->id, 2u);
  EXPECT_EQ(scheduler.Remove(1)->id, 1u);
  EXPECT_EQ(pool.held_pages(), 0);
  EXPECT_TRUE(scheduler.idle());
  EXPECT_TRUE(scheduler.Next().chunks.empty());
}

// Drives a scheduler with random requests, steps and removals against the laws in its header.
RC_GTEST_PROP(SchedulerProperty, LawsHoldUnderRandomTraffic, ()) {
  const int64_t max_running = *rc::gen::inRange(1, 5), page = *rc::gen::inRange(1, 6);
  const int64_t budget = max_running + *rc::gen::inRange(0, 12), context = *rc::gen::inRange(2, 40);
  cache::PagePool pool = Pool(*rc::gen::inRange(2, 30));
  const bool cached = *rc::gen::arbitrary<bool>(), recurrent = *rc::gen::arbitrary<bool>();
  const int64_t checkpoints = *rc::gen::inRange(0, 6);
  const int64_t max_rows = max_running + *rc::gen::inRange(0, 8);
  Scheduler scheduler({.max_running = max_running,
                       .step_tokens = budget,
                       .context_tokens = context,
                       .page_tokens = static_cast<int32_t>(page),
                       .cache_pages = *rc::gen::inRange(0, 30),
                       .max_logit_rows = max_rows,
                       .recurrent = recurrent,
                       .checkpoints = checkpoints},
                      &pool);
  struct State {
    int64_t tokens = 0;
    TokenId hash = 0;  // of the last one
  };
  std::vector<State> states(static_cast<size_t>(max_running + checkpoints));  // by slot
  std::map<cache::PageId, std::vector<TokenId>> contents;  // of each page: the tokens up to each of its slots
  std::vector<RequestId> alive;                            // in order of arrival
  std::map<RequestId, int64_t> computed;                   // what the fake runner has done of each
  std::set<RequestId> begun;
  RequestId next_id = 1;
  int i_token = 0, passed_over = 0;
  int64_t drafts_accepted = 0;
  const bool measured = *rc::gen::arbitrary<bool>(), mixed = *rc::gen::arbitrary<bool>();
  const auto forget = [&](RequestId id) {
    alive.erase(std::find(alive.begin(), alive.end(), id));
    computed.erase(id);
  };
  const auto step = [&] {
    const Plan& plan = scheduler.Next();
    for (const cache::PageCopy& copy : scheduler.TakeCopies()) contents[copy.to] = contents[copy.from];
    for (const cache::PageCopy& copy : scheduler.TakeStateCopies())
      states.at(static_cast<size_t>(copy.to)) = states.at(static_cast<size_t>(copy.from));
    RC_ASSERT(plan.tokens <= budget);
    RC_ASSERT(plan.logit_rows <= max_rows);
    RC_ASSERT(plan.chunks.empty() == alive.empty());
    if (alive.empty()) return;
    int64_t tokens = 0;
    bool oldest = false;
    for (const Chunk& chunk : plan.chunks) {
      const RequestId id = chunk.sequence->id;
      if (!begun.contains(id)) {  // nobody begins before an older one, but for those that wait for another's pages
        for (const RequestId other : alive) RC_ASSERT(cached || mixed || other >= id || begun.contains(other));
        begun.insert(id);
      }
      oldest |= id == alive.front();
      RC_ASSERT(!chunk.tokens.empty());
      // Goes on, or is computed again after a preemption, or what comes before lies in pages that hold just that.
      RC_ASSERT(cached || chunk.begin == computed[id] || chunk.begin == 0);
      for (int64_t t = 0; t < chunk.begin; t++) {
        const auto& held = contents[chunk.pages[static_cast<size_t>(t / page)]];
        RC_ASSERT(static_cast<int64_t>(held.size()) > t % page);
        RC_ASSERT(held[static_cast<size_t>(t % page)] == HashOf(*chunk.sequence, t));
      }
      const int64_t end = chunk.begin + static_cast<int64_t>(chunk.tokens.size());
      if (!chunk.drafts.empty()) {
        RC_ASSERT(chunk.logits && chunk.sequence->looks_up);
        RC_ASSERT(static_cast<int64_t>(chunk.pages.size()) * page >= end + static_cast<int64_t>(chunk.drafts.size()));
        const int64_t left = chunk.sequence->max_tokens - chunk.sequence->generated();
        if (chunk.sequence->max_tokens >= 0) RC_ASSERT(static_cast<int64_t>(chunk.drafts.size()) < left);
        for (int64_t d = 0; d < static_cast<int64_t>(chunk.drafts.size()); d++)  // overwritten, whatever they are
          contents[chunk.pages[static_cast<size_t>((end + d) / page)]].resize(static_cast<size_t>(page)),
              contents[chunk.pages[static_cast<size_t>((end + d) / page)]][static_cast<size_t>((end + d) % page)] = -1;
      }
      RC_ASSERT(static_cast<int64_t>(chunk.pages.size()) * page >= end);
      for (int64_t t = chunk.begin; t < end; t++) {
        auto& held = contents[chunk.pages[static_cast<size_t>(t / page)]];
        held.resize(static_cast<size_t>(page));
        held[static_cast<size_t>(t % page)] = HashOf(*chunk.sequence, t);
      }
      if (recurrent) {
        const Sequence& s = *chunk.sequence;
        const State& before = states.at(static_cast<size_t>(s.slot));
        RC_ASSERT(chunk.begin == 0 || before.tokens == chunk.begin);
        RC_ASSERT(chunk.begin == 0 || before.hash == HashOf(s, chunk.begin - 1));
        states.at(static_cast<size_t>(s.slot)) = {end, HashOf(s, end - 1)};
        for (const StateMark& mark : s.marks) {
          if (mark.token > chunk.begin && mark.token <= end)
            states.at(static_cast<size_t>(mark.slot)) = {mark.token, HashOf(s, mark.token - 1)};
        }
      }
      RC_ASSERT(chunk.logits == (end == chunk.sequence->length() && chunk.sequence->max_tokens != 0));
      computed[id] = end;
      tokens += static_cast<int64_t>(chunk.tokens.size() + chunk.drafts.size());
    }
    RC_ASSERT(tokens == plan.tokens);
    passed_over = oldest ? 0 : passed_over + 1;
    RC_ASSERT(mixed || passed_over <= (measured ? 1 : 0));  // the oldest always gets on, but for a step that measures
    scheduler.Commit(measured ? 1 + 0.01 * static_cast<double>(plan.tokens) : 0);
    const std::vector<Chunk> chunks = plan.chunks;
    for (const Chunk& chunk : chunks) {
      const RequestId id = chunk.sequence->id;
      Sequence& sequence = *chunk.sequence;
      const std::vector<TokenId> drafts = sequence.drafts;
      bool done = !chunk.logits && sequence.pending() == 0;
      for (size_t accepted = 0; chunk.logits; accepted++) {
        const TokenId token = static_cast<TokenId>(i_token++ / 3 % 2);
        done = scheduler.Accept(sequence, token).has_value();
        if (done) break;
        if (accepted == drafts.size() || token != drafts[accepted]) {
          if (!drafts.empty()) scheduler.EndDrafts(sequence, static_cast<int64_t>(accepted));
          break;
        }
        contents[sequence.pages->pages()[static_cast<size_t>(sequence.computed_tokens / page)]]
                [static_cast<size_t>(sequence.computed_tokens % page)] = HashOf(sequence, sequence.computed_tokens);
        scheduler.AcceptDraft(sequence);
        computed[id]++;
        drafts_accepted++;
      }
      if (!done) continue;
      RC_ASSERT(scheduler.Remove(id) != nullptr);
      forget(id);
    }
  };
  const int actions = *rc::gen::inRange(1, 120);
  for (int i = 0; i < actions; i++) {
    const int action = *rc::gen::inRange(0, 10);
    if (action < 3) {
      const int64_t prompt = *rc::gen::inRange(1, 30);
      if (scheduler.CheckFits(prompt)) {
        alive.push_back(next_id);
        auto sequence = NewSequence(next_id++, prompt, *rc::gen::inRange(-1, 24));
        if (cached) {
          sequence->tokens =
              *rc::gen::container<std::vector<TokenId>>(static_cast<size_t>(prompt), rc::gen::inRange<TokenId>(0, 2));
          const int root = *rc::gen::inRange(0, 4);
          if (root > 0) sequence->cache_root = std::string(1, static_cast<char>('a' + root));
          sequence->ephemeral_root = root == 3;
        }
        if (mixed) {
          sequence->priority = *rc::gen::inRange(0, 3);
          sequence->tenant = std::string(*rc::gen::inRange<size_t>(0, 3), 't');
        }
        sequence->looks_up = !recurrent && *rc::gen::arbitrary<bool>();
        scheduler.Add(std::move(sequence));
      }
    } else if (action == 3 && !alive.empty()) {
      const RequestId id = alive[*rc::gen::inRange<size_t>(0, alive.size())];
      RC_ASSERT(scheduler.Remove(id) != nullptr);
      forget(id);
    } else {
      step();
    }
    const Status whole = scheduler.CheckIntegrity();
    if (!whole) RC_FAIL(whole.error().Message());
  }
  for (int i = 0; !alive.empty(); i++) {
    RC_ASSERT(i < 20000);  // all end
    step();
  }
  RC_ASSERT(pool.held_pages() == pool.idle_pages());
  RC_CLASSIFY(drafts_accepted > 0, "drafts accepted");
  RC_ASSERT(recurrent || scheduler.cache().states() == 0);
}

}  // namespace
}  // namespace ridge::engine
