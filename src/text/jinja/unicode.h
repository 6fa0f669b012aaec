// Unicode as Python's str sees it: code points, whitespace, case.
//
//   CountCodePoints("né") == 2;  ToUpper("straße") == "STRASSE";
//
// Guarantees: every input is valid UTF-8 (checked at the template's and JSON's door), every output too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ridge::text::jinja {

int64_t CountCodePoints(std::string_view s);

char32_t DecodeAt(std::string_view s, size_t& at);  // advances at
void AppendUtf8(std::string& out, char32_t c);
std::vector<char32_t> ToCodePoints(std::string_view s);
// Byte offset of code point `index` (0 … length).
size_t ByteOffset(std::string_view s, int64_t index, int64_t length);
size_t PreviousStart(std::string_view s, size_t end);  // start of the code point that ends at `end` > 0

bool IsSpace(char32_t c);      // str.isspace, which is also \s of re
bool IsLineBreak(char32_t c);  // str.splitlines
bool IsWord(char32_t c);       // \w of re
bool IsAlpha(char32_t c);
bool IsAlnum(char32_t c);
bool IsDecimal(char32_t c);
bool IsDigit(char32_t c);
bool IsNumeric(char32_t c);
bool IsPrintable(char32_t c);
bool IsIdentifierStart(char32_t c);
bool IsUpper(char32_t c);
bool IsLower(char32_t c);
bool IsTitle(char32_t c);

bool AllUpper(std::string_view s);  // str.isupper: some cased character, none of the other case
bool AllLower(std::string_view s);

std::string ToUpper(std::string_view s);
std::string ToLower(std::string_view s);
std::string ToTitle(std::string_view s);  // str.title
std::string Capitalize(std::string_view s);
std::string SwapCase(std::string_view s);
std::string CaseFold(std::string_view s);

std::string_view Strip(std::string_view s, bool left, bool right);                          // whitespace
std::string_view Strip(std::string_view s, std::string_view chars, bool left, bool right);  // any of chars

}  // namespace ridge::text::jinja
