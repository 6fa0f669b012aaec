#include "service/stop_matcher.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace ridge::service {
namespace {

// The text up to the stop string that begins first, cut as the pieces say.
std::string Shown(const std::vector<std::string>& stops, const std::vector<std::string>& pieces,
                  bool* matched = nullptr) {
  StopMatcher matcher(stops);
  std::string shown;
  for (const std::string& piece : pieces) shown += matcher.Push(piece);
  shown += matcher.Flush();
  if (matched != nullptr) *matched = matcher.matched();
  return shown;
}

TEST(StopMatcher, HoldsBackWhatMayBecomeAStopString) {
  StopMatcher matcher({"END", "\nUser:"});
  EXPECT_EQ(matcher.Push("one E"), "one ");
  EXPECT_EQ(matcher.Push("N"), "");
  EXPECT_EQ(matcher.Push("e"), "ENe");
  EXPECT_EQ(matcher.Push(" two\nUs"), " two");
  EXPECT_EQ(matcher.Push("er: x"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.Push("more"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, TheEndFlushesWhatWasHeld) { EXPECT_EQ(Shown({"END"}, {"the E", "N"}), "the EN"); }
TEST(StopMatcher, EmptyStopsAreNone) { EXPECT_EQ(Shown({"", ""}, {"a", "b"}), "ab"); }
TEST(StopMatcher, OverlappingBeginnings) { EXPECT_EQ(Shown({"aab"}, {"a", "a", "a", "b", "c"}), "a"); }
TEST(StopMatcher, TheEarliestOfSeveralWins) { EXPECT_EQ(Shown({"cd", "bcd"}, {"abcd"}), "a"); }

RC_GTEST_PROP(StopMatcherProperty, PiecesNeverChangeTheText, ()) {
  const auto letters = rc::gen::elementOf(std::string("ab"));
  const auto text = *rc::gen::container<std::string>(letters);
  const auto stops = *rc::gen::container<std::vector<std::string>>(3, rc::gen::container<std::string>(letters));
  std::vector<std::string> pieces;
  for (size_t at = 0; at < text.size();) {
    const auto size = *rc::gen::inRange<size_t>(1, 4);
    pieces.push_back(text.substr(at, size));
    at += size;
  }
  // A stop string ends the text where it is first complete; of those complete in one piece the earliest begins the cut. Character by character
  // that is: the shortest prefix that holds one.
  size_t cut = text.size();
  bool any = false;
  for (const std::string& stop : stops) {
    if (!stop.empty() && text.find(stop) != std::string::npos) any = true;
  }
  bool matched = false;
  const std::string shown = Shown(stops, pieces, &matched);
  RC_ASSERT(matched == any);
  RC_ASSERT(text.starts_with(shown));
  for (const std::string& stop : stops) {
    if (!stop.empty()) RC_ASSERT(shown.find(stop) == std::string::npos);
  }
  if (!any) RC_ASSERT(shown.size() == cut);
}

}  // namespace
}  // namespace ridge::service
