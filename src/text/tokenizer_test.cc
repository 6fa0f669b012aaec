#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <iterator>
#include <map>
#include <random>
#include <set>

#include "text/test_vocabulary.h"
#include "text/utf8.h"

namespace ridge::text {
namespace {

using gguf::Value;
using test::TestVocabulary;
using Ids = std::vector<TokenId>;

std::unique_ptr<Tokenizer> Make(const TestVocabulary& vocabulary) {
  auto tokenizer = Tokenizer::FromMetadata(vocabulary.Metadata());
  EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().Message();
  return tokenizer ? std::move(*tokenizer) : nullptr;
}

Error ErrorOf(const TestVocabulary& vocabulary) {
  auto tokenizer = Tokenizer::FromMetadata(vocabulary.Metadata());
  EXPECT_FALSE(tokenizer.has_value());
  return tokenizer ? Error{} : tokenizer.error();
}

Ids Encode(const Tokenizer& tokenizer, std::string_view text, bool parse_special = false, bool add_special = false) {
  auto ids = tokenizer.Encode(text, {add_special, parse_special});
  EXPECT_TRUE(ids.has_value());
  return ids ? *ids : Ids{};
}

TestVocabulary Words() {
  TestVocabulary v = TestVocabulary::ByteLevel("qwen2");
  v.Token("he").Token("ll").Token("hell").Token("lo").Token("Ġw");  // 256 to 260
  v.Token("<|im_end|>", test::kControlType)
      .Token("<tool>", test::kUserDefinedType)
      .Token("<tool>x", test::kUserDefinedType);
  return v.Merge("h e").Merge("l l").Merge("he ll").Merge("l o").Merge("Ġ w");
}

TEST(Bpe, MergesByRankThenFromTheLeft) {
  const auto tokenizer = Make(Words());
  EXPECT_EQ(Encode(*tokenizer, "hello"), (Ids{258, 'o'}));
  EXPECT_EQ(Encode(*tokenizer, "lllo"), (Ids{257, 259}));
  EXPECT_EQ(Encode(*tokenizer, "lll"), (Ids{257, 'l'}));
  EXPECT_EQ(Encode(*tokenizer, "o w"), (Ids{'o', 260}));
  EXPECT_EQ(Encode(*tokenizer, ""), Ids{});
}

TEST(Bpe, IgnoreMergesTakesAWholeWord) {
  TestVocabulary v = Words();
  v.pre = "llama-bpe";
  v.Token("zebra").Token("Ġz");
  EXPECT_EQ(Encode(*Make(v), "zebra"), (Ids{264}));
  v.pre = "qwen2";
  EXPECT_EQ(Encode(*Make(v), "zebra"), (Ids{'z', 'e', 'b', 'r', 'a'}));
}

// Merging as the definition says it: join the best pair, look again.
Ids NaiveMerge(std::vector<std::string> parts, const std::vector<std::string>& merges,
               const std::map<std::string, TokenId>& ids) {
  for (;;) {
    size_t best = merges.size();
    size_t where = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      for (size_t rank = 0; rank < best; ++rank) {
        if (merges[rank] == parts[i] + " " + parts[i + 1]) {
          best = rank;
          where = i;
        }
      }
    }
    if (best == merges.size()) break;
    parts[where] += parts[where + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(where) + 1);
  }
  Ids out;
  for (const std::string& part : parts) out.push_back(ids.at(part));
  return out;
}

TEST(Bpe, ShortAndLongWordsMergeAsDefined) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    TestVocabulary v = TestVocabulary::ByteLevel("qwen2");
    std::vector<std::string> texts = {"a", "b", "c"};
    std::map<std::string, TokenId> ids;
    for (size_t i = 0; i < v.tokens.size(); ++i) ids[v.tokens[i]] = static_cast<TokenId>(i);
    for (int i = 0; i < 25; ++i) {
      const std::string left = texts[random() % texts.size()];
      const std::string right = texts[random() % texts.size()];
      v.Merge(left + " " + right);
      if (!ids.contains(left + right)) {
        ids[left + right] = static_cast<TokenId>(v.tokens.size());
        v.Token(left + right);
        texts.push_back(left + right);
      }
    }
    const auto tokenizer = Make(v);
    for (const size_t length : {1, 7, 47, 48, 49, 50, 120}) {  // both sides of the switch from scanning to a heap
      std::string text;
      std::vector<std::string> parts;
      for (size_t i = 0; i < length; ++i) text += parts.emplace_back(1, static_cast<char>('a' + random() % 3));
      ASSERT_EQ(Encode(*tokenizer, text), NaiveMerge(parts, v.merges, ids)) << text;
    }
  }
}

