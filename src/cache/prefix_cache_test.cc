#include "cache/prefix_cache.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <set>

namespace ridge::cache {
namespace {

using Tokens = std::vector<TokenId>;

// A sequence as the scheduler drives one.
struct Walker {
  Walker(PagePool* pool, PrefixCache* cache, std::string_view root, Tokens all)
      : cache(cache), tokens(std::move(all)), table(pool, kPage), at(cache->Enter(root)) {}
  ~Walker() { Finish(); }

  static constexpr int32_t kPage = 4;

  int64_t Extend() {
    const int64_t taken = cache->Extend(at, tokens, static_cast<int64_t>(tokens.size()) - 1, table);
    computed = at.pages * kPage;
    return taken;
  }
  Status Compute(int64_t n) {
    RIDGE_RETURN_IF_ERROR(table.Reserve(computed + n));
    computed += n;
    return {};
  }
  bool Keep() { return cache->Insert(at, std::span(tokens).first(static_cast<size_t>(computed)), table); }
  void Finish(bool keep = true, bool ephemeral = false) {
    if (at.root == nullptr) return;
    if (keep && Keep()) cache->InsertPartial(at, std::span(tokens).first(static_cast<size_t>(computed)), table);
    cache->Touch(at);
    table.Clear();
    cache->Leave(at, ephemeral);
  }

  PrefixCache* cache;
  Tokens tokens;
  PageTable table;
  PrefixCache::Cursor at;
  int64_t computed = 0;
};

class PrefixCacheTest : public ::testing::Test {
 protected:
  // A sequence that computes all but its last token and ends.
  void Run(Tokens tokens, std::string_view root = "") {
    Walker walker(&pool, &cache, root, std::move(tokens));
    walker.Extend();
    const int64_t missing =
        static_cast<int64_t>(walker.tokens.size()) - 1 - walker.computed - 0;  // partial pages are computed anew here
    ASSERT_TRUE(walker.Compute(missing));
  }
  int64_t Cached(Tokens tokens, std::string_view root = "", MissReason* why = nullptr) {
    Walker walker(&pool, &cache, root, std::move(tokens));
    walker.Extend();
    const int64_t limit = static_cast<int64_t>(walker.tokens.size()) - 1;
    const PrefixCache::Partial partial = cache.FindPartial(walker.at, walker.tokens, limit);
    if (why != nullptr) *why = cache.Explain(walker.at, walker.tokens, partial.tokens, limit);
    const int64_t found = walker.computed + partial.tokens;
    walker.Finish(false);
    return found;
  }

