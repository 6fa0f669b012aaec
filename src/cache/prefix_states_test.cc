// Checkpoints in the prefix cache: found by path and token, moved with their page, given up with it or when there are too many.
#include <gtest/gtest.h>

#include <numeric>

#include "cache/prefix_cache.h"

namespace ridge::cache {
namespace {

using Tokens = std::vector<TokenId>;
using Kind = PrefixCache::StateKind;
constexpr int32_t kPage = 4;

class PrefixStatesTest : public ::testing::Test {
 protected:
  PrefixStatesTest() { cache.EnableStates(&slots, 3); }
  ~PrefixStatesTest() override {
    EXPECT_TRUE(cache.CheckIntegrity());
    EXPECT_TRUE(slots.CheckIntegrity(cache.StateSlots()));
  }

  // A sequence that computes all of these tokens and ends; its slot is the checkpoint there. Returns the slot.
  int32_t Run(const Tokens& tokens, Kind kind = Kind::kRunEnd) {
    PageTable table(&pool, kPage);
    PrefixCache::Cursor at = cache.Enter("");
    EXPECT_TRUE(table.Reserve(static_cast<int64_t>(tokens.size())));
    EXPECT_TRUE(cache.Insert(at, tokens, table));
    if (tokens.size() % kPage != 0) {
      EXPECT_TRUE(cache.InsertPartial(at, tokens, table));
    }
    const int32_t slot = slots.Take();
    cache.KeepState(at, tokens, slot, kind);
    table.Clear();
    cache.Leave(at);
    EXPECT_TRUE(cache.CheckIntegrity());
    return slot;
  }
  // {tokens of the deepest checkpoint, how far pages go}
  std::pair<int64_t, int64_t> Find(const Tokens& tokens, int32_t* slot = nullptr) {
    PrefixCache::Cursor at = cache.Enter("");
    const PrefixCache::StateMatch match = cache.FindState(at, tokens, static_cast<int64_t>(tokens.size()));
    cache.Leave(at);
    if (slot != nullptr) *slot = match.slot;
    return {match.tokens, match.cached_tokens};
  }
  // A run that goes on from there.
  void Use(const Tokens& tokens) {
    PrefixCache::Cursor at = cache.Enter("");
    cache.UseState(cache.FindState(at, tokens, static_cast<int64_t>(tokens.size())));
    cache.Leave(at);
    EXPECT_TRUE(cache.CheckIntegrity());
  }
  using Pair = std::pair<int64_t, int64_t>;

