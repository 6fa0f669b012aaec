#include "engine/lookup.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace ridge::engine {
namespace {

using Tokens = std::vector<TokenId>;

TEST(Lookup, DraftsWhatFollowedTheLongestAndThenTheLatestMatch) {
  Lookup lookup;
  Tokens draft;
  EXPECT_EQ(lookup.Draft(Tokens{}, 4, draft), 0);
  Tokens text = {1, 2, 3, 4, 7, 8, 9, 2, 3, 4, 5, 6, 0, 2, 3, 4};
  EXPECT_EQ(lookup.Draft(text, 3, draft), 3);
  EXPECT_EQ(draft, (Tokens{5, 6, 0})) << "the latest of two";
  text.insert(text.end(), {1, 2, 3, 4});
  EXPECT_EQ(lookup.Draft(text, 2, draft), 4);
  EXPECT_EQ(draft, (Tokens{7, 8})) << "the longest";
  text.push_back(99);
  EXPECT_EQ(lookup.Draft(text, 2, draft), 0);
  EXPECT_TRUE(draft.empty());
}

TEST(Lookup, ATextThatRepeatsGoesOnRepeating) {
  Lookup lookup;
  Tokens draft;
  EXPECT_EQ(lookup.Draft(Tokens{1, 2, 1, 2, 1, 2, 1, 2}, 5, draft), 6);
  EXPECT_EQ(draft, (Tokens{1, 2, 1, 2, 1}));
}

RC_GTEST_PROP(LookupProperty, AgreesWithASearch, ()) {
  Lookup lookup;
  Tokens text, draft;
  const int steps = *rc::gen::inRange(1, 12);
  for (int s = 0; s < steps; s++) {
    const auto more = *rc::gen::container<Tokens>(rc::gen::inRange<TokenId>(0, 4));
    text.insert(text.end(), more.begin(), more.end());
    const int64_t n = *rc::gen::inRange(1, 6), last = static_cast<int64_t>(text.size()) - 1;
    const int64_t match = lookup.Draft(text, n, draft);
    const auto match_at = [&](int64_t at) {
      int64_t m = 0;
      while (m <= at && m < Lookup::kMostMatch &&
             text[static_cast<size_t>(at - m)] == text[static_cast<size_t>(last - m)])
        m++;
      return m;
    };
    int64_t best = 0, best_at = -1, places = 0;
    for (int64_t at = last - 1; at >= 0 && places < Lookup::kMostPlaces && best < Lookup::kMostMatch; at--) {
      const int64_t m = match_at(at);
      places += m >= Lookup::kLeastMatch;
      if (m >= Lookup::kLeastMatch && m > best) best = m, best_at = at;
    }
    RC_ASSERT(match == best);
    RC_ASSERT(draft.size() == static_cast<size_t>(best == 0 ? 0 : n));
    for (int64_t i = 0; i < static_cast<int64_t>(draft.size()); i++) {
      const int64_t period = last - best_at, from = best_at + 1 + i % period;
      RC_ASSERT(draft[static_cast<size_t>(i)] == text[static_cast<size_t>(from)]);
    }
  }
}

}  // namespace
}  // namespace ridge::engine
