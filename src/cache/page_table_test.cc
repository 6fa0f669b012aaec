#include "cache/page_table.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>

namespace ridge::cache {
namespace {

std::vector<PageId> Copy(std::span<const PageId> pages) { return {pages.begin(), pages.end()}; }

TEST(PageTable, ReservesWholePages) {
  PagePool pool = PagePool::Create(4).value();
  PageTable table(&pool, 16);
  ASSERT_TRUE(table.Reserve(0));
  EXPECT_EQ(pool.held_pages(), 0);
  ASSERT_TRUE(table.Reserve(1));
  ASSERT_TRUE(table.Reserve(16));
  EXPECT_EQ(pool.held_pages(), 1);
  ASSERT_TRUE(table.Reserve(17));
  EXPECT_EQ(table.capacity_tokens(), 32);
  for (const int64_t tokens : {int64_t{65}, std::numeric_limits<int64_t>::max()}) {
    const Status status = table.Reserve(tokens);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kResourceExhausted);
    EXPECT_EQ(pool.held_pages(), 2);
  }
  ASSERT_TRUE(table.Reserve(64));
  EXPECT_EQ(pool.free_pages(), 0);
  table.Truncate(17);
  EXPECT_EQ(table.pages().size(), 2u);
  EXPECT_EQ(pool.free_pages(), 2);
}

TEST(PageTable, DestructorAndMoveLeakNothing) {
  PagePool pool = PagePool::Create(4).value();
  {
    PageTable a(&pool, 8);
    ASSERT_TRUE(a.Reserve(20));
    PageTable b(std::move(a));
    EXPECT_EQ(pool.held_pages(), 3);
    PageTable c(&pool, 8);
    ASSERT_TRUE(c.Reserve(8));
    c = std::move(b);
    EXPECT_EQ(pool.held_pages(), 3);
    EXPECT_EQ(c.pages().size(), 3u);
  }
  EXPECT_EQ(pool.held_pages(), 0);
  EXPECT_TRUE(pool.CheckIntegrity());
}

TEST(PageTable, SharedPrefixIsCopiedBeforeItIsWritten) {
  PagePool pool = PagePool::Create(4).value();
  PageTable first(&pool, 8);
  ASSERT_TRUE(first.Reserve(16));
  PageTable second(&pool, 8);
  second.AdoptPrefix(first.pages());
  EXPECT_EQ(pool.held_pages(), 2);
  second.Truncate(12);  // the last page is shared and half used
  const auto copy = second.PrepareWrite(12).value();
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy->from, first.pages()[1]);
  EXPECT_EQ(copy->to, second.pages()[1]);
  EXPECT_NE(copy->from, copy->to);
  EXPECT_FALSE(second.PrepareWrite(12).value().has_value());
  EXPECT_FALSE(second.PrepareWrite(16).value().has_value());
  EXPECT_FALSE(first.PrepareWrite(8).value().has_value());  // private again
  ASSERT_TRUE(first.Reserve(24));
  EXPECT_EQ(pool.free_pages(), 0);
  EXPECT_EQ(second.PrepareWrite(0).error().code, Code::kResourceExhausted);
  EXPECT_EQ(pool.references(0), 2);
}

TEST(PageTable, WindowDropsOnlyWholePagesBehindIt) {
  PagePool pool = PagePool::Create(4).value();
  PageTable table(&pool, 8);
  ASSERT_TRUE(table.Reserve(32));
  table.DropBefore(15);
  EXPECT_EQ(Copy(table.pages()), (std::vector<PageId>{kNoPage, 1, 2, 3}));
  table.DropBefore(10);
  table.DropBefore(16);
  EXPECT_EQ(Copy(table.pages()), (std::vector<PageId>{kNoPage, kNoPage, 2, 3}));
  EXPECT_EQ(pool.free_pages(), 2);
  table.Truncate(3);
  EXPECT_EQ(pool.free_pages(), 4);
  table.Clear();
  ASSERT_TRUE(table.Reserve(8));
  EXPECT_NE(table.pages()[0], kNoPage);
  table.DropBefore(1000);
  EXPECT_EQ(pool.free_pages(), 4);
}

// Several sequences that grow, shrink, share and end, against the rule that every page's references are its holders.
RC_GTEST_PROP(PageTableProperty, ReferencesAreExactlyTheHolders, ()) {
  const int32_t capacity = *rc::gen::inRange(1, 20);
  const int32_t page_tokens = *rc::gen::inRange(1, 5);
  PagePool pool = PagePool::Create(capacity).value();
  std::vector<std::unique_ptr<PageTable>> tables;
  const auto steps = *rc::gen::container<std::vector<std::tuple<int, int, int>>>(
      rc::gen::tuple(rc::gen::inRange(0, 7), rc::gen::inRange(0, 1000), rc::gen::inRange(0, 40)));
  for (const auto& [kind, pick, tokens] : steps) {
    PageTable* table = tables.empty() ? nullptr : tables[static_cast<size_t>(pick) % tables.size()].get();
    const std::vector<PageId> before = table ? Copy(table->pages()) : std::vector<PageId>{};
    const int32_t free_before = pool.free_pages();
    if (kind == 0 || table == nullptr) {
      tables.push_back(std::make_unique<PageTable>(&pool, page_tokens));
    } else if (kind == 1) {
      const int64_t more = PagesForTokens(tokens, page_tokens) - static_cast<int64_t>(before.size());
      const bool ok = table->Reserve(tokens).has_value();
      RC_ASSERT(ok == (more <= free_before));
      RC_ASSERT(pool.free_pages() == free_before - (ok && more > 0 ? more : 0));
      RC_ASSERT(std::equal(before.begin(), before.end(), table->pages().begin()));
      if (!ok) RC_ASSERT(table->pages().size() == before.size());
    } else if (kind == 2) {
      table->Truncate(tokens);
      RC_ASSERT(table->pages().size() == std::min<size_t>(before.size(), PagesForTokens(tokens, page_tokens)));
    } else if (kind == 3) {
      table->DropBefore(tokens);
      for (size_t i = 0; i < before.size(); ++i) {
        const bool passed = static_cast<int64_t>(i + 1) * page_tokens <= tokens;
        RC_ASSERT(table->pages()[i] == (passed ? kNoPage : before[i]));
      }
    } else if (kind == 4) {  // a new sequence on the pages of this one
      if (std::ranges::find(before, kNoPage) == before.end()) {
        tables.push_back(std::make_unique<PageTable>(&pool, page_tokens));
        tables.back()->AdoptPrefix(before);
      }
    } else if (kind == 5) {
      const size_t page = static_cast<size_t>(tokens / page_tokens);
      if (page < before.size() && before[page] != kNoPage) {
        const bool shared = pool.references(before[page]) > 1;
        const auto copy = table->PrepareWrite(tokens);
        RC_ASSERT(copy.has_value() == (!shared || free_before > 0));
        if (copy) {
          RC_ASSERT(copy->has_value() == shared);
          RC_ASSERT(pool.references(table->pages()[page]) == 1);
        }
      }
    } else {
      tables.erase(tables.begin() + pick % static_cast<int>(tables.size()));
    }
    std::vector<std::span<const PageId>> holders;
    for (const auto& t : tables) holders.push_back(t->pages());
    const Status status = pool.CheckIntegrity(holders);
    if (!status) RC_FAIL(status.error().Message());
  }
  tables.clear();
  RC_ASSERT(pool.free_pages() == capacity);
}

}  // namespace
}  // namespace ridge::cache
