#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "text/jinja/case_table.h"
#include "text/utf8.h"

namespace ridge::text::jinja {
namespace {

utf8proc_category_t Category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

template <size_t N>
const SpecialCase* FindSpecial(const SpecialCase (&table)[N], char32_t c) {
  const auto* at = std::lower_bound(std::begin(table), std::end(table), c,
                                    [](const SpecialCase& s, char32_t v) { return s.from < v; });
  return at != std::end(table) && at->from == c ? at : nullptr;
}

void AppendSpecial(std::string& out, const SpecialCase& special) {
  for (char32_t c : special.to) {
    if (c != 0) AppendUtf8(out, c);
  }
}

void AppendUpper(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  } else if (const SpecialCase* special = FindSpecial(kSpecialUpper, c)) {
    AppendSpecial(out, *special);
  } else {
    AppendUtf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void AppendTitle(std::string& out, char32_t c) {
  if (const SpecialCase* special = FindSpecial(kSpecialTitle, c)) {
    AppendSpecial(out, *special);
  } else {
    AppendUtf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

bool IsCased(char32_t c) { return IsUpper(c) || IsLower(c) || IsTitle(c); }

bool IsCaseIgnorable(char32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019 || c == 0x2024 || c == 0x2027;
  }
}

// Greek capital sigma at the end of a word becomes the final form (SpecialCasing.txt, Final_Sigma).
bool IsFinalSigma(const std::vector<char32_t>& s, size_t at) {
  size_t before = at;
  while (before > 0 && IsCaseIgnorable(s[before - 1])) --before;
  if (before == 0 || !IsCased(s[before - 1])) return false;
  size_t after = at + 1;
  while (after < s.size() && IsCaseIgnorable(s[after])) ++after;
  return after == s.size() || !IsCased(s[after]);
}

void AppendLower(std::string& out, const std::vector<char32_t>& s, size_t at) {
  const char32_t c = s[at];
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  } else if (c == 0x130) {
    AppendUtf8(out, 'i');
    AppendUtf8(out, 0x307);
  } else if (c == 0x3A3) {
    AppendUtf8(out, IsFinalSigma(s, at) ? 0x3C2 : 0x3C3);
  } else {
    AppendUtf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

bool IsAscii(std::string_view s) {
  return std::all_of(s.begin(), s.end(), [](unsigned char c) { return c < 0x80; });
}

}  // namespace

int64_t CountCodePoints(std::string_view s) {
  return std::count_if(s.begin(), s.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; });
}

char32_t DecodeAt(std::string_view s, size_t& at) {
  const auto byte = [&](size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0U; };
  const char32_t b = byte(at);
  if (b < 0x80) return ++at, b;
  if (b < 0xE0) return at += 2, ((b & 0x1F) << 6) | (byte(at - 1) & 0x3F);
  if (b < 0xF0) return at += 3, ((b & 0x0F) << 12) | ((byte(at - 2) & 0x3F) << 6) | (byte(at - 1) & 0x3F);
  at += 4;
  return ((b & 0x07) << 18) | ((byte(at - 3) & 0x3F) << 12) | ((byte(at - 2) & 0x3F) << 6) | (byte(at - 1) & 0x3F);
}

void AppendUtf8(std::string& out, char32_t c) { text::AppendUtf8(c, out); }

std::vector<char32_t> ToCodePoints(std::string_view s) {
  std::vector<char32_t> out;
  out.reserve(s.size());
  for (size_t at = 0; at < s.size();) out.push_back(DecodeAt(s, at));
  return out;
}

size_t ByteOffset(std::string_view s, int64_t index, int64_t length) {
  if (index <= 0) return 0;
  if (index >= length) return s.size();
  if (length == static_cast<int64_t>(s.size())) return static_cast<size_t>(index);
  size_t at = 0;
  for (; index > 0; --index) DecodeAt(s, at);
  return at;
}

size_t PreviousStart(std::string_view s, size_t end) {
  do {
    --end;
  } while (end > 0 && (static_cast<unsigned char>(s[end]) & 0xC0) == 0x80);
  return end;
}

bool IsSpace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsLineBreak(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool IsAlpha(char32_t c) {
  if (c < 0x80) return (c | 32) >= 'a' && (c | 32) <= 'z';
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool IsDecimal(char32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : Category(c) == UTF8PROC_CATEGORY_ND; }
bool IsDigit(char32_t c) {
  return IsDecimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
         (c >= 0x2488 && c <= 0x2490);
}
bool IsNumeric(char32_t c) {
  if (c < 0x80) return IsDecimal(c);
  const auto category = Category(c);
  if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return true;
  static constexpr char32_t kHan[] = {0x3007, 0x4E00, 0x4E03, 0x4E09, 0x4E5D, 0x4E8C, 0x4E94, 0x516B,
                                      0x516D, 0x5341, 0x56DB, 0x767E, 0x5343, 0x4E07, 0x5104};
  return std::find(std::begin(kHan), std::end(kHan), c) != std::end(kHan);
}
bool IsAlnum(char32_t c) { return IsAlpha(c) || IsNumeric(c) || IsDigit(c); }
bool IsWord(char32_t c) { return c == '_' || IsAlnum(c); }
bool IsIdentifierStart(char32_t c) {
  return c == '_' || IsAlpha(c) || (c >= 0x80 && Category(c) == UTF8PROC_CATEGORY_NL);
}
bool IsUpper(char32_t c) { return c < 0x80 ? c >= 'A' && c <= 'Z' : Category(c) == UTF8PROC_CATEGORY_LU; }
bool IsLower(char32_t c) {
  return c < 0x80 ? c >= 'a' && c <= 'z' : Category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA;
}
bool IsTitle(char32_t c) { return c >= 0x80 && Category(c) == UTF8PROC_CATEGORY_LT; }

bool IsPrintable(char32_t c) {
  if (c < 0x80) return c >= 32 && c < 127;
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

static bool AllOfCase(std::string_view s, bool (*wanted)(char32_t), bool (*other)(char32_t)) {
  bool any = false;
  for (size_t at = 0; at < s.size();) {
    const char32_t c = DecodeAt(s, at);
    if (other(c) || IsTitle(c)) return false;
    any = any || wanted(c);
  }
  return any;
}

bool AllUpper(std::string_view s) { return AllOfCase(s, IsUpper, IsLower); }
bool AllLower(std::string_view s) { return AllOfCase(s, IsLower, IsUpper); }

std::string ToUpper(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t at = 0; at < s.size();) AppendUpper(out, DecodeAt(s, at));
  return out;
}

std::string ToLower(std::string_view s) {
  std::string out;
  if (IsAscii(s)) {
    out.assign(s);
    for (char& c : out) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    }
    return out;
  }
  const std::vector<char32_t> points = ToCodePoints(s);
  for (size_t i = 0; i < points.size(); ++i) AppendLower(out, points, i);
  return out;
}

std::string ToTitle(std::string_view s) {
  std::string out;
  const std::vector<char32_t> points = ToCodePoints(s);
  bool in_word = false;
  for (size_t i = 0; i < points.size(); ++i) {
    if (in_word) {
      AppendLower(out, points, i);
    } else {
      AppendTitle(out, points[i]);
    }
    in_word = IsCased(points[i]);
  }
  return out;
}

std::string Capitalize(std::string_view s) {
  std::string out;
  const std::vector<char32_t> points = ToCodePoints(s);
  for (size_t i = 0; i < points.size(); ++i) {
    if (i == 0) {
      AppendTitle(out, points[0]);
    } else {
      AppendLower(out, points, i);
    }
  }
  return out;
}

std::string SwapCase(std::string_view s) {
  std::string out;
  const std::vector<char32_t> points = ToCodePoints(s);
  for (size_t i = 0; i < points.size(); ++i) {
    if (IsUpper(points[i])) {
      AppendLower(out, points, i);
    } else {
      AppendUpper(out, points[i]);
    }
  }
  return out;
}

std::string CaseFold(std::string_view s) {
  std::string out;
  for (size_t at = 0; at < s.size();) {
    const char32_t c = DecodeAt(s, at);
    if (c < 0x80) {
      out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
      continue;
    }
    utf8proc_int32_t folded[8];
    int boundary = 0;
    const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < n && i < 8; ++i) AppendUtf8(out, static_cast<char32_t>(folded[i]));
  }
  return out;
}

template <class Drop>
static std::string_view StripIf(std::string_view s, Drop drop, bool left, bool right) {
  size_t begin = 0;
  while (left && begin < s.size()) {
    size_t next = begin;
    if (!drop(DecodeAt(s, next))) break;
    begin = next;
  }
  size_t end = s.size();
  while (right && end > begin) {
    const size_t start = PreviousStart(s, end);
    size_t at = start;
    if (!drop(DecodeAt(s, at))) break;
    end = start;
  }
  return s.substr(begin, end - begin);
}

std::string_view Strip(std::string_view s, bool left, bool right) { return StripIf(s, IsSpace, left, right); }

std::string_view Strip(std::string_view s, std::string_view chars, bool left, bool right) {
  const std::vector<char32_t> set = ToCodePoints(chars);
  return StripIf(s, [&](char32_t c) { return std::find(set.begin(), set.end(), c) != set.end(); }, left, right);
}

}  // namespace ridge::text::jinja
