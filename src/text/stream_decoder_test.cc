#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "text/test_vocabulary.h"
#include "text/utf8.h"

namespace ridge::text {
namespace {

std::unique_ptr<Tokenizer> Bytes() {
  auto vocabulary = test::TestVocabulary::ByteLevel("qwen2");
  vocabulary.Token("<|im_end|>", test::kControlType);
  auto tokenizer = Tokenizer::FromMetadata(vocabulary.Metadata());
  EXPECT_TRUE(tokenizer.has_value());
  return std::move(*tokenizer);
}

TEST(StreamDecoder, HoldsBackPartOfACodePoint) {
  const auto tokenizer = Bytes();
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.Push('a'), "a");
  EXPECT_EQ(decoder.Push(0xF0), "");
  EXPECT_EQ(decoder.Push(0x9F), "");
  EXPECT_TRUE(decoder.pending());
  EXPECT_EQ(decoder.Push(0x98), "");
  EXPECT_EQ(decoder.Push(0x80), "😀");
  EXPECT_FALSE(decoder.pending());
  EXPECT_EQ(decoder.Flush(), "");
}

TEST(StreamDecoder, BrokenBytesAreReplacedOnce) {
  const auto tokenizer = Bytes();
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.Push(0xE2), "");
  EXPECT_EQ(decoder.Push(0x82), "");
  EXPECT_EQ(decoder.Push('x'), "\uFFFDx");
  EXPECT_EQ(decoder.Push(0xFF), "\uFFFD");
  EXPECT_EQ(decoder.Push(0xC3), "");
  EXPECT_EQ(decoder.Flush(), "\uFFFD");
  EXPECT_EQ(decoder.Flush(), "");
}

TEST(StreamDecoder, ControlTokensPrintNothingUnlessAsked) {
  const auto tokenizer = Bytes();
  StreamDecoder hidden(*tokenizer);
  EXPECT_EQ(hidden.Push(0xC3), "");
  EXPECT_EQ(hidden.Push(256), "");
  EXPECT_EQ(hidden.Push(0xA9), "é");
  EXPECT_EQ(hidden.Push(1000), "");  // outside the vocabulary
  EXPECT_EQ(hidden.Push(-1), "");
  StreamDecoder shown(*tokenizer, true);
  EXPECT_EQ(shown.Push(256), "<|im_end|>");
}

TEST(StreamDecoder, ChunksJoinToTheWholeText) {
  const auto tokenizer = Bytes();
  std::mt19937 random(7);
  for (int round = 0; round < 5000; ++round) {
    std::vector<TokenId> ids(random() % 16);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % 2 ? 0x80 + random() % 0x80 : random() % 256);
    StreamDecoder decoder(*tokenizer);
    std::string joined;
    for (const TokenId id : ids) {
      const std::string chunk = decoder.Push(id);
      ASSERT_EQ(FirstInvalidUtf8(chunk), std::nullopt);
      joined += chunk;
    }
    joined += decoder.Flush();
    ASSERT_EQ(joined, ReplaceInvalidUtf8(tokenizer->Decode(ids, false)));
  }
}

}  // namespace
}  // namespace ridge::text
