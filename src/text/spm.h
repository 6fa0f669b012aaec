// SentencePiece's BPE (tokenizer.ggml.model llama): of all adjacent pairs that form a token the one with the highest
// score is merged first.
//
//   std::unique_ptr<Tokenizer> tokenizer = MakeSpm(std::move(vocabulary));
//
// Guarantees: O(n log n); characters without a token become the tokens of their bytes (<0xNN>), or the unknown token
// where there are none.
#pragma once

#include <memory>

#include "text/vocabulary.h"

namespace ridge::text {

std::unique_ptr<Tokenizer> MakeSpm(std::unique_ptr<const Vocabulary> vocabulary);

}  // namespace ridge::text
