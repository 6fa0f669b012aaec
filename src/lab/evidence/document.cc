#include "lab/evidence/document.h"

#include <fmt/format.h>

#include "text/utf8.h"

namespace ridge::lab {
namespace {

// The page's own look. Colours have a contrast of 4.5 at least on their ground; print shows every language and every fold.
constexpr std::string_view kStyle = R"(
:root{--ink:#1c2430;--soft:#5a6675;--line:#d9dfe6;--ground:#fff;--shade:#f5f7f9;--accent:#1f5fa8;--good:#1a6e3c;--bad:#a83a1c}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.6 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","PingFang SC","Hiragino Sans GB","Microsoft YaHei","Noto Sans CJK SC","WenQuanYi Zen Hei",sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 28px 64px}
h1{font-size:30px;line-height:1.25;margin:0 0 6px;letter-spacing:-.01em}
h2{font-size:21px;line-height:1.3;margin:44px 0 12px;padding-top:14px;border-top:1px solid var(--line)}
h3{font-size:17px;margin:28px 0 8px}
p,ul{margin:8px 0 12px;max-width:78ch}
li{margin:4px 0}
.sub{color:var(--soft);margin:0 0 18px;max-width:none}
.lead{background:var(--shade);border-left:4px solid var(--accent);padding:12px 18px 12px 36px;margin:10px 0;max-width:none}
.table{margin:10px 0 18px}
table{border-collapse:collapse;width:100%;font-size:14px;line-height:1.45}
th,td{text-align:left;vertical-align:top;padding:7px 10px;border-bottom:1px solid var(--line);overflow-wrap:break-word}
th{font-weight:600;border-bottom:2px solid var(--ink);white-space:normal;overflow-wrap:normal;word-break:keep-all}
tbody tr:nth-child(even){background:var(--shade)}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
td.n{overflow-wrap:normal}
td.missing{color:var(--soft);font-size:13px}
td.good{color:var(--good);font-weight:600}
td.bad{color:var(--bad);font-weight:600}
caption,figcaption{caption-side:bottom;text-align:left;color:var(--soft);font-size:13.5px;padding-top:6px;max-width:96ch}
figure{margin:14px 0 22px}
figure svg{display:block;width:100%;height:auto;font-family:inherit}
details{margin:10px 0 16px;border:1px solid var(--line);border-radius:6px;padding:0 14px}
summary{cursor:pointer;padding:9px 0;color:var(--accent)}
.pick{position:absolute;opacity:0;pointer-events:none}
nav{max-width:1180px;margin:0 auto;padding:18px 28px 0;display:flex;gap:8px;justify-content:flex-end}
nav label{cursor:pointer;padding:3px 12px;border:1px solid var(--line);border-radius:999px;font-size:14px;color:var(--soft)}
@media print{nav{display:none}main{display:block!important}details>*{display:block}body{font-size:12px}}
)";

template <class Escape>
std::string Escaped(std::string_view text, Escape escape) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const text::CodePoint point = text::DecodeUtf8(text, i);
    const size_t n = point.valid ? point.length_bytes : 0;
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (n == 0 || (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
      out += "\xEF\xBF\xBD";
      i++;
    } else if (n == 1) {
      escape(static_cast<char>(c), out);
      i++;
    } else {
      // Marks that turn the direction of writing could make a line read as another.
      const std::string_view letter = text.substr(i, n);
      const bool turns = (letter >= "\xE2\x80\xAA" && letter <= "\xE2\x80\xAE") ||
                         (letter >= "\xE2\x81\xA6" && letter <= "\xE2\x81\xA9");
      out += turns ? std::string_view("\xEF\xBF\xBD") : letter;
      i += n;
    }
  }
  return out;
}

// Where a word is too long for a column it may be broken, after / - _ . : first of all; a table's width is that of its longest piece.
std::string Breakable(std::string_view text) {
  constexpr size_t kLongest = 16;
  std::string out, piece;
  size_t letters = 0;
  const auto flush = [&](bool may_break) {
    out += EscapeHtml(piece);
    if (may_break) out += "<wbr>";
    piece.clear();
    letters = 0;
  };
  for (size_t i = 0; i < text.size(); i++) {
    const char c = text[i];
    const bool ascii = static_cast<unsigned char>(c) < 0x80;
    piece += c;
    letters = ascii && c != ' ' ? letters + 1 : 0;
    const bool last = i + 1 == text.size();
    if (last || !ascii) continue;
    const bool at_mark = c == '/' || c == '-' || c == '_' || c == ':';
    if (letters >= kLongest || (at_mark && letters >= kLongest / 2)) flush(true);
  }
  flush(false);
  return out;
}

struct MarkdownWriter {
  std::string out;
  void operator()(const Heading& h) {
    out += std::string(static_cast<size_t>(h.level), '#') + " " + EscapeMarkdown(h.text) + "\n\n";
  }
  void operator()(const Paragraph& p) { out += EscapeMarkdown(p.text) + "\n\n"; }
  void operator()(const Bullets& b) {
    for (const std::string& item : b.items) out += "- " + EscapeMarkdown(item) + "\n";
    out += "\n";
  }
  void operator()(const DataTable& t) {
    out += "|";
    for (const auto& c : t.columns) out += " " + EscapeMarkdown(c.title) + " |";
    out += "\n|";
    for (const auto& c : t.columns) out += c.number ? "---:|" : "---|";
    out += "\n";
    for (const auto& row : t.rows) {
      out += "|";
      for (const TableCell& c : row) out += " " + EscapeMarkdown(c.text) + " |";
      out += "\n";
    }
    out += "\n";
    if (!t.caption.empty()) out += EscapeMarkdown(t.caption) + "\n\n";
  }
  void operator()(const Figure& f) { out += "*" + EscapeMarkdown(f.caption) + "*\n\n"; }
};

struct HtmlWriter {
  ReportLanguage language;
  std::string out;
  void operator()(const Heading& h) { out += fmt::format("<h{0}>{1}</h{0}>\n", h.level, EscapeHtml(h.text)); }
  void operator()(const Paragraph& p) { out += "<p>" + Breakable(p.text) + "</p>\n"; }
  void operator()(const Bullets& b) {
    out += b.lead ? "<ul class=\"lead\">\n" : "<ul>\n";
    for (const std::string& item : b.items) out += "<li>" + Breakable(item) + "</li>\n";
    out += "</ul>\n";
  }
  void operator()(const DataTable& t) {
    if (t.folded) out += "<details><summary>" + EscapeHtml(t.caption) + "</summary>\n";
    out += "<div class=\"table\"><table>\n";
    if (!t.folded && !t.caption.empty()) out += "<caption>" + EscapeHtml(t.caption) + "</caption>\n";
    out += "<thead><tr>";
    for (const auto& c : t.columns)
      out += fmt::format("<th{}>{}</th>", c.number ? " class=\"n\"" : "", EscapeHtml(c.title));
    out += "</tr></thead>\n<tbody>\n";
    for (const auto& row : t.rows) {
      out += "<tr>";
      for (size_t i = 0; i < row.size(); i++) {
        std::string kind = row[i].missing ? "missing" : row[i].tone;
        if ((!row[i].missing || row[i].text == "-") && i < t.columns.size() && t.columns[i].number)
          kind += kind.empty() ? "n" : " n";
        out += fmt::format("<td{}>{}</td>", kind.empty() ? "" : " class=\"" + EscapeHtml(kind) + "\"",
                           Breakable(row[i].text));
      }
      out += "</tr>\n";
    }
    out += "</tbody></table></div>\n";
    if (t.folded) out += "</details>\n";
  }
  void operator()(const Figure& f) {
    out += "<figure>\n" + f.svg + "<figcaption>" + EscapeHtml(f.caption) + "</figcaption>\n</figure>\n";
  }
};

}  // namespace