  PagePool pool = std::move(*PagePool::Create(16));
  PrefixCache cache{&pool, Walker::kPage, 16};
};

TEST_F(PrefixCacheTest, FindsTheLongestPrefixToTheToken) {
  Run({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 99});
  EXPECT_EQ(cache.pages(), 3);
  EXPECT_EQ(pool.idle_pages(), 3);
  EXPECT_EQ(Cached({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), 10) << "the page filled in part too";
  EXPECT_EQ(Cached({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), 9) << "never the whole";
  EXPECT_EQ(Cached({1, 2, 3, 4, 5, 6, 7, 8}), 7);
  EXPECT_EQ(Cached({1, 2, 3, 4, 5, 6, 0, 8, 9}), 6);
  EXPECT_EQ(Cached({1, 2, 0}), 2);
  EXPECT_EQ(Cached({2, 2, 0}), 0);
  EXPECT_EQ(Cached({1}), 0);
  EXPECT_EQ(Cached({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, "other"), 0) << "nothing is shared between roots";
  EXPECT_TRUE(cache.CheckIntegrity());
}

TEST_F(PrefixCacheTest, AFullerPageReplacesOneFilledInPart) {
  Run({1, 2, 3, 4, 5, 6, 0});
  EXPECT_EQ(cache.pages(), 2);
  Run({1, 2, 3, 4, 5, 6, 7, 0});
  EXPECT_EQ(cache.pages(), 2);
  Run({1, 2, 3, 4, 5, 0});
  EXPECT_EQ(cache.pages(), 2) << "there is a page that holds this one";
  Run({1, 2, 3, 4, 5, 6, 7, 8, 0});
  EXPECT_EQ(cache.pages(), 2);
  Run({1, 2, 3, 4, 5, 7, 0});
  EXPECT_EQ(cache.pages(), 3);
  EXPECT_EQ(pool.held_pages(), 3);
  EXPECT_TRUE(cache.CheckIntegrity());
}

TEST_F(PrefixCacheTest, WhoComputedTheSamePageTwiceHoldsTheCachedOne) {
  Walker a(&pool, &cache, "", {1, 2, 3, 4, 5, 6, 7, 8, 9}), b(&pool, &cache, "", {1, 2, 3, 4, 5, 6, 7, 8, 9});
  ASSERT_TRUE(a.Compute(8));
  ASSERT_TRUE(b.Compute(8));
  EXPECT_EQ(pool.held_pages(), 4);
  a.Keep();
  b.Keep();
  EXPECT_EQ(pool.held_pages(), 2);
  EXPECT_TRUE(std::ranges::equal(a.table.pages(), b.table.pages()));
  EXPECT_EQ(pool.idle_pages(), 0);
  a.Finish();
  EXPECT_EQ(cache.Evict(10), 0) << "the other one holds them";
  b.Finish();
  EXPECT_EQ(cache.Evict(10), 2);
  EXPECT_EQ(pool.free_pages(), 16);
}

TEST_F(PrefixCacheTest, GivesUpTheLeastRecentlyUsedPathFromItsEnd) {
  Run({1, 1, 1, 1, 1, 1, 1, 1, 0});
  Run({2, 2, 2, 2, 2, 2, 2, 2, 0});
  Run({3, 3, 3, 3, 3, 3, 3, 3, 0});
  EXPECT_EQ(Cached({1, 1, 1, 1, 1, 1, 1, 1, 5}), 8);  // used again
  EXPECT_EQ(cache.Evict(1), 1);
  EXPECT_EQ(Cached({2, 2, 2, 2, 2, 2, 2, 2, 5}), 4);  // its first page, used again
  EXPECT_EQ(cache.Evict(3), 3);
  EXPECT_EQ(Cached({3, 3, 3, 3, 3, 3, 3, 3, 5}), 0);
  EXPECT_EQ(Cached({1, 1, 1, 1, 1, 1, 1, 1, 5}), 4);
  EXPECT_EQ(Cached({2, 2, 2, 2, 2, 2, 2, 2, 5}), 4);
  EXPECT_EQ(cache.evicted_pages(), 4u);
}

TEST_F(PrefixCacheTest, EveryMissExplainsItself) {
  const auto why = [&](Tokens tokens) {
    MissReason reason = MissReason::kNone;
    Cached(std::move(tokens), "", &reason);
    return Name(reason);
  };
  EXPECT_EQ(why({1, 2, 3}), "new");
  Run({1, 2, 3, 4, 5, 6, 7, 8, 9, 0});
  EXPECT_EQ(why({1, 2, 3, 4, 5, 6}), "none");
  EXPECT_EQ(why({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}), "new") << "what was cached ends there";
  EXPECT_EQ(why({1, 2, 3, 5, 5, 6}), "diverged");
  EXPECT_EQ(why({1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8}), "diverged");
  cache.Evict(2);
  EXPECT_EQ(why({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), "evicted");
  EXPECT_EQ(why({1, 2, 3, 4, 5, 7, 7, 8, 9, 10}), "new");
  EXPECT_EQ(why({1, 2, 3, 5, 5, 6}), "diverged");
}

TEST_F(PrefixCacheTest, TheLimitHoldsAndRefusalsAreCounted) {
  PrefixCache small(&pool, Walker::kPage, 2);
  {
    Walker a(&pool, &small, "", Tokens(20, 1));
    ASSERT_TRUE(a.Compute(16));
    EXPECT_FALSE(a.Keep());
    EXPECT_EQ(small.pages(), 2);
    EXPECT_EQ(small.refused_pages(), 1u);
    EXPECT_TRUE(small.CheckIntegrity());
  }
  EXPECT_EQ(pool.held_pages(), 2);
  {
    Walker b(&pool, &small, "", Tokens(9, 2));  // the old ones make room
    ASSERT_TRUE(b.Compute(8));
    EXPECT_TRUE(b.Keep());
  }
  EXPECT_EQ(small.pages(), 2);
  EXPECT_EQ(small.evicted_pages(), 2u);
  PrefixCache none(&pool, Walker::kPage, 0);
  Walker c(&pool, &none, "", Tokens(9, 2));
  ASSERT_TRUE(c.Compute(8));
  EXPECT_FALSE(c.Keep());
}

TEST_F(PrefixCacheTest, AnEphemeralRootLeavesNothing) {
  Walker a(&pool, &cache, "group", Tokens(20, 1)), b(&pool, &cache, "group", Tokens(20, 1));
  ASSERT_TRUE(a.Compute(19));
  a.Finish(true, true);
  EXPECT_EQ(b.Extend(), 4);
  b.Finish(true, true);
  EXPECT_EQ(cache.pages(), 0);
  EXPECT_EQ(pool.held_pages(), 0);
  EXPECT_TRUE(cache.CheckIntegrity());
}

TEST_F(PrefixCacheTest, APathAsLongAsTheLongestContextEndsWell) {
  PagePool large = std::move(*PagePool::Create(200'000));
  {
    PrefixCache deep(&large, Walker::kPage, 200'000);
    for (const bool ephemeral : {true, false}) {
      Walker a(&large, &deep, "deep", Tokens(799'999, 1));
      ASSERT_TRUE(a.Compute(799'996));
      a.Finish(true, ephemeral);
      EXPECT_EQ(deep.pages(), ephemeral ? 0 : 199'999);
    }
  }
  EXPECT_EQ(large.held_pages(), 0);
}

// Sequences that come, grow, leave and make room, against a set of all prefixes whose page is cached now.
RC_GTEST_PROP(PrefixCacheProperty, AgreesWithASetOfPrefixes, ()) {
  constexpr int32_t kPage = Walker::kPage;
  PagePool pool = std::move(*PagePool::Create(*rc::gen::inRange(1, 24)));
  const int64_t limit = *rc::gen::inRange(0, 24);
  {
    PrefixCache cache(&pool, kPage, limit);
    std::vector<std::unique_ptr<Walker>> walkers;
    std::vector<std::string> roots;                             // of each walker
    std::map<PageId, std::pair<std::string, Tokens>> contents;  // root and all tokens up to the end of the page
    const auto prefixes = [&](const std::string& root) {
      std::set<Tokens> known;
      for (const PageId page : cache.AllPages()) {
        if (contents[page].first == root) known.insert(contents[page].second);
      }
      return known;
    };
    const int actions = *rc::gen::inRange(1, 60);
    for (int i = 0; i < actions; i++) {
      const int kind = *rc::gen::inRange(0, 6);
      const size_t pick = walkers.empty() ? 0 : *rc::gen::inRange<size_t>(0, walkers.size());
      if (kind <= 1 || walkers.empty()) {
        const std::string root = *rc::gen::elementOf(std::vector<std::string>{"", "a"});
        const size_t length = *rc::gen::inRange<size_t>(1, 22);
        const Tokens tokens = *rc::gen::container<Tokens>(length, rc::gen::inRange<TokenId>(0, 2));
        walkers.push_back(std::make_unique<Walker>(&pool, &cache, root, tokens));
        roots.push_back(root);
        Walker& w = *walkers.back();
        // All prefixes that are cached, to the token.
        const std::set<Tokens> known = prefixes(root);
        size_t longest = 0;
        for (const Tokens& k : known) {
          const size_t common = static_cast<size_t>(std::ranges::mismatch(k, tokens).in1 - k.begin());
          longest = std::max(longest, std::min(common, length - 1));
        }
        w.Extend();
        for (size_t p = 0; p < static_cast<size_t>(w.at.pages); p++) {
          RC_ASSERT(contents[w.table.pages()[p]].second ==
                    Tokens(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(p + 1) * kPage));
          RC_ASSERT(contents[w.table.pages()[p]].first == root);
        }
        const PrefixCache::Partial partial = cache.FindPartial(w.at, tokens, static_cast<int64_t>(length) - 1);
        RC_ASSERT(w.computed + partial.tokens == static_cast<int64_t>(longest));
        if (partial.tokens > 0) {
          const Tokens& page = contents[partial.page].second;
          RC_ASSERT(page.size() >= longest);
          RC_ASSERT(std::equal(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(longest), page.begin()));
        }
      } else if (kind == 2) {  // computes some, if there is room or room can be made
        Walker& w = *walkers[pick];
        const int64_t n =
            std::min<int64_t>(*rc::gen::inRange(1, 9), static_cast<int64_t>(w.tokens.size()) - w.computed);
        const int64_t more = PagesForTokens(w.computed + n, kPage) - static_cast<int64_t>(w.table.pages().size());
        const int64_t before = w.computed, room = pool.free_pages() + pool.idle_pages();
        cache.Evict(more - pool.free_pages());
        RC_ASSERT(w.Compute(n).has_value() == (more <= room));
        for (int64_t t = before; t < w.computed; t++) {
          contents[w.table.pages()[static_cast<size_t>(t / kPage)]] = {
              roots[pick], Tokens(w.tokens.begin(), w.tokens.begin() + static_cast<std::ptrdiff_t>(t) + 1)};
        }
      } else if (kind == 3) {
        walkers[pick]->Keep();
      } else if (kind == 4) {
        const bool keep = *rc::gen::arbitrary<bool>();
        walkers[pick]->Finish(keep);
        walkers.erase(walkers.begin() + static_cast<std::ptrdiff_t>(pick));
        roots.erase(roots.begin() + static_cast<std::ptrdiff_t>(pick));
      } else {
        const int64_t n = *rc::gen::inRange(0, 30), idle = pool.idle_pages();
        RC_ASSERT(cache.Evict(n) == std::min<int64_t>(n, idle));
      }
      const Status whole = cache.CheckIntegrity();
      if (!whole) RC_FAIL(whole.error().Message());
      std::vector<std::span<const PageId>> holders;
      for (const auto& w : walkers) holders.push_back(w->table.pages());
      const std::vector<PageId> cached = cache.AllPages();
      holders.push_back(cached);
      const Status pages = pool.CheckIntegrity(holders);
      if (!pages) RC_FAIL(pages.error().Message());
      RC_ASSERT(cache.pages() <= limit);
    }
  }
  RC_ASSERT(pool.held_pages() == 0);
}

}  // namespace
}  // namespace ridge::cache
