#include "text_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace ridge::app {
namespace {

// Bytes of the well-formed UTF-8 sequence at the start of `text` (The Unicode Standard, table 3-7); 0: broken.
size_t SequenceBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto within = [&](size_t i, unsigned low, unsigned high) { return byte(i) >= low && byte(i) <= high; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return within(1, 0x80, 0xbf) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const unsigned low = first == 0xe0 ? 0xa0 : 0x80, high = first == 0xed ? 0x9f : 0xbf;
    return within(1, low, high) && within(2, 0x80, 0xbf) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const unsigned low = first == 0xf0 ? 0x90 : 0x80, high = first == 0xf4 ? 0x8f : 0xbf;
    return within(1, low, high) && within(2, 0x80, 0xbf) && within(3, 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

size_t CodePoints(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

std::string Printable(std::string_view text, size_t most_columns) {
  std::string out;
  size_t columns = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t size = SequenceBytes(text.substr(i));
    const auto first = static_cast<unsigned char>(text[i]);
    std::string piece(text.substr(i, std::max<size_t>(size, 1)));
    // C1 control characters (U+0080 to U+009F) also begin escape sequences
    const bool c1 = size == 2 && first == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (size == 0 || (size == 1 && (first < 0x20 || first == 0x7f))) {
      piece = first == '\n' ? "\\n" : first == '\t' ? "\\t" : first == '\r' ? "\\r" : fmt::format("\\x{:02x}", first);
    } else if (c1) {
      piece = fmt::format("\\u00{:02x}", static_cast<unsigned char>(text[i + 1]));
    }
    const size_t width = CodePoints(piece);
    if (columns + width > most_columns) return out + "...";
    out += piece;
    columns += width;
    i += std::max<size_t>(size, 1);
  }
  return out;
}

size_t TerminalColumns(size_t most_columns) { return isatty(STDOUT_FILENO) != 0 ? most_columns : SIZE_MAX; }

std::string TextTable::Text() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = CodePoints(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, CodePoints(row[c]));
    widths.push_back(width);
  }
  std::string out;
  const auto add = [&](auto&& cell_of) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string& cell = cell_of(c);
      const std::string pad(widths[c] - CodePoints(cell), ' ');
      line += (c > 0 ? "  " : "") + (columns_[c].right ? pad + cell : cell + pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add([&](size_t c) -> const std::string& { return columns_[c].title; });
  for (const auto& row : rows_) add([&](size_t c) -> const std::string& { return row[c]; });
  return out;
}

}  // namespace ridge::app