TEST(Bpe, MergesThroughTextsThatAreNoToken) {
  TestVocabulary v = TestVocabulary::ByteLevel("qwen2");
  v.Token("abc").Merge("a b").Merge("ab c");  // "ab" itself is not in the vocabulary
  const auto tokenizer = Make(v);
  EXPECT_EQ(Encode(*tokenizer, "abc"), (Ids{256}));
  EXPECT_EQ(Encode(*tokenizer, "abd"), (Ids{'a', 'b', 'd'}));
}

TEST(Bpe, AByteWithoutTokenIsUnknownOrAnError) {
  TestVocabulary v;
  v.pre = "qwen2";
  v.Token("a").Token("<unk>", test::kUnknownType);
  const auto lost = Make(v)->Encode("aba", {});
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().found, "byte 98");
  v.Key("unknown_token_id", Value::U32(1));
  EXPECT_EQ(Encode(*Make(v), "aba"), (Ids{0, 1, 0}));
}

TEST(Bpe, KnowsNoSpacePrefix) {
  TestVocabulary v = Words();
  v.Key("add_space_prefix",
        Value::Bool(true));  // some files carry it; the encoder adds nothing, so nothing is taken off
  const auto tokenizer = Make(v);
  EXPECT_EQ(Encode(*tokenizer, "a"), (Ids{'a'}));
  EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, " a"), false), " a");
}

TEST(Bpe, BrokenUtf8IsReadAsReplacementCharacters) {
  const auto tokenizer = Make(Words());
  for (const std::string text : {"a\xFFz", "\xE2\x82", "\xED\xA0\x80x", "\xF0\x9F\x98", "caf\xC3"}) {
    EXPECT_EQ(Encode(*tokenizer, text), Encode(*tokenizer, ReplaceInvalidUtf8(text)));
    EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, text), false), ReplaceInvalidUtf8(text));
  }
}

TEST(Bpe, RoundTripsAnyText) {
  TestVocabulary v = Words();
  std::mt19937 random(5);
  for (const char* pre : {"qwen2", "llama-bpe", "gpt-2", "tekken", "deepseek-llm", "falcon", "default", "superbpe"}) {
    v.pre = pre;
    const auto tokenizer = Make(v);
    for (int round = 0; round < 300; ++round) {
      std::string text;
      for (int i = 0; i < 20; ++i) {
        char32_t c = random() % 3 ? random() % 0x250 : random() % 0x110000;
        AppendUtf8(c >= 0xD800 && c < 0xE000 ? U'\n' : c, text);
      }
      ASSERT_EQ(tokenizer->Decode(Encode(*tokenizer, text), false), text);
    }
  }
}

TEST(Special, LeftmostThenLongestWins) {
  const auto tokenizer = Make(Words());
  EXPECT_EQ(Encode(*tokenizer, "a<tool>xb"), (Ids{'a', 263, 'b'}));
  EXPECT_EQ(Encode(*tokenizer, "<tool><tool>x<tool"), (Ids{262, 263, '<', 't', 'o', 'o', 'l'}));
}