std::string_view Tag(ReportLanguage language) {
  switch (language) {
    case ReportLanguage::kEnglish: return "en";
    case ReportLanguage::kChinese: return "zh";
  }
  return "?";
}

std::string EscapeHtml(std::string_view text) {
  return Escaped(text, [](char c, std::string& out) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  });
}

std::string EscapeMarkdown(std::string_view text) {
  std::string out = Escaped(text, [](char c, std::string& to) {
    switch (c) {
      case '<': to += "&lt;"; break;
      case '>': to += "&gt;"; break;
      case '&': to += "&amp;"; break;
      case '\n':
      case '\t': to += ' '; break;
      case '\\':
      case '|':
      case '*':
      case '`':
      case '[':
      case ']':
      case '~': to += std::string("\\") + c; break;
      default: to += c;
    }
  });
  // What would begin a heading, list or rule where a line begins.
  if (!out.empty() && (out[0] == '#' || out[0] == '-' || out[0] == '+' || out[0] == '=')) out.insert(0, "\\");
  return out;
}

std::string ToMarkdown(const std::vector<Document>& documents) {
  MarkdownWriter w;
  for (const Document& d : documents) {
    w.out += "# " + EscapeMarkdown(d.title) + "\n\n";
    if (!d.subtitle.empty()) w.out += EscapeMarkdown(d.subtitle) + "\n\n";
    for (const Block& b : d.blocks) std::visit(w, b);
  }
  while (w.out.ends_with("\n\n")) w.out.pop_back();
  return w.out;
}

std::string ToHtml(const std::vector<Document>& documents) {
  std::string style(kStyle), picks, labels, bodies;
  for (size_t i = 0; i < documents.size(); i++) {
    const Document& d = documents[i];
    const std::string tag(Tag(d.language));
    bodies += fmt::format("<main lang=\"{}\" class=\"{}\">\n<h1>{}</h1>\n",
                          d.language == ReportLanguage::kChinese ? "zh-CN" : tag, tag, EscapeHtml(d.title));
    if (!d.subtitle.empty()) bodies += "<p class=\"sub\">" + EscapeHtml(d.subtitle) + "</p>\n";
    HtmlWriter w{d.language, ""};
    for (const Block& b : d.blocks) std::visit(w, b);
    bodies += w.out + "</main>\n";
    if (documents.size() < 2) continue;
    picks += fmt::format("<input class=\"pick\" type=\"radio\" name=\"language\" id=\"pick-{}\"{}>\n", tag,
                         i == 0 ? " checked" : "");
    labels += fmt::format("<label for=\"pick-{}\">{}</label>\n", tag,
                          d.language == ReportLanguage::kChinese ? "中文" : "English");
    style += fmt::format(
        "#pick-{0}:not(:checked)~main.{0}{{display:none}}\n#pick-{0}:checked~nav "
        "label[for=pick-{0}]{{background:var(--accent);border-color:var(--accent);color:#fff}}\n"
        "#pick-{0}:focus-visible~nav label[for=pick-{0}]{{outline:2px solid var(--ink)}}\n",
        tag);
  }
  const Document& first = documents.at(0);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"{}\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}{}{}</body>\n</html>\n",
      first.language == ReportLanguage::kChinese ? "zh-CN" : "en", EscapeHtml(first.title), style, picks,
      labels.empty() ? "" : "<nav>\n" + labels + "</nav>\n", bodies);
}

}  // namespace ridge::lab
