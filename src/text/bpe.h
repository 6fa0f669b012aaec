// Byte-pair encoding with ranked merges (tokenizer.ggml.model gpt2 and its relatives).
//
//   RIDGE_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer, MakeBpe(metadata, *pre, std::move(vocabulary)));
//
// Guarantees: of all adjacent pairs the one with the lowest rank is merged first, of equal ones the leftmost, in O(n
// log n) for a word of n bytes.
#pragma once

#include <memory>

#include "base/result.h"
#include "gguf/gguf.h"
#include "text/pre_tokenizers.h"
#include "text/vocabulary.h"

namespace ridge::text {

// Errors: a missing or malformed tokenizer.ggml.merges. `lowercase`: the text is lowered first.
Result<std::unique_ptr<Tokenizer>> MakeBpe(const gguf::Metadata& metadata, const PreTokenizer& pre, bool lowercase,
                                           std::unique_ptr<const Vocabulary> vocabulary);

}  // namespace ridge::text
