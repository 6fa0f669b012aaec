// WordPiece with BERT's normalization (tokenizer.ggml.model bert): words are cut greedily into the longest known
// pieces.
//
//   std::unique_ptr<Tokenizer> tokenizer = MakeWordPiece({.lowercase = true, .strip_accents = true},
//   std::move(vocabulary));
//
// Guarantees: a word with an unknown piece, or of more than 100 characters, becomes one unknown token, as in Hugging
// Face's tokenizers.
#pragma once

#include <memory>

#include "text/vocabulary.h"

namespace ridge::text {

struct BertNormalizer {
  bool lowercase = true;
  bool strip_accents = true;
};

std::unique_ptr<Tokenizer> MakeWordPiece(BertNormalizer normalizer, std::unique_ptr<const Vocabulary> vocabulary);

}  // namespace ridge::text
