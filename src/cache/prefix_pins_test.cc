// Pins keep pages against everybody until their end, within a limit; branches that begin with thoughts go when a conversation leaves them.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <memory>
#include <string>

#include "cache/prefix_cache.h"

namespace ridge::cache {
namespace {

using Tokens = std::vector<TokenId>;
constexpr int32_t kPage = 4;
constexpr TokenId kThink = 99;

class PrefixPinsTest : public ::testing::Test {
 protected:
  PrefixPinsTest() {
    cache.EnableStates(&slots, 4);
    cache.EnablePins(6);
  }
  ~PrefixPinsTest() override { EXPECT_TRUE(cache.CheckIntegrity()) << cache.CheckIntegrity().error().found; }

  void Run(const Tokens& tokens, bool state = false) {
    PageTable table(&pool, kPage);
    PrefixCache::Cursor at = cache.Enter("");
    if (pool.free_pages() < 4) cache.Evict(4);
    ASSERT_TRUE(table.Reserve(static_cast<int64_t>(tokens.size())));
    if (cache.Insert(at, tokens, table) && tokens.size() % kPage != 0) cache.InsertPartial(at, tokens, table);
    cache.Touch(at);
    if (state) cache.KeepState(at, tokens, slots.Take());
    table.Clear();
    cache.Leave(at);
    ASSERT_TRUE(cache.CheckIntegrity()) << cache.CheckIntegrity().error().found;
    ASSERT_TRUE(pool.CheckIntegrity());
  }
  int64_t Pin(const Tokens& tokens, int64_t until_ms) {
    PrefixCache::Cursor at = cache.Enter("");
    const int64_t pinned = cache.Pin(at, tokens, until_ms);
    cache.Leave(at);
    EXPECT_TRUE(cache.CheckIntegrity()) << cache.CheckIntegrity().error().found;
    return pinned;
  }
  int64_t Drop(const Tokens& tokens) {
    PrefixCache::Cursor at = cache.Enter("");
    const int64_t dropped = cache.DropThoughts(at, tokens, kThink);
    cache.Leave(at);
    EXPECT_TRUE(cache.CheckIntegrity());
    return dropped;
  }
  // Tokens that whole pages hold.
  int64_t Cached(const Tokens& tokens) {
    PageTable table(&pool, kPage);
    PrefixCache::Cursor at = cache.Enter("");
    cache.Extend(at, tokens, static_cast<int64_t>(tokens.size()), table);
    const int64_t pages = at.pages;
    table.Clear();
    cache.Leave(at);
    return pages * kPage;
  }

