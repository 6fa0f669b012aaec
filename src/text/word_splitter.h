// Cuts a text into words with the passes of a pre-tokenizer.
//
//   RIDGE_ASSIGN_OR_RETURN(WordSplitter splitter, WordSplitter::Compile(pre->splits));
//   RIDGE_RETURN_IF_ERROR(splitter.Run(text, words));   // words: consecutive ranges that cover the text
//
// Guarantees: immutable after Compile, thread-safe. A regex has bounded backtracking: a text that exceeds it is an
// error, never a hang.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/pre_tokenizers.h"

namespace ridge::text {

struct Word {
  uint32_t begin = 0;  // byte offsets in the text
  uint32_t end = 0;
  bool gap = false;  // between matches of the last pass
};

class WordSplitter {
 public:
  static Result<WordSplitter> Compile(std::span<const Split> splits);
  WordSplitter(WordSplitter&&) noexcept;
  ~WordSplitter();

  // `text` is valid UTF-8 under 2 GiB. Replaces the content of `words`.
  Status Run(std::string_view text, std::vector<Word>& words) const;

 private:
  struct Pass;
  WordSplitter();
  std::vector<Pass> passes_;
};

}  // namespace ridge::text
