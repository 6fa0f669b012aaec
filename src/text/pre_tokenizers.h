// The pre-tokenizers that GGUF files name in tokenizer.ggml.pre: how a text is cut into words before byte-pair merging.
//
//   const PreTokenizer* pre = FindPreTokenizer("qwen2");
//   RIDGE_ASSIGN_OR_RETURN(WordSplitter splitter, WordSplitter::Compile(pre->splits));   // word_splitter.h
//
// Guarantees: one table, the names unique; every pattern compiles (a test enumerates the table).
#pragma once

#include <span>
#include <string_view>

namespace ridge::text {

enum class SplitKind {
  kRegex,
  // What follows is written out by hand because as a regex it takes quadratic time.
  kTrailingSpace,        // \s+$
  kNumbersByThree,       // runs of \p{N} in groups of three, counted from the right
  kDigitsByThreeWord,    // \d{1,3}(?=(?:\d{3})*\b)
  kDigitsByThreeBefore,  // (?=(\d{3})+(?!\d)): a cut before each group, no match of its own
};

// One pass over the pieces of the pass before: each match becomes a piece, and so does the text between two matches.
struct Split {
  SplitKind kind = SplitKind::kRegex;
  std::string_view
      pattern;  // of kRegex, in the syntax that Oniguruma and PCRE2 share; \s \d \p{..} are those of Unicode 16
};

struct PreTokenizer {
  std::string_view name;
  std::span<const Split> splits;
  bool byte_level = true;  // tokens are spelled in GPT-2's printable bytes; else in UTF-8 with <0xNN> for single bytes
  bool ignore_merges = false;  // a word that is a token is taken whole
  bool add_bos = false;        // where the file does not say
  bool force_add_bos = false;  // whatever the file says
  bool metaspace = false;      // a space is U+2581 in the vocabulary
  bool newline_runs = false;   // a run of newlines that is a token is taken whole
  bool drop_gaps = false;      // text outside the matches (white space) is dropped
};

// nullptr for an unknown name.
const PreTokenizer* FindPreTokenizer(std::string_view name);
std::span<const PreTokenizer> PreTokenizers();

}  // namespace ridge::text
