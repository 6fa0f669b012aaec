// Which script each token of a text is written in, so that quality can be told by language.
//
//   std::vector<Script> scripts = ScriptsOf(pieces);   // of tokens in order; pieces may break characters
//
// Guarantees: a token without a letter (blanks, digits, punctuation) counts to the script before it; before the first letter it is kOther.
#pragma once

#include <string_view>
#include <vector>

namespace ridge::lab {

enum class Script { kLatin, kHan, kKana, kHangul, kCyrillic, kGreek, kArabic, kHebrew, kDevanagari, kThai, kOther };
std::string_view Name(Script script);

Script ScriptOf(char32_t code_point);  // kOther: no letter of these

std::vector<Script> ScriptsOf(const std::vector<std::string_view>& pieces);

}  // namespace ridge::lab