TEST(Special, ControlTokensComeFromTextOnlyWhenParsed) {
  TestVocabulary v = Words();
  v.Token("zz", test::kControlType).Token("ordinary", test::kControlType).Merge("z z");
  for (const char* pre : {"qwen2", "llama-bpe", "falcon"}) {
    v.pre = pre;
    const auto tokenizer = Make(v);
    const auto control = [&](const Ids& ids) {
      return std::any_of(ids.begin(), ids.end(), [&](TokenId id) { return tokenizer->IsControl(id); });
    };
    for (const std::string text : {"<|im_end|>", "a<|im_end|>b", "zz", " zz", "ordinary", "x zz ordinary"}) {
      EXPECT_FALSE(control(Encode(*tokenizer, text))) << pre << " " << text;
      EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, text), false), text) << pre;
      EXPECT_TRUE(control(Encode(*tokenizer, text, true))) << pre << " " << text;
    }
  }
  const auto tokenizer = Make(Words());
  EXPECT_EQ(Encode(*tokenizer, "a<|im_end|><|im_end|> b", true), (Ids{'a', 261, 261, ' ', 'b'}));
  EXPECT_EQ(tokenizer->Decode(Ids{'a', 261, 'b'}, false), "ab");
  EXPECT_EQ(tokenizer->Decode(Ids{'a', 261, 'b'}, true), "a<|im_end|>b");
  EXPECT_EQ(tokenizer->Decode(Ids{'a', 262, 'b'}, false), "a<tool>b");
}

TEST(Special, SomeTakeTheWhiteSpaceBesideThem) {
  TestVocabulary v = Words();
  v.Key("general.name", Value::String("Phi-3 Mini"));
  EXPECT_EQ(Encode(*Make(v), "a <|im_end|> \n b", true), (Ids{'a', ' ', 261, 'b'}));
  TestVocabulary jina = Words();
  jina.pre = "jina-v2-code";
  jina.Token("<mask>", test::kControlType);
  EXPECT_EQ(Encode(*Make(jina), "a <mask> b", true), (Ids{'a', 264, ' ', 'b'}));
}

TEST(Special, EndsAreAddedOnRequest) {
  TestVocabulary v = Words();
  v.Key("bos_token_id", Value::U32(261)).Key("eos_token_id", Value::U32(262));
  EXPECT_EQ(Encode(*Make(v), "a", false, true), (Ids{'a'}));
  TestVocabulary both = v;
  both.Key("add_bos_token", Value::Bool(true)).Key("add_eos_token", Value::Bool(true));
  const auto tokenizer = Make(both);
  EXPECT_TRUE(tokenizer->add_bos() && tokenizer->add_eos());
  EXPECT_EQ(Encode(*tokenizer, "a", false, true), (Ids{261, 'a', 262}));
  EXPECT_EQ(Encode(*tokenizer, "", false, true), (Ids{261, 262}));
  EXPECT_EQ(Encode(*tokenizer, "a"), (Ids{'a'}));
  v.pre = "llama-bpe";  // its family begins with BOS where the file does not say
  EXPECT_EQ(Encode(*Make(v), "a", false, true), (Ids{261, 'a'}));
  v.Key("add_bos_token", Value::Bool(false));
  EXPECT_EQ(Encode(*Make(v), "a", false, true), (Ids{'a'}));
}

TEST(Special, EndOfGenerationByIdAndByName) {
  TestVocabulary v = Words();
  v.Token("</s>").Token("<|endoftext|>").Token("<|fim_pad|>", test::kControlType);  // 264, 265, 266
  v.Key("eos_token_id", Value::U32(7));
  const auto tokenizer = Make(v);
  EXPECT_TRUE(tokenizer->IsEog(7));
  EXPECT_TRUE(tokenizer->IsEog(261));                               // <|im_end|>
  EXPECT_TRUE(tokenizer->IsEog(265) && tokenizer->IsControl(265));  // unmistakable, although typed as text
  EXPECT_TRUE(tokenizer->IsEog(266));
  EXPECT_FALSE(tokenizer->IsEog(264) || tokenizer->IsControl(264));  // Qwen has an ordinary token </s>
  EXPECT_FALSE(tokenizer->IsEog('a') || tokenizer->IsEog(-1) || tokenizer->IsEog(100000));
  EXPECT_EQ(tokenizer->eos(), 7);
  EXPECT_EQ(tokenizer->eot(), 261);
  EXPECT_EQ(tokenizer->bos(), std::nullopt);

  TestVocabulary harmony = TestVocabulary::ByteLevel("gpt-4o");
  for (const char* name : {"<|return|>", "<|call|>", "<|end|>"}) harmony.Token(name, test::kControlType);
  const auto oss = Make(harmony);
  EXPECT_TRUE(oss->IsEog(256) && oss->IsEog(257));
  EXPECT_FALSE(oss->IsEog(258));  // closes a message in the middle of the answer
}

