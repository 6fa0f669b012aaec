// Pieces of SVG: numbers with two decimals, texts escaped.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "lab/evidence/document.h"

namespace ridge::lab::svg {

inline constexpr const char* kInk = "#1c2430";
inline constexpr const char* kSoft = "#5a6675";
inline constexpr const char* kLine = "#d9dfe6";
inline constexpr const char* kBetter = "#1f5fa8";
inline constexpr const char* kWorse = "#b8481c";
inline constexpr const char* kSame = "#6b7683";

inline std::string Open(double width, double height, const std::string& label) {
  return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\" font-size=\"13\">\n", width,
                     height, EscapeHtml(label));
}

inline std::string Text(double x, double y, const char* anchor, const std::string& text, const char* fill = kInk,
                        const std::string& more = "") {
  return fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\" fill=\"{}\"{}>{}</text>\n", x, y, anchor, fill,
                     more.empty() ? "" : " " + more, EscapeHtml(text));
}

// About as wide as the text is drawn at 13 px: a letter beyond ASCII is as wide as it is high.
inline double WidthOf(std::string_view text) {
  double width = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xc0) != 0x80) width += byte < 0x80 ? 7.1 : 13;
  }
  return width;
}

// The text where it fits into `width`; else its beginning and its end, by which long names differ, with the whole as a tooltip.
inline std::string FittedText(double x, double y, double width, const char* anchor, const std::string& text,
                              const char* fill = kInk, const std::string& more = "") {
  if (WidthOf(text) <= width) return Text(x, y, anchor, text, fill, more);
  std::vector<std::string> letters;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xc0) == 0x80 && !letters.empty())
      letters.back() += c;
    else
      letters.emplace_back(1, c);
  }
  std::string head, tail;
  for (size_t a = 0, b = letters.size(); a < b;) {
    std::string& side = a <= letters.size() - b ? head : tail;
    const std::string next = &side == &head ? letters[a] : letters[b - 1];
    if (WidthOf(head) + WidthOf(tail) + WidthOf(next) + 13 > width) break;
    if (&side == &head)
      head += next, a++;
    else
      tail = next + tail, b--;
  }
  return fmt::format("<text x=\"{:.2f}\" y=\"{:.2f}\" text-anchor=\"{}\" fill=\"{}\"{}>{}<title>{}</title></text>\n", x,
                     y, anchor, fill, more.empty() ? "" : " " + more, EscapeHtml(head + "…" + tail), EscapeHtml(text));
}

inline std::string Line(double x1, double y1, double x2, double y2, const char* stroke, const std::string& more = "") {
  return fmt::format("<line x1=\"{:.2f}\" y1=\"{:.2f}\" x2=\"{:.2f}\" y2=\"{:.2f}\" stroke=\"{}\"{}/>\n", x1, y1, x2,
                     y2, stroke, more.empty() ? "" : " " + more);
}

inline std::string Rect(double x, double y, double width, double height, const std::string& fill,
                        const std::string& more = "", const std::string& title = "") {
  const std::string head =
      fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"{}", x, y,
                  width < 0 ? 0 : width, height < 0 ? 0 : height, fill, more.empty() ? "" : " " + more);
  return head + (title.empty() ? "/>\n" : "><title>" + EscapeHtml(title) + "</title></rect>\n");
}

}  // namespace ridge::lab::svg