  PagePool pool = std::move(*PagePool::Create(32));
  SlotPool slots{4};
  PrefixCache cache{&pool, kPage, 32};
};

TEST_F(PrefixStatesTest, TheDeepestOneOnThePathIsFound) {
  const int32_t first = Run({1, 2, 3, 4, 5, 6}), second = Run({1, 2, 3, 4, 5, 6, 7, 8, 9});
  int32_t slot = kNoSlot;
  EXPECT_EQ(Find({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, &slot), Pair(9, 9));
  EXPECT_EQ(slot, second);
  EXPECT_EQ(Find({1, 2, 3, 4, 5, 6, 7, 8}, &slot), Pair(6, 8))
      << "the fuller page has the checkpoint of the one it replaced";
  EXPECT_EQ(slot, first);
  EXPECT_EQ(Find({1, 2, 3, 4, 5, 6, 9}), Pair(6, 6));
  EXPECT_EQ(Find({1, 2, 3, 4, 5, 9}), Pair(0, 5)) << "one token too early";
  EXPECT_EQ(Find({9}), Pair(0, 0));
  EXPECT_EQ(Find({1, 2, 3, 4, 5, 6}), Pair(6, 6));
}

TEST_F(PrefixStatesTest, AmongManyBranchesTheOneWithTheCheckpointIsFound) {
  Run({1, 2, 3, 50, 7});
  for (TokenId i = 0; i < 10; i++) {
    PageTable table(&pool, kPage);
    PrefixCache::Cursor at = cache.Enter("");
    const Tokens tokens = {1, 2, 3, 10 * i, 8};
    ASSERT_TRUE(table.Reserve(4));
    ASSERT_TRUE(cache.Insert(at, std::span(tokens).first(4), table));
    table.Clear();
    cache.Leave(at);
  }
  Run({1, 2, 3});
  EXPECT_EQ(Find({1, 2, 3, 90, 1}), Pair(3, 4)) << "it lies in another branch's page";
  EXPECT_EQ(Find({1, 2, 3, 4, 1}), Pair(3, 3));
}

TEST_F(PrefixStatesTest, ThoseUsedLeastRecentlyGoFirst) {
  Run({1, 1, 1, 1, 1});
  Run({2, 2, 2, 2, 2});
  Run({3, 3, 3, 3, 3});
  for (int i = 0; i < 2; i++) Use({1, 1, 1, 1, 1});
  Run({4, 4, 4, 4, 4});
  EXPECT_EQ(Find({2, 2, 2, 2, 2}), Pair(0, 5)) << "pages stay";
  Run({5, 5, 5, 5, 5});
  EXPECT_EQ(Find({3, 3, 3, 3, 3}).first, 0);
  EXPECT_EQ(Find({1, 1, 1, 1, 1}).first, 5);
  EXPECT_EQ(cache.states(), 3);
}

// The kind from which next turns do not go on goes before the other one, however late it came.
TEST_F(PrefixStatesTest, EndsThatNobodyGoesOnFromGoFirst) {
  for (const Kind kind : {Kind::kRunEnd, Kind::kPromptEnd, Kind::kRunEnd}) {
    const Kind other = kind == Kind::kRunEnd ? Kind::kPromptEnd : Kind::kRunEnd;
    for (TokenId i = 0; i < 200; i++) {  // more than are remembered
      Run({60, 1, 2, 3, i}, kind);
      Use({60, 1, 2, 3, i, 1});
      cache.Evict(100);
    }
    Run({1, 1, 1, 1, 1}, kind);
    Run({2, 2, 2, 2, 2}, other);
    Run({3, 3, 3, 3, 3}, kind);
    Run({4, 4, 4, 4, 4}, kind);
    EXPECT_EQ(Find({1, 1, 1, 1, 1}).first, 5);
    EXPECT_EQ(Find({2, 2, 2, 2, 2}).first, 0);
    cache.Evict(100);
  }
}

TEST_F(PrefixStatesTest, AConversationThatWentOnNeedsItsLastEndAlone) {
  Run({1, 1, 1, 1, 1});
  Run({2, 2, 2, 2, 2});
  Use({2, 2, 2, 2, 2, 7});
  Run({2, 2, 2, 2, 2, 7});
  Run({3, 3, 3, 3, 3});
  EXPECT_EQ(Find({1, 1, 1, 1, 1}).first, 5) << "used less recently, but nobody went on from here";
  EXPECT_EQ(Find({2, 2, 2, 2, 2, 8}).first, 0);
  EXPECT_EQ(Find({2, 2, 2, 2, 2, 7}).first, 6);
  Use({2, 2, 2, 2, 2, 7});
  Run({2, 2, 2, 2, 2, 7});  // which came no further
  Run({4, 4, 4, 4, 4});
  EXPECT_EQ(Find({2, 2, 2, 2, 2, 7}).first, 6);
  EXPECT_EQ(Find({1, 1, 1, 1, 1}).first, 0);
}

TEST_F(PrefixStatesTest, WhatSeveralGoOnFromStays) {
  Run({1, 1, 1, 1, 1});
  Use({1, 1, 1, 1, 1, 2});
  Use({1, 1, 1, 1, 1, 3});
  Run({2, 2, 2, 2, 2});
  Run({3, 3, 3, 3, 3});
  Use({1, 1, 1, 1, 1, 4});
  Run({4, 4, 4, 4, 4});
  EXPECT_EQ(Find({1, 1, 1, 1, 1}).first, 5);
  // Where some have parted already the first one who comes is not the only one.
  PageTable table(&pool, kPage);
  PrefixCache::Cursor at = cache.Enter("");
  ASSERT_TRUE(table.Reserve(4));
  const Tokens parting = {9, 9, 9, 9};
  const int32_t slot = cache.ReserveState().value();
  EXPECT_TRUE(cache.Insert(at, parting, table));
  EXPECT_TRUE(cache.KeepReservedState(at, parting, slot, Kind::kParting));
  table.Clear();
  cache.Leave(at);
  Use({9, 9, 9, 9, 1});
  Run({5, 5, 5, 5, 5});
  EXPECT_EQ(Find(parting).first, 4);
}

TEST_F(PrefixStatesTest, ReservedSlotsCountAndComeBack) {
  std::vector<int32_t> reserved;
  Run({1, 1, 1, 1});
  for (int i = 0; i < 3; i++) reserved.push_back(cache.ReserveState().value());
  EXPECT_EQ(cache.states(), 0) << "made room";
  EXPECT_FALSE(cache.ReserveState());
  Run({2, 2, 2, 2});
  EXPECT_EQ(cache.states(), 0) << "no room for a slot that was not reserved: it is free again";
  for (int32_t slot : reserved) cache.DropState(slot);
  EXPECT_EQ(slots.free_slots(), 4);
}

TEST_F(PrefixStatesTest, ACheckpointGoesWithItsPage) {
  Run({1, 1, 1, 1, 1});
  EXPECT_EQ(slots.free_slots(), 3);
  EXPECT_EQ(cache.Evict(1), 1);
  EXPECT_EQ(cache.states(), 0);
  EXPECT_EQ(slots.free_slots(), 4);
  PrefixCache::Cursor at = cache.Enter("");
  EXPECT_FALSE(cache.KeepState(at, Tokens{1, 1, 1, 1}, slots.Take())) << "whose pages the cursor does not have";
  EXPECT_EQ(slots.free_slots(), 4);
  cache.Leave(at);
}

}  // namespace
}  // namespace ridge::cache
