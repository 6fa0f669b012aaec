#include "text/word_splitter.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/test_cpu_time.h"

namespace ridge::text {
namespace {

std::vector<std::string> Cut(std::string_view pre, std::string_view text) {
  const PreTokenizer* found = FindPreTokenizer(pre);
  EXPECT_NE(found, nullptr) << pre;
  auto splitter = WordSplitter::Compile(found->splits);
  EXPECT_TRUE(splitter.has_value()) << pre;
  std::vector<Word> words;
  EXPECT_TRUE(splitter->Run(text, words).has_value()) << pre;
  std::vector<std::string> out;
  for (const Word& word : words) out.emplace_back(text.substr(word.begin, word.end - word.begin));
  return out;
}

using Words = std::vector<std::string>;

TEST(PreTokenizers, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const PreTokenizer& pre : PreTokenizers()) EXPECT_TRUE(names.insert(pre.name).second) << pre.name;
  EXPECT_GE(names.size(), 90u);
  EXPECT_EQ(FindPreTokenizer("no-such-name"), nullptr);
}

// Every pre-tokenizer on texts that tempt a regex into backtracking: the words cover the text, in time.
TEST(PreTokenizers, CoverHostileTextsInTime) {
  constexpr size_t kBytes = 200'000;
  const auto repeat = [](std::string_view unit) {
    std::string out;
    while (out.size() < kBytes) out += unit;
    return out;
  };
  const std::string texts[] = {"",
                               "x",
                               repeat("a"),
                               repeat("A"),
                               repeat(" ") + "x",
                               repeat(" "),
                               repeat("\n") + "x",
                               repeat("7"),
                               repeat("7") + "a",
                               repeat("'"),
                               repeat("a "),
                               repeat("é́"),
                               repeat("\r\n \t"),
                               repeat("中文字。"),
                               repeat("=."),
                               repeat("Aa1 !"),
                               repeat("😀"),
                               repeat("IMGIMGA"),
                               repeat("\t") + "\n",
                               "Hello world 123\n\n"};
  std::set<const Split*> seen;
  for (const PreTokenizer& pre : PreTokenizers()) {
    if (!seen.insert(pre.splits.data()).second) continue;
    const auto splitter = WordSplitter::Compile(pre.splits);
    ASSERT_TRUE(splitter.has_value()) << pre.name << ": " << splitter.error().Message();
    for (const std::string& text : texts) {
      const double begin = ridge::test::ThreadCpuSeconds();
      std::vector<Word> words;
      const Status status = splitter->Run(text, words);
      ASSERT_TRUE(status.has_value()) << pre.name << " on " << text.substr(0, 8) << ": " << status.error().Message();
      uint32_t at = 0;
      for (const Word& word : words) {
        ASSERT_EQ(word.begin, at);
        ASSERT_GT(word.end, word.begin);
        at = word.end;
      }
      ASSERT_EQ(at, text.size());
      EXPECT_LT(ridge::test::ThreadCpuSeconds() - begin, 5.0)
          << pre.name << " on " << text.substr(0, 8);  // linear work takes milliseconds
    }
  }
}

TEST(PreTokenizers, CommonCuts) {
  EXPECT_EQ(Cut("gpt-2", "I'm  here 123!\n\n x"), (Words{"I", "'m", " ", " here", " 123", "!", "\n\n", " x"}));
  EXPECT_EQ(Cut("llama-bpe", "1234567 it'S"), (Words{"123", "456", "7", " it", "'S"}));
  EXPECT_EQ(Cut("qwen2", "a12\r\n b"), (Words{"a", "1", "2", "\r\n", " b"}));
  EXPECT_EQ(Cut("smollm", "a12"), (Words{"a", "1", "2"}));
  EXPECT_EQ(Cut("tekken", "HelloWORLDfoo"), (Words{"Hello", "WORLDfoo"}));
  EXPECT_EQ(Cut("gpt-4o", "We'll 12345/\n"), (Words{"We'll", " ", "123", "45", "/\n"}));
  EXPECT_EQ(Cut("gemma4", "a b\n\nc"), (Words{"a b", "\n\n", "c"}));
  EXPECT_EQ(Cut("kimi-k2", "你好abc中"), (Words{"你好", "abc", "中"}));
  EXPECT_EQ(Cut("deepseek-llm", "ab  12  "), (Words{"ab", "  ", "12", "  "}));
}

TEST(PreTokenizers, GroupsOfDigits) {
  EXPECT_EQ(Cut("afmoe", "1234567"), (Words{"1", "234", "567"}));
  EXPECT_EQ(Cut("superbpe", "a1234567b123"), (Words{"a", "1", "234", "567", "b", "123"}));
  EXPECT_EQ(Cut("tiny_aya", "1234567 12345a"), (Words{"1", "234", "567", " ", "123", "45", "a"}));
}

// The classes are Unicode 16's and Oniguruma's, whatever version PCRE2 has.
TEST(PreTokenizers, ClassesOfUnicode16) {
  EXPECT_EQ(Cut("gpt-2", "a\U00011F04"), (Words{"a\U00011F04"}));      // Kawi, Unicode 15: a letter
  EXPECT_EQ(Cut("gpt-2", "1\U00010D41"), (Words{"1\U00010D41"}));      // Garay digit, Unicode 16
  EXPECT_EQ(Cut("gpt-2", "a\u180Eb"), (Words{"a", "\u180E", "b"}));    // not white space since Unicode 6.3
  EXPECT_EQ(Cut("gpt-2", "  \u0085x"), (Words{"  ", "\u0085", "x"}));  // white space
  EXPECT_EQ(Cut("llama-bpe", "it'\u017F"), (Words{"it", "'\u017F"}));  // long s folds to s
}

}  // namespace
}  // namespace ridge::text