TEST(Special, FindAndPiece) {
  const auto tokenizer = Make(Words());
  EXPECT_EQ(tokenizer->Find("Ġw"), 260);
  EXPECT_EQ(tokenizer->Find(" w"), std::nullopt);
  EXPECT_EQ(tokenizer->Find(""), std::nullopt);
  EXPECT_EQ(tokenizer->Piece(260), " w");
  EXPECT_EQ(tokenizer->Piece(0xC3), "\xC3");
  EXPECT_EQ(tokenizer->Piece(261), "<|im_end|>");
  EXPECT_EQ(tokenizer->Piece(-1), "");
  EXPECT_EQ(tokenizer->Piece(264), "");
  EXPECT_EQ(tokenizer->vocab_size(), 264u);
}

TestVocabulary SmallSpm() {
  TestVocabulary v = TestVocabulary::SentencePiece();  // 0 to 258
  v.Token("▁", test::kNormalType, -3)
      .Token("a", test::kNormalType, -4)
      .Token("b", test::kNormalType, -5);  // 259, 260, 261
  v.Token("▁a", test::kNormalType, -1)
      .Token("ab", test::kNormalType, -0.5)
      .Token("▁▁", test::kNormalType, -2);       // 262, 263, 264
  return v.Token("▁ab", test::kNormalType, -6);  // 265
}

TEST(Spm, MergesByScore) {
  const auto tokenizer = Make(SmallSpm());
  EXPECT_EQ(Encode(*tokenizer, "ab"), (Ids{265}));  // a+b first, then the space
  EXPECT_EQ(Encode(*tokenizer, "a"), (Ids{262}));
  EXPECT_EQ(Encode(*tokenizer, " a"), (Ids{259, 262}));  // ▁a (-1) before ▁▁ (-2)
  EXPECT_EQ(Encode(*tokenizer, "  "), (Ids{264, 259}));
  EXPECT_EQ(Encode(*tokenizer, ""), Ids{});
  EXPECT_EQ(Encode(*tokenizer, "a", false, true), (Ids{1, 262}));
}

TEST(Spm, UnknownCharactersBecomeBytes) {
  const auto tokenizer = Make(SmallSpm());
  EXPECT_EQ(Encode(*tokenizer, "aé\n"), (Ids{262, 3 + 0xC3, 3 + 0xA9, 3 + 10}));
  EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, "aé\n"), false), "aé\n");
  TestVocabulary v;
  v.model = "llama";
  v.Token("<unk>", test::kUnknownType)
      .Token("<s>", test::kControlType)
      .Token("</s>", test::kControlType)
      .Token("a")
      .Token("▁");
  EXPECT_EQ(Encode(*Make(v), "aéa"), (Ids{4, 3, 0, 3}));
}

TEST(Spm, TextSpellsNoControlAndNoByteToken) {
  TestVocabulary v = SmallSpm();
  for (const char* part : {"<", "s", ">", "<s", "s>", "0x41", "<0x41"}) v.Token(part, test::kNormalType, 1);
  const auto tokenizer = Make(v);
  for (const std::string text : {"<s>", "<0x41>", "a<s>b"}) {
    const Ids ids = Encode(*tokenizer, text);
    for (const TokenId id : ids) EXPECT_FALSE(tokenizer->IsControl(id)) << text;
    EXPECT_EQ(tokenizer->Decode(ids, false), text);
  }
  EXPECT_EQ(Encode(*tokenizer, "a<s>b", true), (Ids{262, 1, 259, 261}));
}

TEST(Spm, AControlTokenIsNoByteFallback) {
  TestVocabulary v;
  v.model = "llama";
  v.Token("<unk>", test::kUnknownType).Token("<0x62>", test::kControlType).Token("b", test::kControlType).Token("a");
  v.Key("add_space_prefix", Value::Bool(false)).Key("bos_token_id", Value::U32(1)).Key("eos_token_id", Value::U32(1));
  EXPECT_EQ(Encode(*Make(v), "ab"), (Ids{3, 0}));
}

