#include "lab/experiments/answer_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/json_text.h"
#include "lab/experiments/prompts.h"
#include "lab/quality/script.h"
#include "text/utf8.h"

namespace ridge::lab {
namespace {

// A text that ends in a piece that is there three times and at least so long in all is a loop; a single character takes more: "0.3333333" is none.
constexpr size_t kLeastLoop = 24, kLeastRun = 16, kLongestPiece = 400, kLeastTimes = 3;
constexpr double kMostRepeated = 0.5;
constexpr size_t kLeastWords = 20;

std::vector<char32_t> CodePoints(std::string_view text) {
  std::vector<char32_t> out;
  for (size_t at = 0; at < text.size();) {
    const auto c = text::DecodeUtf8(text, at);
    out.push_back(c.value);
    at += std::max<size_t>(1, static_cast<size_t>(c.length_bytes));
  }
  return out;
}

bool IsLetter(char32_t c) { return ScriptOf(c) != Script::kOther; }
bool IsSpace(char32_t c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == 0x3000; }

bool TailLoops(std::vector<char32_t> t) {
  while (!t.empty() && IsSpace(t.back())) t.pop_back();
  for (size_t piece = 1; piece <= std::min(kLongestPiece, t.size() / kLeastTimes); piece++) {
    size_t same = 0;  // characters from the end that equal those one piece before
    while (same + piece < t.size() && t[t.size() - 1 - same] == t[t.size() - 1 - same - piece]) same++;
    const size_t length = same + piece;
    if (length < kLeastTimes * piece || length < (piece == 1 ? kLeastRun : kLeastLoop)) continue;
    const auto begin = t.end() - static_cast<std::ptrdiff_t>(piece);
    // Rules and rows of a table are no loops.
    if (std::any_of(begin, t.end(), [](char32_t c) { return IsLetter(c) || (c >= '0' && c <= '9'); })) return true;
  }
  return false;
}

// Digits are all the same, so that a counter does not hide what repeats beside it.
std::vector<std::u32string> WordsOf(std::string_view text) {
  std::vector<std::u32string> words;
  bool open = false;
  for (char32_t c : CodePoints(text)) {
    const Script script = ScriptOf(c);
    const bool digit = c >= '0' && c <= '9';
    if (script == Script::kHan || script == Script::kKana) {
      words.push_back({c});
      open = false;
    } else if (script != Script::kOther || digit) {
      if (!open) words.emplace_back();
      open = true;
      words.back() += digit ? U'0' : c;
    } else {
      open = false;
    }
  }
  return words;
}

std::optional<double> ShareOf(std::span<const std::u32string> words, size_t n) {
  if (words.size() < n + 1) return {};
  std::set<std::u32string> different;
  const size_t all = words.size() - n + 1;
  for (size_t i = 0; i < all; i++) {
    std::u32string gram;
    for (size_t k = 0; k < n; k++) gram += words[i + k] + U' ';
    different.insert(gram);
  }
  return 1 - static_cast<double>(different.size()) / static_cast<double>(all);
}

bool Holds(std::string_view text, const std::vector<std::string>& parts) {
  const auto lower = [](std::string s) {
    for (char& c : s) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return s;
  };
  const std::string all = lower(std::string(text));
  return std::ranges::any_of(parts, [&](const std::string& p) { return all.find(lower(p)) != std::string::npos; });
}

bool InLanguage(std::string_view text, Language language) {
  size_t latin = 0, han = 0, other = 0;
  for (const char32_t c : CodePoints(text)) {
    const Script s = ScriptOf(c);
    if (s == Script::kLatin)
      latin++;
    else if (s == Script::kHan)
      han++;
    else if (s != Script::kOther)
      other++;
  }
  if (latin + han + other == 0) return true;  // a number belongs to every language
  // A Han character says about as much as three letters of a word.
  const double all = static_cast<double>(latin) + 3 * static_cast<double>(han) + static_cast<double>(other);
  if (language == Language::kEnglish) return static_cast<double>(latin) >= 0.7 * all;
  if (language == Language::kChinese) return 3 * static_cast<double>(han) >= 0.5 * all;
  return true;
}

}  // namespace

std::optional<double> RepeatedShare(std::string_view text, size_t n) { return ShareOf(WordsOf(text), n); }

bool Loops(std::string_view text) {
  if (TailLoops(CodePoints(text))) return true;
  const std::vector<std::u32string> all = WordsOf(text);
  // The whole, and its end: a loop may begin late.
  for (size_t n = all.size(); n >= kLeastWords; n /= 2) {
    const std::span<const std::u32string> words(all.end() - static_cast<std::ptrdiff_t>(n), all.end());
    const auto with_letters = std::ranges::count_if(words, [](const std::u32string& w) { return IsLetter(w[0]); });
    if (2 * static_cast<size_t>(with_letters) < n) continue;  // a list of numbers repeats nothing
    if (ShareOf(words, 4).value_or(0) > kMostRepeated) return true;
  }
  return false;
}

bool IsJsonWith(std::string_view text, const std::vector<std::string>& keys) {
  const auto trim = [&] {
    while (!text.empty() && IsSpace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
    while (!text.empty() && IsSpace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  };
  trim();
  if (text.starts_with("```") && text.ends_with("```") && text.size() >= 6) {
    text.remove_prefix(text.starts_with("```json") ? 7 : 3);
    text.remove_suffix(std::min<size_t>(3, text.size()));
    trim();
  }
  const nlohmann::json j = ParseJsonText<nlohmann::json>(text);
  return j.is_object() && std::ranges::all_of(keys, [&](const std::string& k) { return j.contains(k); });
}

std::vector<std::string> FlagsOf(const Answer& answer) {
  std::vector<std::string> flags;
  const FixedPrompt* prompt = FindPrompt(answer.prompt_id);
  if (std::ranges::all_of(answer.text, [](char c) { return IsSpace(static_cast<unsigned char>(c)); })) {
    flags.push_back("empty");
    return flags;
  }
  if (answer.finish_reason == "length") flags.push_back("truncated");
  if (Loops(answer.text)) flags.push_back("loop");
  if (prompt == nullptr) return flags;
  if (prompt->json && !IsJsonWith(answer.text, prompt->keys)) flags.push_back("bad-json");
  if (!InLanguage(answer.text, prompt->answer)) flags.push_back("language");
  if (!prompt->facts.empty() && !Holds(answer.text, prompt->facts)) flags.push_back("wrong-fact");
  if (!prompt->topic.empty() && !Holds(answer.text, prompt->topic)) flags.push_back("off-topic");
  return flags;
}

QualityNote Judge(const std::vector<Answer>& answers, const std::vector<Answer>& reference, std::string_view name) {
  if (answers.empty()) return {"not judged: nothing was asked", {}};
  const auto bad = [](const Answer& a) {
    return std::ranges::any_of(a.flags, [](const std::string& f) { return f != "truncated"; });
  };
  std::map<std::string, int64_t> flags;
  int64_t flagged = 0, cut = 0, same = 0, compared = 0, reference_flagged = 0;
  for (const Answer& a : answers) {
    flagged += bad(a);
    for (const std::string& f : a.flags) (f == "truncated" ? cut : flags[f])++;
  }
  std::erase_if(flags, [](const auto& f) { return f.second == 0; });
  for (size_t i = 0; i < std::min(answers.size(), reference.size()); i++) {
    if (answers[i].prompt_id != reference[i].prompt_id) continue;
    compared++;
    same += answers[i].text == reference[i].text;
    reference_flagged += bad(reference[i]);
  }
  std::string text = fmt::format("{} of {} unflagged", static_cast<int64_t>(answers.size()) - flagged, answers.size());
  if (!flags.empty()) {
    std::string list;
    for (const auto& [flag, n] : flags) list += fmt::format("{}{} {}", list.empty() ? "" : ", ", flag, n);
    text += " (" + list + ")";
  }
  if (cut > 0) text += fmt::format("; {} cut at the limit", cut);
  if (compared > 0 && !name.empty()) text += fmt::format("; {} of {} word for word as with {}", same, compared, name);
  QualityNote note{std::move(text), {}};
  if (compared == static_cast<int64_t>(answers.size()) && compared > 0) note.still_good = flagged <= reference_flagged;
  return note;
}

}  // namespace ridge::lab
