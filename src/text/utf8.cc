#include "text/utf8.h"

#include <array>

namespace ridge::text {
namespace {

struct Printables {
  std::array<char32_t, 256> of_byte{};
  std::array<int16_t, 0x144> byte_of{};  // code points up to U+0143

  constexpr Printables() {
    for (int16_t& byte : byte_of) byte = -1;
    char32_t next = 0x100;  // bytes without a glyph of their own take the code points from U+0100 on, in order
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      of_byte[byte] = printable ? static_cast<char32_t>(byte) : next++;
      byte_of[of_byte[byte]] = static_cast<int16_t>(byte);
    }
  }
};
constexpr Printables kPrintables;

}  // namespace

CodePoint DecodeUtf8(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(offset);
  if (lead < 0x80) return {lead, 1, true, false};
  // Range of the second byte by lead byte (Unicode 15, table 3-7): it excludes overlong forms, surrogates and values
  // above U+10FFFF.
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  size_t length = 0;
  char32_t value = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
    value = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    value = lead & 0x0F;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    value = lead & 0x07;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {0xFFFD, 1, false, false};
  }
  for (size_t i = 1; i < length; ++i) {
    if (offset + i >= text.size()) return {0xFFFD, static_cast<uint8_t>(i), false, true};
    const unsigned char next = byte(offset + i);
    if (next < low || next > high) return {0xFFFD, static_cast<uint8_t>(i), false, false};
    value = (value << 6) | (next & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {value, static_cast<uint8_t>(length), true, false};
}

void AppendUtf8(char32_t c, std::string& out) {
  const auto put = [&](char32_t bits) { out.push_back(static_cast<char>(bits)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

std::optional<size_t> FirstInvalidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const CodePoint c = DecodeUtf8(text, i);
    if (!c.valid) return i;
    i += c.length_bytes;
  }
  return std::nullopt;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = DecodeUtf8(text, i);
    if (c.valid) {
      out.append(text, i, c.length_bytes);
    } else {
      AppendUtf8(0xFFFD, out);
    }
    i += c.length_bytes;
  }
  return out;
}

char32_t ByteToPrintable(uint8_t byte) { return kPrintables.of_byte[byte]; }

std::optional<uint8_t> PrintableToByte(char32_t c) {
  if (c >= kPrintables.byte_of.size() || kPrintables.byte_of[c] < 0) return std::nullopt;
  return static_cast<uint8_t>(kPrintables.byte_of[c]);
}

}  // namespace ridge::text