TEST(Spm, SpacePrefixFollowsTheFile) {
  TestVocabulary v = SmallSpm();
  const auto with = Make(v);
  EXPECT_EQ(Encode(*with, "a</s> b", true), (Ids{262, 2, 264, 261}));
  EXPECT_EQ(Encode(*with, "</s>b", true), (Ids{2, 259, 261}));
  EXPECT_EQ(Encode(*with, "</s></s>", true), (Ids{2, 2}));
  EXPECT_EQ(with->Decode(Ids{1, 262, 261}, false), "ab");
  EXPECT_EQ(with->Decode(Ids{1, 262, 261}, true), "<s> ab");
  EXPECT_EQ(with->Decode(Ids{259, 262}, false), " a");
  v.Key("add_space_prefix", Value::Bool(false));
  const auto without = Make(v);
  EXPECT_EQ(Encode(*without, "a</s> b", true), (Ids{260, 2, 259, 261}));
  EXPECT_EQ(without->Decode(Ids{262}, false), " a");
}

TEST(Spm, ExtraWhiteSpaceCanBeRemoved) {
  TestVocabulary v = SmallSpm();
  v.Key("remove_extra_whitespaces", Value::Bool(true));
  const auto tokenizer = Make(v);
  EXPECT_EQ(Encode(*tokenizer, "  a   b  "), Encode(*tokenizer, "a b"));
  EXPECT_EQ(Encode(*tokenizer, "   "), (Ids{259}));
}

TestVocabulary SmallBert() {
  TestVocabulary v;
  v.model = "bert";
  for (const char* name : {"[PAD]", "[UNK]", "[CLS]", "[SEP]"}) v.Token(name, test::kControlType);
  for (const char* text : {"▁un", "aff", "able", "▁a", "▁cafe", "▁!", "▁中", "▁b"}) v.Token(text);  // 4 to 11
  return v.Key("cls_token_id", Value::U32(2))
      .Key("seperator_token_id", Value::U32(3))
      .Key("unknown_token_id", Value::U32(1));
}

TEST(WordPiece, LongestPiecesOfNormalizedWords) {
  const auto tokenizer = Make(SmallBert());
  EXPECT_EQ(Encode(*tokenizer, "Unaffable"), (Ids{4, 5, 6}));
  EXPECT_EQ(Encode(*tokenizer, "CAFÉ!a"), (Ids{8, 9, 7}));
  EXPECT_EQ(Encode(*tokenizer, "a中b"), (Ids{7, 10, 11}));
  EXPECT_EQ(Encode(*tokenizer, "unx a"), (Ids{1, 7}));  // one unknown piece: the whole word
  EXPECT_EQ(Encode(*tokenizer, "a", false, true), (Ids{2, 7, 3}));
  EXPECT_EQ(Encode(*tokenizer, "[SEP]"), (Ids{1, 1, 1}));
  EXPECT_EQ(Encode(*tokenizer, "[SEP]", true), (Ids{3}));
  EXPECT_EQ(Encode(*tokenizer, std::string(101, 'a')), (Ids{1}));
  TestVocabulary cased = SmallBert();
  cased.Key("normalizer.lowercase", Value::Bool(false));
  EXPECT_EQ(ErrorOf(TestVocabulary{.model = "bert"}).where, "tokenizer.ggml.tokens");
  EXPECT_EQ(Encode(*Make(cased), "A"), (Ids{7}));  // "normalizer.lowercase" alone is another key
  TestVocabulary really_cased = SmallBert();
  really_cased.Key("tokenizer.ggml.normalizer.lowercase", Value::Bool(false));
  EXPECT_EQ(Encode(*Make(really_cased), "A a"), (Ids{1, 7}));
}

TEST(Bpe, GemmaSpellsBytesAndTakesNewlineRuns) {
  TestVocabulary v = TestVocabulary::SentencePiece();
  v.model = "gemma4";
  v.Token("a").Token("▁").Token("▁a").Token("\n").Token("\n\n").Merge("▁ a");  // 259 to 263
  v.Key("bos_token_id", Value::U32(1));
  const auto tokenizer = Make(v);
  EXPECT_EQ(Encode(*tokenizer, "a a\n\né", false, true), (Ids{1, 259, 261, 263, 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, "a a\n\né"), false), "a a\n\né");
}

