#include "cache/page_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

namespace ridge::cache {
namespace {

TEST(PagePool, HandsOutLowIdsFirstThenTheMostRecentlyFreed) {
  PagePool pool = PagePool::Create(4).value();
  EXPECT_EQ(pool.Allocate().value(), 0);
  EXPECT_EQ(pool.Allocate().value(), 1);
  EXPECT_EQ(pool.Allocate().value(), 2);
  EXPECT_TRUE(pool.Release(0));
  EXPECT_TRUE(pool.Release(1));
  EXPECT_EQ(pool.Allocate().value(), 1);
  EXPECT_EQ(pool.Allocate().value(), 0);
  EXPECT_EQ(pool.Allocate().value(), 3);
  const Result<PageId> none = pool.Allocate();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kResourceExhausted);
}

TEST(PagePool, AllocatesAllOrNothing) {
  PagePool pool = PagePool::Create(3).value();
  PageId pages[4] = {7, 7, 7, 7};
  const Status status = pool.Allocate(pages);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().Message().find("3 of 3"), std::string::npos);
  EXPECT_EQ(pages[0], 7);
  EXPECT_EQ(pool.free_pages(), 3);
  EXPECT_TRUE(pool.Allocate(std::span<PageId>(pages, 3)));
  EXPECT_EQ(pool.held_pages(), 3);
  EXPECT_TRUE(pool.Allocate(std::span<PageId>()));
}

TEST(PagePool, RefusesBadCapacities) {
  for (const int32_t capacity : {0, -1, PagePool::kMaxCapacityPages + 1}) {
    const Result<PagePool> pool = PagePool::Create(capacity);
    ASSERT_FALSE(pool) << capacity;
    EXPECT_EQ(pool.error().code, Code::kInvalidArgument);
  }
}

TEST(PagePoolDeathTest, MisuseEndsTheProcess) {
  PagePool pool = PagePool::Create(2).value();
  EXPECT_DEATH(pool.Release(0), "");
  EXPECT_DEATH(pool.AddRef(1), "");
  EXPECT_DEATH(pool.AddRef(kNoPage), "");
  EXPECT_DEATH(pool.Release(2), "");
}

TEST(PagePool, IntegrityFindsLeaksAndStrangers) {
  PagePool pool = PagePool::Create(3).value();
  const PageId page = pool.Allocate().value();
  pool.AddRef(page);
  const PageId one[] = {page};
  const PageId two[] = {page, kNoPage};
  const PageId foreign[] = {3};
  EXPECT_TRUE(pool.CheckIntegrity());
  EXPECT_FALSE(pool.CheckIntegrity(std::vector<std::span<const PageId>>{one}));  // one reference has no holder
  EXPECT_TRUE(pool.CheckIntegrity(std::vector<std::span<const PageId>>{one, two}));
  EXPECT_FALSE(pool.CheckIntegrity(std::vector<std::span<const PageId>>{one, two, one}));
  EXPECT_FALSE(pool.CheckIntegrity(std::vector<std::span<const PageId>>{foreign}));
}

TEST(PagePool, CountsPagesThatOnlyTheCacheHolds) {
  PagePool pool = PagePool::Create(3).value();
  const PageId page = pool.Allocate().value();
  pool.AddRef(page);
  pool.SetCached(page, true);
  EXPECT_EQ(pool.idle_pages(), 0);
  pool.Release(page);
  EXPECT_EQ(pool.idle_pages(), 1);
  pool.AddRef(page);
  EXPECT_EQ(pool.idle_pages(), 0);
  pool.Release(page);
  EXPECT_TRUE(pool.CheckIntegrity());
  EXPECT_DEATH(pool.Release(page), "");
  EXPECT_DEATH(pool.SetCached(page, true), "");
  pool.SetCached(page, false);
  EXPECT_EQ(pool.idle_pages(), 0);
  EXPECT_TRUE(pool.Release(page));
  EXPECT_TRUE(pool.CheckIntegrity());
}

// Any sequence of calls against a map from page to references.
RC_GTEST_PROP(PagePoolProperty, AgreesWithANaiveModel, ()) {
  const int32_t capacity = *rc::gen::inRange(1, 12);
  PagePool pool = PagePool::Create(capacity).value();
  std::map<PageId, int> model;
  const auto steps = *rc::gen::container<std::vector<std::pair<int, int>>>(
      rc::gen::pair(rc::gen::inRange(0, 4), rc::gen::inRange(0, 1000)));
  for (const auto& [kind, pick] : steps) {
    auto held = model.begin();
    if (!model.empty()) std::advance(held, pick % static_cast<int>(model.size()));
    switch (kind) {
      case 0: {
        const Result<PageId> page = pool.Allocate();
        RC_ASSERT(page.has_value() == (static_cast<int32_t>(model.size()) < capacity));
        if (page) RC_ASSERT(model.emplace(*page, 1).second);
        break;
      }
      case 1: {
        std::vector<PageId> pages(static_cast<size_t>(pick % 5), kNoPage);
        const bool fits = static_cast<int32_t>(model.size() + pages.size()) <= capacity;
        RC_ASSERT(pool.Allocate(pages).has_value() == fits);
        if (!fits) break;
        for (const PageId page : pages) RC_ASSERT(model.emplace(page, 1).second);
        break;
      }
      case 2:
        if (model.empty()) break;
        pool.AddRef(held->first);
        ++held->second;
        break;
      default:
        if (model.empty()) break;
        RC_ASSERT(pool.Release(held->first) == (held->second == 1));
        if (--held->second == 0) model.erase(held);
    }
    RC_ASSERT(pool.CheckIntegrity().has_value());
    RC_ASSERT(pool.held_pages() == static_cast<int32_t>(model.size()));
    RC_ASSERT(pool.free_pages() == capacity - pool.held_pages());
    for (PageId page = 0; page < capacity; ++page) {
      RC_ASSERT(pool.references(page) == (model.contains(page) ? model[page] : 0));
    }
  }
}

}  // namespace
}  // namespace ridge::cache
