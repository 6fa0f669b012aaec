// UTF-8 as Unicode chapter 3 defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
//
//   std::string clean = ReplaceInvalidUtf8(bytes);               // what Python's bytes.decode("utf-8", "replace")
//   gives if (auto at = FirstInvalidUtf8(prompt)) return Fail(...);    // the byte offset to name in an error
//
// Guarantees: total on any bytes, no allocation except for returned strings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ridge::text {

struct CodePoint {
  char32_t value = 0;  // U+FFFD when not valid
  uint8_t length_bytes =
      0;  // of a broken sequence: the maximal prefix of a valid one, at least 1 (Unicode 15, table 3-8)
  bool valid = false;
  bool truncated = false;  // not valid only because the text ends: more bytes could complete it
};

// The code point at `offset`, which is less than text.size().
CodePoint DecodeUtf8(std::string_view text, size_t offset);

void AppendUtf8(char32_t code_point, std::string& out);

// Byte offset of the first byte that is not UTF-8, or nullopt for valid text.
std::optional<size_t> FirstInvalidUtf8(std::string_view text);

// Each maximal broken sequence becomes one U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);

// Length of the code point that starts at the lead byte `text[offset]` of valid UTF-8.
inline size_t Utf8Length(unsigned char lead) { return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }

// GPT-2's printable stand-in for each byte (openai/gpt-2 encoder.py, bytes_to_unicode): byte-level vocabularies are
// spelled in it.
char32_t ByteToPrintable(uint8_t byte);
std::optional<uint8_t> PrintableToByte(char32_t code_point);

}  // namespace ridge::text
