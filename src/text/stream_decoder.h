// Turns generated token ids into text that can be shown at once.
//
//   StreamDecoder decoder(*tokenizer);
//   for (TokenId id : generated) print(decoder.Push(id));
//   print(decoder.Flush());
//
// Guarantees: every returned string is valid UTF-8; a code point that is split over tokens is held back until it is
// whole; what is truly broken becomes U+FFFD, once per maximal broken sequence. The output continues a text, so a
// leading space stays.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace ridge::text {

class StreamDecoder {
 public:
  // Borrows the tokenizer. `special`: also print control tokens.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool special = false)
      : tokenizer_(&tokenizer), special_(special) {}

  std::string Push(TokenId id);  // the text that is complete now, perhaps empty
  std::string Flush();           // the rest; the decoder is then as new
  bool pending() const { return !held_.empty(); }

 private:
  const Tokenizer* tokenizer_;
  bool special_;
  std::string held_;  // at most 3 bytes: the start of a code point
};

}  // namespace ridge::text
