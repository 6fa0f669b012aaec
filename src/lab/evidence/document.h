// A report as blocks of text, tables and figures, and its two forms: Markdown, and one HTML page that needs nothing but itself.
//
//   Document d{.language = ReportLanguage::kEnglish, .title = "threads"};
//   d.Add(Heading{2, "What was seen"});   d.Add(Paragraph{"…"});
//   WriteWhole("report.md", ToMarkdown({d}));   WriteWhole("report.html", ToHtml({english, chinese}, "zh"));
//
// Guarantees: every text is escaped, whatever it holds: a model's name or a line of a log can add neither markup nor scripts. The HTML page has no scripts and asks
// for nothing from anywhere; with two languages it shows one and offers the other, without scripts too.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ridge::lab {

enum class ReportLanguage { kEnglish, kChinese };
std::string_view Tag(ReportLanguage language);  // "en", "zh"

struct Heading {
  int level = 2;
  std::string text;
};
struct Paragraph {
  std::string text;
};
struct Bullets {
  std::vector<std::string> items;
  bool lead = false;  // the answer itself: set apart
};
struct TableCell {
  std::string text;
  bool missing = false;  // no value: the text says why
  std::string tone;      // "good", "bad", "": how a verdict is coloured
};
struct DataTable {
  struct Column {
    std::string title;
    bool number = false;  // aligned right
  };
  std::vector<Column> columns;
  std::vector<std::vector<TableCell>> rows;
  bool folded = false;  // long: shown when asked for
  std::string caption;
};
struct Figure {
  std::string svg;  // of plots.h: trusted, its texts are escaped there
  std::string caption;
};
using Block = std::variant<Heading, Paragraph, Bullets, DataTable, Figure>;

struct Document {
  ReportLanguage language = ReportLanguage::kEnglish;
  std::string title, subtitle;
  std::vector<Block> blocks;
  void Add(Block block) { blocks.push_back(std::move(block)); }
};

std::string ToMarkdown(const std::vector<Document>& documents);  // one after the other
std::string ToHtml(const std::vector<Document>& documents);      // the first is shown

std::string EscapeHtml(
    std::string_view
        text);  // for content and attributes; control characters and broken UTF-8 become U+FFFD; long words may break
std::string EscapeMarkdown(std::string_view text);

}  // namespace ridge::lab
