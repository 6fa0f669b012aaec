// The fixed prompts by which the lab looks at quality: ten short ones of our own in English and Chinese, whose answers a program can judge in part.
//
//   for (const Question& q : QuestionsOf(work)) ask(q.text);
//   const FixedPrompt* p = FindPrompt("en-json");   // p->keys: what a right answer holds
//
// Guarantees: texts and order are fixed per version of the program; an experiment's record holds what was asked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lab/experiments/experiment.h"

namespace ridge::lab {

enum class Language { kAny, kEnglish, kChinese };

struct FixedPrompt {
  std::string id, text;
  Language answer = Language::kAny;  // that a right answer is written in
  bool json = false;                 // a JSON object is asked for, and nothing else
  std::vector<std::string> keys;     // that it must have
  std::vector<std::string> facts;    // one of these stands in a right answer, whatever the case
  std::vector<std::string> topic;    // one of these stands in an answer that is to the point
};

const std::vector<FixedPrompt>& FixedPrompts();
const FixedPrompt* FindPrompt(std::string_view id);  // nullptr: it is none of them

struct Question {
  std::string id, text;
};
// In the order in which they are asked; `requests` of them where the work says so. Own prompts are "p1", "p2", …
std::vector<Question> QuestionsOf(const Workload& work);

}  // namespace ridge::lab