TEST(BadVocabulary, NamesTheKey) {
  EXPECT_EQ(ErrorOf({.model = "rwkv"}).where, "tokenizer.ggml.model");
  EXPECT_EQ(ErrorOf({.model = "rwkv"}).code, Code::kUnsupported);
  TestVocabulary v = Words();
  v.pre = "some-new-model";
  EXPECT_EQ(ErrorOf(v).where, "tokenizer.ggml.pre");
  EXPECT_EQ(ErrorOf(v).found, "\"some-new-model\"");
  EXPECT_EQ(ErrorOf(v).code, Code::kUnsupported);
  v = Words();
  v.types.pop_back();
  EXPECT_EQ(ErrorOf(v).where, "tokenizer.ggml.token_type");
  v = Words();
  v.scores.pop_back();
  EXPECT_EQ(ErrorOf(v).where, "tokenizer.ggml.scores");
  v = Words();
  v.types[9] = 9;
  EXPECT_EQ(ErrorOf(v).where, "tokenizer.ggml.token_type[9]");
  v = Words();
  v.Merge("nospace");
  EXPECT_EQ(ErrorOf(v).where, "tokenizer.ggml.merges[5]");
  v = Words();
  v.Key("eos_token_id", Value::U32(264));
  EXPECT_EQ(ErrorOf(v).where, "tokenizer.ggml.eos_token_id");
  v = Words();
  v.Key("eos_token_id", Value::U32(0xFFFFFFFF))
      .Key("padding_token_id", Value::U32(264));  // "none", and one that nobody needs
  EXPECT_EQ(Make(v)->eos(), std::nullopt);
  EXPECT_EQ(Make(v)->pad(), std::nullopt);
}

// Every key that is read, given a value of another type: an error that names it.
TEST(BadVocabulary, WrongTypes) {
  const Value text = Value::String("x");
  const std::map<std::string, Value> wrong = {{"model", Value::U32(1)},
                                              {"pre", Value::U32(1)},
                                              {"tokens", Value::I32s({1})},
                                              {"token_type", text},
                                              {"scores", text},
                                              {"merges", Value::I32s({1})},
                                              {"add_bos_token", text},
                                              {"add_eos_token", text},
                                              {"add_space_prefix", text},
                                              {"bos_token_id", text},
                                              {"eos_token_id", text},
                                              {"eot_token_id", text},
                                              {"eom_token_id", text},
                                              {"unknown_token_id", text},
                                              {"seperator_token_id", text},
                                              {"padding_token_id", text},
                                              {"mask_token_id", text},
                                              {"fim_pre_token_id", text},
                                              {"fim_suf_token_id", text},
                                              {"fim_mid_token_id", text},
                                              {"fim_pad_token_id", text},
                                              {"fim_rep_token_id", text},
                                              {"fim_sep_token_id", text},
                                              {"remove_extra_whitespaces", text},
                                              {"general.name", Value::U32(1)},
                                              {"general.architecture", Value::U32(1)}};
  for (const auto& [key, value] : wrong) {
    TestVocabulary v = Words();
    v.Key(key, value);
    const Error error = ErrorOf(v);
    EXPECT_EQ(error.code, Code::kInvalidData) << key;
    EXPECT_NE(error.where.find(key), std::string::npos) << error.Message();
  }
  const gguf::Metadata whole = Words().Metadata();
  gguf::Metadata metadata;
  for (const auto& [key, value] : whole.entries()) {
    if (key != "tokenizer.ggml.merges") (void)metadata.Add(key, value);
  }
  const auto tokenizer = Tokenizer::FromMetadata(metadata);
  ASSERT_FALSE(tokenizer.has_value());
  EXPECT_EQ(tokenizer.error().code, Code::kNotFound);
}

