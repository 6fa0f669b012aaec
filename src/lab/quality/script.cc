#include "lab/quality/script.h"

#include <string>

#include "text/utf8.h"

namespace ridge::lab {
namespace {

struct Range {
  char32_t first, last;
  Script script;
};
// Unicode's blocks (Blocks.txt), as far as they hold letters.
constexpr Range kRanges[] = {
    {'A', 'Z', Script::kLatin},        {'a', 'z', Script::kLatin},          {0xC0, 0xD6, Script::kLatin},
    {0xD8, 0xF6, Script::kLatin},      {0xF8, 0x24F, Script::kLatin},       {0x370, 0x3FF, Script::kGreek},
    {0x400, 0x52F, Script::kCyrillic}, {0x5D0, 0x5EA, Script::kHebrew},     {0x620, 0x6FF, Script::kArabic},
    {0x750, 0x77F, Script::kArabic},   {0x900, 0x963, Script::kDevanagari}, {0xE01, 0xE4E, Script::kThai},
    {0x1100, 0x11FF, Script::kHangul}, {0x1E00, 0x1EFF, Script::kLatin},    {0x1F00, 0x1FFF, Script::kGreek},
    {0x3005, 0x3007, Script::kHan},    {0x3041, 0x30FF, Script::kKana},     {0x3131, 0x318E, Script::kHangul},
    {0x31F0, 0x31FF, Script::kKana},   {0x3400, 0x4DBF, Script::kHan},      {0x4E00, 0x9FFF, Script::kHan},
    {0xAC00, 0xD7A3, Script::kHangul}, {0xF900, 0xFAFF, Script::kHan},      {0xFF66, 0xFF9F, Script::kKana},
    {0x20000, 0x3FFFD, Script::kHan},
};

}  // namespace

std::string_view Name(Script script) {
  switch (script) {
    case Script::kLatin: return "latin";
    case Script::kHan: return "han";
    case Script::kKana: return "kana";
    case Script::kHangul: return "hangul";
    case Script::kCyrillic: return "cyrillic";
    case Script::kGreek: return "greek";
    case Script::kArabic: return "arabic";
    case Script::kHebrew: return "hebrew";
    case Script::kDevanagari: return "devanagari";
    case Script::kThai: return "thai";
    case Script::kOther: return "other";
  }
  return "other";
}

Script ScriptOf(char32_t code_point) {
  for (const Range& r : kRanges) {
    if (code_point >= r.first && code_point <= r.last) return r.script;
  }
  return Script::kOther;
}

std::vector<Script> ScriptsOf(const std::vector<std::string_view>& pieces) {
  std::string text;
  for (const std::string_view piece : pieces) text += piece;
  std::vector<Script> of_byte(text.size(), Script::kOther);
  for (size_t at = 0; at < text.size();) {
    const text::CodePoint c = text::DecodeUtf8(text, at);
    const Script script = c.valid ? ScriptOf(c.value) : Script::kOther;
    for (size_t i = 0; i < c.length_bytes; i++) of_byte[at + i] = script;
    at += c.length_bytes;
  }
  std::vector<Script> out;
  Script last = Script::kOther;
  size_t at = 0;
  for (const std::string_view piece : pieces) {
    // The first letter says what a token is: "的 the" does not occur.
    for (size_t i = 0; i < piece.size(); i++) {
      if (of_byte[at + i] == Script::kOther) continue;
      last = of_byte[at + i];
      break;
    }
    out.push_back(last);
    at += piece.size();
  }
  return out;
}

}  // namespace ridge::lab
