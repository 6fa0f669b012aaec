#include "lab/experiments/prompts.h"

#include <fmt/format.h>

#include <algorithm>

namespace ridge::lab {

const std::vector<FixedPrompt>& FixedPrompts() {
  using enum Language;
  static const std::vector<FixedPrompt> kPrompts = {
      {.id = "en-fact",
       .text = "What is the capital of France? Answer in one sentence.",
       .answer = kEnglish,
       .facts = {"Paris"}},
      {.id = "zh-fact", .text = "中国的首都是哪座城市？请用一句话回答。", .answer = kChinese, .facts = {"北京"}},
      {.id = "en-json",
       .text = "Reply with one JSON object and no other text. Its keys are \"name\" and \"age\". The name is Ada, the "
               "age is 36.",
       .json = true,
       .keys = {"name", "age"}},
      {.id = "zh-json",
       .text = "只输出一个 JSON 对象，不要其他文字。键是 \"city\" 和 \"population\"，城市是上海，人口是 24870000。",
       .json = true,
       .keys = {"city", "population"}},
      {.id = "en-explain",
       .text = "Explain in two sentences why the sky is blue.",
       .answer = kEnglish,
       .topic = {"sky", "blue", "light", "scatter"}},
      {.id = "zh-explain",
       .text = "用两句话说明量化为什么能让模型变小。",
       .answer = kChinese,
       .topic = {"量化", "模型", "精度"}},
      {.id = "en-sum", .text = "What is 7 plus 5? Answer with the number.", .facts = {"12", "twelve"}},
      {.id = "zh-list",
       .text = "列出三种水果的名字，每行一个。",
       .answer = kChinese,
       .topic = {"果", "蕉", "葡萄", "橙", "梨", "桃", "莓", "橘"}},
      {.id = "en-summary",
       .text = "Summarize in one sentence: The river rose in the night, and in the morning the ferry did not leave the "
               "landing, so the children could not go to school.",
       .answer = kEnglish,
       .topic = {"river", "ferry", "school", "children"}},
      {.id = "zh-english",
       .text = "把这句话翻译成英文，只写译文：今天的天气很好。",
       .answer = kEnglish,
       .topic = {"weather", "today", "nice", "good"}},
  };
  return kPrompts;
}

const FixedPrompt* FindPrompt(std::string_view id) {
  const auto it = std::ranges::find(FixedPrompts(), id, &FixedPrompt::id);
  return it == FixedPrompts().end() ? nullptr : &*it;
}

std::vector<Question> QuestionsOf(const Workload& work) {
  std::vector<Question> all;
  if (work.prompts.empty()) {
    for (const FixedPrompt& p : FixedPrompts()) {
      if (work.take == 0 || static_cast<int64_t>(all.size()) < work.take) all.push_back({p.id, p.text});
    }
  }
  for (const std::string& text : work.prompts) all.push_back({fmt::format("p{}", all.size() + 1), text});
  std::string prefix;
  // A text that no vocabulary shortens much, the same in every request.
  for (int64_t w = 0; w < work.prefix_words; w++)
    prefix += fmt::format("{}{}", w == 0 ? "Remember these numbers: " : " ", 100 + (w * 7919) % 900);
  std::vector<Question> out;
  const size_t n = work.requests > 0 ? static_cast<size_t>(work.requests) : all.size();
  for (size_t i = 0; i < n; i++) {
    out.push_back(all[i % all.size()]);
    if (!prefix.empty()) out.back().text = prefix + ". " + out.back().text;
  }
  return out;
}

}  // namespace ridge::lab