TEST(BadVocabulary, OddTokensAreHarmless) {
  TestVocabulary v = Words();
  v.Token("")
      .Token("he")
      .Token("\xFF\xFE")
      .Token("<0xZZ>", test::kByteType)
      .Token("zz", test::kUnusedType);  // 264 to 268
  v.Token("", test::kControlType).Token("<tool>", test::kUserDefinedType);
  const auto tokenizer = Make(v);
  EXPECT_EQ(Encode(*tokenizer, "hello"), (Ids{258, 'o'}));  // the first of two equal texts is the token
  EXPECT_EQ(Encode(*tokenizer, "<tool>", true), (Ids{262}));
  EXPECT_EQ(tokenizer->Piece(264), "");
  EXPECT_EQ(tokenizer->Piece(266), "\xFF\xFE");
  EXPECT_EQ(tokenizer->Piece(268), "");
}

// What is refused has too many tokens, what has too many is refused, and the figure is never above the truth.
TEST(Limits, MoreTokensThanAreWantedAreRefused) {
  TestVocabulary gemma = TestVocabulary::SentencePiece();
  gemma.model = "gemma4";
  TestVocabulary collapsing = SmallSpm();
  collapsing.more.emplace_back("remove_extra_whitespaces", Value::Bool(true));
  TestVocabulary stripping = Words();
  stripping.more.emplace_back("general.name", Value::String("phi-3"));
  const std::pair<const char*, TestVocabulary> vocabularies[] = {
      {"bpe", Words()},      {"spm", SmallSpm()},           {"collapsing spm", collapsing},
      {"bert", SmallBert()}, {"bpe in code points", gemma}, {"stripping", stripping}};
  std::mt19937 random(5);
  const char* pieces[] = {"hello", " ",      "                ", "he",           "ll",
                          "\n",    "<tool>", "<tool>x",          "\xe2\x96\x81", "\xe2\x82\xac",
                          "\xff",  "w",      "<|im_end|>    ",   "2024"};
  for (const auto& [name, vocabulary] : vocabularies) {
    const auto tokenizer = Make(vocabulary);
    for (int round = 0; round < 4; round++) {
      std::string text;
      const size_t some = 1 + random() % std::size(pieces), first = random() % std::size(pieces);
      while (text.size() <= kCountedBytes)
        text += round == 0 ? "<|im_end|>" : pieces[(first + random() % some) % std::size(pieces)];
      for (const bool special : {false, true}) {
        const size_t all = Encode(*tokenizer, text, special).size();
        EXPECT_LE(tokenizer->LeastTokens(text.size()), all) << name;
        for (const size_t most : {size_t{0}, size_t{1}, all / 100, all / 2, all - 1, all, all + 1}) {
          const auto ids = tokenizer->Encode(text, {false, special, {}, most});
          EXPECT_EQ(ids.has_value(), all <= most) << name << ": " << all << " tokens, " << most << " wanted";
          if (ids) EXPECT_EQ(ids->size(), all);
          if (ids) continue;
          EXPECT_EQ(ids.error().code, Code::kOutOfRange);
          size_t told = 0;
          ASSERT_EQ(std::sscanf(ids.error().found.c_str(), "at least %zu tokens", &told), 1) << ids.error().found;
          EXPECT_GT(told, most);
          EXPECT_LE(told, all);
        }
      }
    }
  }
  // A short text is counted to its end, so that its error can say how many there are.
  EXPECT_EQ(Make(Words())->Encode("wwwww", {false, false, {}, 2})->size(), 5u);
}

// A megabyte without a place to cut: still n log n.
TEST(Limits, OneLongWord) {
  std::mt19937 random(11);
  std::string word(1'000'000, 'l');
  for (size_t i = 0; i < word.size(); i += 1 + random() % 5) word[i] = "helo"[random() % 4];
  const auto bpe = Make(Words());
  EXPECT_EQ(bpe->Decode(Encode(*bpe, word), false), word);
  const auto spm = Make(SmallSpm());
  const std::string spaces = word + std::string(1'000'000, ' ');
  EXPECT_EQ(spm->Decode(Encode(*spm, spaces), false), spaces);
  const auto bert = Make(SmallBert());
  EXPECT_EQ(Encode(*bert, word), (Ids{1}));
}

}  // namespace
}  // namespace ridge::text
