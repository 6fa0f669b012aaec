// Aligned tables and safe text for terminals.
//
//   TextTable table({{"tensor"}, {"bytes", true}});
//   table.Row({"output.weight", "1024"});   out.Write(table.Text());
//
// Guarantees: columns line up by code point; no line ends in blanks. Printable text holds no control character and no
// broken UTF-8, so what a file says cannot move the cursor or change colours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ridge::app {

class TextTable {
 public:
  struct Column {
    std::string title;
    bool right = false;  // numbers
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void Row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string Text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// So many where stdout is a terminal; no limit where it is a file or a pipe, whose reader wants all of it.
size_t TerminalColumns(size_t most_columns);

// Control characters and broken bytes as \n, \t, \xNN; cut after `most_columns` code points with "...".
std::string Printable(std::string_view text, size_t most_columns = SIZE_MAX);

}  // namespace ridge::app