  PagePool pool = std::move(*PagePool::Create(20));
  SlotPool slots{5};  // four checkpoints, and one for who runs
  PrefixCache cache{&pool, kPage, 20};
};

TEST_F(PrefixPinsTest, PinnedPagesStayUntilTheEndAndGoAfterwards) {
  Run({1, 2, 3, 4, 5, 6, 7, 8, 9});
  Run({21, 22, 23, 24, 25});
  EXPECT_EQ(Pin({1, 2, 3, 4, 5, 6, 7, 8, 9}, 1000), 9);
  EXPECT_EQ(cache.pinned_pages(), 3);
  EXPECT_EQ(pool.pinned_idle_pages(), 3);
  EXPECT_EQ(cache.Evict(20), 2) << "the others";
  EXPECT_EQ(cache.Evict(1), 0);
  cache.Advance(999);
  EXPECT_EQ(cache.Evict(1), 0);
  EXPECT_EQ(cache.next_pin_end_ms(), 1000);
  cache.Advance(1000);
  EXPECT_EQ(cache.pinned_pages(), 0);
  EXPECT_EQ(pool.pinned_idle_pages(), 0);
  EXPECT_EQ(cache.Evict(20), 3);
}

TEST_F(PrefixPinsTest, ALaterPinOfTheSameLastsAsLongAsEither) {
  Run({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(Pin({1, 2, 3, 4, 5, 6, 7, 8}, 1000), 8);
  EXPECT_EQ(Pin({1, 2, 3, 4}, 3000), 4);
  EXPECT_EQ(Pin({1, 2, 3, 4, 5, 6, 7, 8}, 500), 8) << "they are kept longer anyway";
  cache.Advance(1500);
  EXPECT_EQ(cache.pinned_pages(), 1);
  EXPECT_EQ(cache.Evict(9), 1);
  EXPECT_EQ(Cached({1, 2, 3, 4}), 4);
  EXPECT_EQ(Pin({1, 2, 3, 4}, 1200), 0) << "its end is over";
}

TEST_F(PrefixPinsTest, TheLimitHoldsAndWhatIsNotCachedIsNotPinned) {
  Tokens longer;
  for (TokenId i = 0; i < 30; i++) longer.push_back(i);
  Run(longer);
  EXPECT_EQ(Pin(longer, 1000), 6 * kPage) << "six pages of eight";
  Run({50, 51, 52, 53});
  EXPECT_EQ(Pin({50, 51, 52, 53}, 1000), 0);
  EXPECT_EQ(cache.Evict(20), 3);
  cache.Advance(1000);
  Run({50, 51, 52});
  EXPECT_EQ(Pin({50, 51, 52, 53}, 2000), 0) << "the page holds less";
  EXPECT_EQ(Pin({50, 51}, 2000), 2) << "the page holds more";
  Run({50, 51, 52, 53, 54});
  EXPECT_EQ(cache.pinned_pages(), 1) << "the fuller page took the pin over";
  EXPECT_EQ(cache.Evict(20), 8 - 2 + 1 - 0) << "all but it";
  EXPECT_EQ(Cached({50, 51, 52, 53}), 4);
}

TEST_F(PrefixPinsTest, ACheckpointIsPinnedWithItsPageAndHalfOfThemAtMost) {
  Run({1, 1, 1, 1, 1}, true);
  Run({2, 2, 2, 2, 2}, true);
  Run({3, 3, 3, 3, 3}, true);
  for (const TokenId t : {1, 2, 3}) EXPECT_EQ(Pin(Tokens(5, t), 1000), 5);
  for (TokenId t = 4; t < 9; t++) Run(Tokens(5, t), true);
  PrefixCache::Cursor at = cache.Enter("");
  for (const TokenId t : {1, 2, 3, 8})
    EXPECT_EQ(cache.FindState(at, Tokens(6, t), 6).tokens, t == 3 ? 0 : 5) << "checkpoint " << t;
  cache.Advance(1000);
  ASSERT_TRUE(cache.CheckIntegrity());
  cache.Leave(at);
  for (TokenId t = 10; t < 15; t++) Run(Tokens(5, t), true);
  at = cache.Enter("");
  EXPECT_EQ(cache.FindState(at, Tokens(6, 1), 6).tokens, 0) << "the pin is over";
  cache.Leave(at);
}

TEST_F(PrefixPinsTest, ThoughtsThatAConversationLeavesAreDropped) {
  Run({1, 2, 3, 4, 5, kThink, 7, 8, 9, 10, 11, 12, 13});
  Run({1, 2, 3, 4, 5, kThink, 7, 8, 9, 30, 31});
  Run({1, 2, 3, 4, 5, 6, 40, 41, 42});
  ASSERT_EQ(cache.pages(), 1 + 1 + 2 + 1 + 2);
  EXPECT_EQ(Drop({1, 2, 3, 4, 5, kThink, 7, 8, 50}), 0) << "it thinks on";
  EXPECT_EQ(Drop({1, 2, 3}), 0) << "it has not come there";
  EXPECT_EQ(Drop({1, 2, 3, 4}), 0);
  EXPECT_EQ(Drop({1, 2, 3, 9, 5, 6}), 0) << "another conversation";
  EXPECT_EQ(Drop({1, 2, 3, 4, 5, 20, 21, 22, 23}), 4);
  EXPECT_EQ(cache.dropped_pages(), 4u);
  EXPECT_EQ(Cached({1, 2, 3, 4, 5, 6, 40, 41}), 8) << "an answer without thoughts stays";
  PrefixCache::Cursor at = cache.Enter("");
  PageTable table(&pool, kPage);
  const Tokens back = {1, 2, 3, 4, 5, kThink, 7, 8, 9};
  cache.Extend(at, back, 8, table);
  int64_t gone_ms = -1;
  cache.Advance(70);
  EXPECT_EQ(cache.Explain(at, back, 1, 8, &gone_ms), MissReason::kThought);
  EXPECT_EQ(gone_ms, 70);
  table.Clear();
  cache.Leave(at);
}

TEST_F(PrefixPinsTest, ThoughtsInUseOrPinnedStay) {
  const Tokens first = {1, 2, 3, 4, kThink, 6, 7, 8, 9};
  Run(first);
  Pin({1, 2, 3, 4, kThink, 6, 7, 8}, 1000);
  EXPECT_EQ(Drop({1, 2, 3, 4, 5, 6, 7, 8}), 1) << "only what is behind the pin";
  cache.Advance(1000);
  PageTable table(&pool, kPage);
  PrefixCache::Cursor at = cache.Enter("");
  cache.Extend(at, first, 8, table);
  EXPECT_EQ(Drop({1, 2, 3, 4, 5, 6, 7, 8}), 0);
  table.Clear();
  cache.Leave(at);
  EXPECT_EQ(Drop({1, 2, 3, 4, 5, 6, 7, 8}), 1);
}

RC_GTEST_PROP(PrefixPins, RandomTrafficKeepsThePromise, ()) {
  PagePool pool = std::move(*PagePool::Create(12));
  SlotPool slots(5);
  PrefixCache cache(&pool, kPage, 10);
  cache.EnableStates(&slots, 4);
  cache.EnablePins(5);
  int64_t now_ms = 0;
  std::vector<std::pair<Tokens, int64_t>> pins;  // whole pages, and until when
  for (int step = 0; step < 120; step++) {
    const auto tokens =
        *rc::gen::container<Tokens>(*rc::gen::inRange<size_t>(1, 14), rc::gen::element<TokenId>(1, 2, kThink));
    const int what = *rc::gen::inRange(0, 8);
    PrefixCache::Cursor at = cache.Enter("");
    PageTable table(&pool, kPage);
    if (what == 0) {
      now_ms += *rc::gen::inRange(0, 40);
      cache.Advance(now_ms);
    } else if (what == 1) {
      cache.Evict(*rc::gen::inRange<int64_t>(0, 6));
    } else if (what == 2) {
      cache.DropThoughts(at, tokens, kThink);
    } else if (what == 3) {
      const int64_t until = now_ms + *rc::gen::inRange(1, 100);
      const int64_t pages = cache.Pin(at, tokens, until) / kPage;
      if (pages > 0) pins.emplace_back(Tokens(tokens.begin(), tokens.begin() + pages * kPage), until);
    } else {
      cache.Extend(at, tokens, static_cast<int64_t>(tokens.size()), table);
      const auto need = static_cast<int64_t>(tokens.size());
      const int64_t more = PagesForTokens(need, kPage) - static_cast<int64_t>(table.pages().size()) - pool.free_pages();
      if (more > 0) cache.Evict(more);
      if (table.Reserve(need)) {
        if (cache.Insert(at, tokens, table) && tokens.size() % kPage != 0) cache.InsertPartial(at, tokens, table);
        cache.Touch(at);
        if (what == 4) cache.KeepState(at, tokens, slots.Take(), PrefixCache::StateKind::kPromptEnd);
      }
      table.Clear();
    }
    cache.Leave(at);
    RC_ASSERT(cache.CheckIntegrity().has_value());
    RC_ASSERT(pool.CheckIntegrity().has_value());
    RC_ASSERT(slots.CheckIntegrity(cache.StateSlots()).has_value());
    std::erase_if(pins, [&](const auto& pin) { return pin.second <= now_ms; });
    for (const auto& [kept, until] : pins) {
      PageTable found(&pool, kPage);
      PrefixCache::Cursor there = cache.Enter("");
      RC_ASSERT(cache.Extend(there, kept, static_cast<int64_t>(kept.size()), found) * kPage ==
                static_cast<int64_t>(kept.size()));
      found.Clear();
      cache.Leave(there);
    }
  }
}

}  // namespace
}  // namespace ridge::cache
