// What is wrong with an answer as far as a program can see, and what the answers of an arm say about its quality.
//
//   answer.flags = FlagsOf(answer);                        // {"loop", "truncated"}
//   QualityNote note = Judge(answers, reference_answers);  // note.text, note.still_good
//
// Guarantees: the same answer has the same flags everywhere. Flags: "empty", "truncated" (ended by the limit of tokens), "loop" (its end repeats, or
// most of it does), "bad-json" (of a prompt that asks for it), "language" (another script than asked for), "wrong-fact", "off-topic". That nothing is
// flagged does not make an answer a good one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/experiments/experiment.h"

namespace ridge::lab {

std::vector<std::string> FlagsOf(const Answer& answer);

// The end of the text is one piece over and over, or most of its runs of four words occur before.
bool Loops(std::string_view text);
// Share of runs of n words that occur before: 1 - different / all. Han characters are words. None where there are fewer than n + 1.
std::optional<double> RepeatedShare(std::string_view text, size_t n);
// One JSON object with these keys, and nothing beside it but a fence of Markdown.
bool IsJsonWith(std::string_view text, const std::vector<std::string>& keys);

struct QualityNote {
  std::string text;                // "9 of 10 unflagged (loop 1); 10 of 10 word for word as with t = 1"
  std::optional<bool> still_good;  // no more flagged answers than the reference has; none: there is nothing to judge
};
// `reference` is what the first arm answered to the same prompts; `name` says so.
QualityNote Judge(const std::vector<Answer>& answers, const std::vector<Answer>& reference, std::string_view name);

}  // namespace ridge::lab
