// Finds stop strings in streamed text and holds back what could be the beginning of one.
//
//   StopMatcher matcher({"\nUser:"});
//   text = matcher.Push(piece);          // safe to show
//   if (matcher.matched()) ...           // the answer ends here; the stop string itself is never shown
//   text = matcher.Flush();              // at the end of the answer: what was held back
//
// Guarantees: the returned pieces, joined, are the pushed text up to the earliest stop string, or all of it; a list that never matches changes only
// where the text is cut into pieces. Cuts lie between code points when the pushed pieces do so.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ridge::service {

class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);  // empty strings are passed over

  std::string Push(std::string_view text);
  std::string Flush();
  bool matched() const { return matched_; }

 private:
  size_t HeldBytes() const;

  std::vector<std::string> stops_;
  std::string pending_;
  bool matched_ = false;
};

}  // namespace ridge::service
