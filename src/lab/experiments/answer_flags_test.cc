#include "lab/experiments/answer_flags.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "lab/experiments/prompts.h"

namespace ridge::lab {
namespace {

using Random = std::mt19937;

const std::vector<std::string> kWords = {"river", "stone",  "light", "paper", "winter", "table",  "green",  "seven",
                                         "music", "north",  "glass", "bread", "silver", "garden", "letter", "cloud",
                                         "the",   "a",      "of",    "and",   "in",     "is",     "was",    "on",
                                         "that",  "with",   "goes",  "under", "never",  "model",  "memory", "reads",
                                         "fast",  "slowly", "two",   "who",   "when",   "small"};
const std::vector<std::string> kHan = {"的", "是", "在", "模", "型", "量", "化", "内", "存", "读", "写", "快",
                                       "慢", "天", "空", "蓝", "光", "水", "果", "城", "市", "中", "国", "人",
                                       "口", "今", "很", "好", "一", "个", "不", "有", "我", "们"};

std::string Sentence(Random& random, bool han) {
  std::string text;
  const size_t n = 5 + random() % 12;
  for (size_t i = 0; i < n; i++) {
    if (han)
      text += kHan[random() % kHan.size()];
    else
      text += (i == 0 ? "" : " ") + kWords[random() % kWords.size()];
  }
  return text + (han ? "。" : ". ");
}

// What a sound answer may look like: prose, a list, a table, code, figures.
std::string Sound(Random& random) {
  const bool han = random() % 2 == 0;
  std::string text;
  const size_t n = 1 + random() % 6;
  switch (random() % 5) {
    case 0:
    case 1:
      for (size_t i = 0; i < n; i++) text += Sentence(random, han);
      return text;
    case 2:
      for (size_t i = 0; i < 2 + n; i++) text += fmt::format("{}. {}\n", i + 1, Sentence(random, han));
      return text;
    case 3:
      text = "| name | value |\n|------|------|\n";
      for (size_t i = 0; i < 2 + n; i++)
        text += fmt::format("| {} | {} |\n", kWords[random() % kWords.size()], random() % 1000);
      return text;
    default:
      text = "```\n";
      for (size_t i = 0; i < 2 + n; i++)
        text += fmt::format("x{} = read({}, {})\n", i, kWords[random() % kWords.size()], random() % 97);
      return text + "```\n10 / 3 = 3.3333333333";
  }
}

// An answer that begins well and then repeats one piece, cut anywhere, or with a counter that grows beside it.
std::string Looping(Random& random) {
  std::string text = Sound(random);
  const bool han = random() % 2 == 0;
  std::string piece;
  switch (random() % 4) {
    case 0:
      piece =
          han ? kHan[random() % kHan.size()] + kHan[random() % kHan.size()] : kWords[random() % kWords.size()] + " ";
      break;
    case 1: piece = Sentence(random, han); break;
    case 2: piece = Sentence(random, han) + "\n" + Sentence(random, han) + "\n"; break;
    default: {
      const std::string same = Sentence(random, false);
      for (size_t i = 1; i < 9; i++) text += fmt::format("{}. {}\n", i, same);
      return text;
    }
  }
  const size_t least = 1 + 60 / std::max<size_t>(1, piece.size());
  for (size_t i = 0; i < std::max<size_t>(4, least) + random() % 10; i++) text += piece;
  // The limit of tokens cuts it, at a whole character.
  size_t cut = text.size() - random() % piece.size();
  while (cut < text.size() && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) cut++;
  return text.substr(0, cut);
}

TEST(AnswerFlags, FindsPlantedLoopsAndLeavesSoundAnswersAlone) {
  Random random(5);
  int found = 0, false_alarms = 0;
  for (int i = 0; i < 1000; i++) {
    const std::string loop = Looping(random), sound = Sound(random);
    found += Loops(loop);
    const bool alarm = Loops(sound);
    false_alarms += alarm;
    if (alarm) std::printf("false alarm: %s\n", sound.c_str());
  }
  EXPECT_GE(found, 950);        // 95 %
  EXPECT_LE(false_alarms, 10);  // 1 %
}

TEST(AnswerFlags, FindsBrokenJson) {
  Random random(6);
  const std::vector<std::string> keys = FindPrompt("en-json")->keys;
  int caught = 0, false_alarms = 0;
  for (int i = 0; i < 1000; i++) {
    const std::string name = kWords[random() % kWords.size()];
    std::string good = fmt::format("{{\"name\": \"{}\", \"age\": {}{}}}", name, random() % 100,
                                   random() % 2 ? ", \"more\": [1, {\"a\": null}]" : "");
    if (random() % 3 == 0) good = "```json\n" + good + "\n```";
    if (random() % 3 == 0) good = "\n " + good + "\n";
    false_alarms += !IsJsonWith(good, keys);
    std::string bad = fmt::format("{{\"name\": \"{}\", \"age\": {}}}", name, random() % 100);
    switch (random() % 7) {
      case 0: bad.resize(1 + random() % (bad.size() - 1)); break;       // cut
      case 1: bad.erase(bad.find(':'), 1); break;                       // no colon
      case 2: bad.replace(bad.find(','), 1, ""); break;                 // no comma
      case 3: bad = "Here is the object:\n" + bad; break;               // text before
      case 4: bad += "\nThis object has two keys."; break;              // text behind
      case 5: bad.replace(bad.find("age"), 3, "Age"); break;            // another key
      default: std::replace(bad.begin(), bad.end(), '"', '\''); break;  // Python's quotes
    }
    caught += !IsJsonWith(bad, keys);
  }
  EXPECT_GE(caught, 990);  // 99 %
  EXPECT_EQ(false_alarms, 0);
}

TEST(AnswerFlags, EachFlagHasItsReason) {
  const auto flags = [](std::string id, std::string text, std::string finish = "stop") {
    return FlagsOf({.prompt_id = std::move(id), .text = std::move(text), .finish_reason = std::move(finish)});
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(flags("en-fact", " \n"), List({"empty"}));
  EXPECT_EQ(flags("en-fact", "The capital of France is Paris."), List());
  EXPECT_EQ(flags("en-fact", "The capital of France is Paris, which", "length"), List({"truncated"}));
  EXPECT_EQ(flags("en-fact", "The capital of France is Lyon."), List({"wrong-fact"}));
  EXPECT_EQ(flags("zh-fact", "中国的首都是北京。"), List());
  EXPECT_EQ(flags("zh-fact", "The capital of China is 北京, of course, as all know."), List({"language"}));
  EXPECT_EQ(flags("zh-english", "今天的天气很好。"), List({"language", "off-topic"}));
  EXPECT_EQ(flags("zh-english", "The weather is nice today."), List());
  EXPECT_EQ(flags("zh-explain", "量化把 FP16 权重变成 INT4，所以模型变小。"), List());
  EXPECT_EQ(flags("en-sum", "12"), List());
  EXPECT_EQ(flags("en-sum", "13"), List({"wrong-fact"}));
  EXPECT_EQ(flags("en-json", "{\"name\": \"Ada\", \"age\": 36}"), List());
  EXPECT_EQ(flags("en-json", "name: Ada"), List({"bad-json"}));
  EXPECT_EQ(flags("p1", "la la la la la la la la la la la la", "length"), List({"truncated", "loop"}));
  EXPECT_EQ(flags("p1", "3.33333333333"), List());
}

TEST(AnswerFlags, TheNoteCountsAndComparesWithTheReference) {
  std::vector<Answer> reference, worse;
  for (const FixedPrompt& p : FixedPrompts()) reference.push_back({.prompt_id = p.id, .text = p.id});
  worse = reference;
  worse[0].text = "other", worse[0].flags = {"truncated"};
  QualityNote note = Judge(worse, reference, "t = 1");
  EXPECT_EQ(note.text, "10 of 10 unflagged; 1 cut at the limit; 9 of 10 word for word as with t = 1");
  EXPECT_EQ(note.still_good, true);
  worse[0].flags = {"loop", "truncated"};
  note = Judge(worse, reference, "t = 1");
  EXPECT_EQ(note.text, "9 of 10 unflagged (loop 1); 1 cut at the limit; 9 of 10 word for word as with t = 1");
  EXPECT_EQ(note.still_good, false);
  EXPECT_FALSE(Judge({}, reference, "").still_good);
  EXPECT_FALSE(Judge(worse, {}, "").still_good);
}

TEST(Prompts, AreTenInTwoLanguagesAndMayBeCut) {
  EXPECT_EQ(FixedPrompts().size(), 10u);
  EXPECT_EQ(QuestionsOf({}).size(), 10u);
  EXPECT_EQ(QuestionsOf({.take = 3}).size(), 3u);
  const auto turns = QuestionsOf({.prompts = {"a", "b"}, .requests = 5});
  ASSERT_EQ(turns.size(), 5u);
  EXPECT_EQ(turns[4].id, "p1");
  const auto shared = QuestionsOf({.take = 2, .prefix_words = 50});
  EXPECT_EQ(shared[0].text.substr(0, 100), shared[1].text.substr(0, 100));
}

}  // namespace
}  // namespace ridge::lab
