#include "text/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja/unicode.h"
#include "text/jinja/value.h"

namespace ridge::text::jinja {
namespace {

std::string NormalizeNewlines(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '\r') {
      out += '\n';
      if (i + 1 < s.size() && s[i + 1] == '\n') ++i;
    } else {
      out += s[i];
    }
  }
  return out;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32) - 'a' + 10;
  return -1;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeNewlines(source)) {
    if (!source_.empty() && source_.back() == '\n') source_.pop_back();  // keep_trailing_newline is off
  }

  std::vector<Token> Run() {
    while (pos_ < source_.size()) Root();
    Emit(Tok::kEof);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void Fail(std::string message) { Throw(Err::kSyntax, std::move(message), line_); }
  bool At(std::string_view s) const { return source_.compare(pos_, s.size(), s) == 0; }
  char Peek(size_t ahead = 0) const { return pos_ + ahead < source_.size() ? source_[pos_ + ahead] : '\0'; }

  Token& Emit(Tok type, std::string text = {}) {
    Token& token = tokens_.emplace_back();
    token.type = type;
    token.line = line_;
    token.text = std::move(text);
    return token;
  }

  void Advance(size_t n) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(pos_),
                                         source_.begin() + static_cast<ptrdiff_t>(pos_ + n), '\n'));
    pos_ += n;
  }

  // Whitespace from `at` on, in bytes.
  size_t SpaceRun(size_t at) const {
    size_t end = at;
    while (end < source_.size()) {
      size_t next = end;
      if (!IsSpace(DecodeAt(source_, next))) break;
      end = next;
    }
    return end - at;
  }

  // Length of `{% raw %}` at `at`, else 0; the sign after `{%` goes to *sign.
  size_t RawBegin(size_t at, char* sign) const {
    size_t p = at + 2;
    *sign = p < source_.size() && (source_[p] == '-' || source_[p] == '+') ? source_[p] : '\0';
    if (*sign != '\0') ++p;
    p += SpaceRun(p);
    if (source_.compare(p, 3, "raw") != 0) return 0;
    p += 3;
    p += SpaceRun(p);
    if (source_.compare(p, 3, "-%}") == 0) {
      p += 3;
      return p + SpaceRun(p) - at;
    }
    return source_.compare(p, 2, "%}") == 0 ? p + 2 - at : 0;
  }

  // The end of a tag at `at`: `+%}`, `-%}` with the space after it, `%}` with one newline after it. 0: none.
  size_t TagEnd(size_t at, std::string_view close) const {
    const auto is = [&](size_t p, std::string_view s) { return source_.compare(p, s.size(), s) == 0; };
    if (at < source_.size() && source_[at] == '+' && is(at + 1, close)) return 1 + close.size();
    if (at < source_.size() && source_[at] == '-' && is(at + 1, close)) {
      return 1 + close.size() + SpaceRun(at + 1 + close.size());
    }
    if (!is(at, close)) return 0;
    const size_t n = close.size();
    return at + n < source_.size() && source_[at + n] == '\n' ? n + 1 : n;
  }

  // Template data up to the next tag, stripped as the tag's sign and lstrip_blocks ask.
  void EmitData(size_t end, char sign, bool lstrip) {
    std::string_view text = std::string_view(source_).substr(pos_, end - pos_);
    std::string_view kept = text;
    if (sign == '-') {
      kept = Strip(text, false, true);
    } else if (sign != '+' && lstrip) {
      const size_t newline = text.rfind('\n');
      const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
      if (start > 0 || line_starting_) {
        const std::string_view tail = text.substr(start);
        if (!tail.empty() && Strip(tail, true, false).empty()) kept = text.substr(0, start);
      }
    }
    if (!kept.empty()) Emit(Tok::kData, std::string(kept));
    Advance(text.size());
  }

  // Every match notes whether it ended in a newline: lstrip_blocks works only at the start of a line.
  void Finish(size_t n) {
    Advance(n);
    line_starting_ = pos_ > 0 && n > 0 && source_[pos_ - 1] == '\n';
  }

  void Root() {
    size_t tag = pos_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        Emit(Tok::kData, source_.substr(pos_));
        Advance(source_.size() - pos_);
        return;
      }
      const char next = source_[tag + 1];
      if (next == '{' || next == '%' || next == '#') break;
    }
    const char type = source_[tag + 1];
    char sign =
        tag + 2 < source_.size() && (source_[tag + 2] == '-' || source_[tag + 2] == '+') ? source_[tag + 2] : '\0';
    char raw_sign = '\0';
    if (type == '%') {
      if (const size_t raw = RawBegin(tag, &raw_sign); raw != 0) {
        EmitData(tag, raw_sign, true);
        Finish(raw);
        Raw();
        return;
      }
    }
    EmitData(tag, sign, type != '{');
    if (type == '{') Emit(Tok::kVariableBegin);
    if (type == '%') Emit(Tok::kBlockBegin);
    Finish(sign == '\0' ? 2 : 3);
    if (type == '#') {
      Comment();
    } else {
      Tag(type == '{');
    }
  }

  void Comment() {
    for (size_t p = pos_; p < source_.size(); ++p) {
      if (const size_t n = TagEnd(p, "#}"); n != 0) return Finish(p + n - pos_);
    }
    if (pos_ < source_.size()) Fail("Missing end of comment tag");  // jinja2 lets a tag at the very end pass
  }

  void Raw() {
    for (size_t p = source_.find("{%", pos_); p != std::string::npos; p = source_.find("{%", p + 1)) {
      size_t q = p + 2;
      const char sign = q < source_.size() && (source_[q] == '-' || source_[q] == '+') ? source_[q] : '\0';
      if (sign != '\0') ++q;
      q += SpaceRun(q);
      if (source_.compare(q, 6, "endraw") != 0) continue;
      q += 6;
      // `-` and `+` belong to the end of the tag, and so does the space before it.
      q += SpaceRun(q);
      const size_t n = TagEnd(q, "%}");
      if (n == 0) continue;
      EmitData(p, sign, true);
      return Finish(q + n - pos_);
    }
    if (pos_ < source_.size()) Fail("Missing end of raw directive");
  }

  void Tag(bool variable) {
    std::string closers;  // expected closing brackets
    while (true) {
      if (closers.empty()) {
        if (!variable) {
          if (const size_t n = TagEnd(pos_, "%}"); n != 0) {
            Emit(Tok::kBlockEnd);
            return Finish(n);
          }
        } else if (At("}}")) {
          Emit(Tok::kVariableEnd);
          return Finish(2);
        } else if (At("-}}")) {
          Emit(Tok::kVariableEnd);
          return Finish(3 + SpaceRun(pos_ + 3));
        }
      }
      // The end of the source inside a tag: the parser sees kEof and reports what it still expected.
      if (pos_ >= source_.size()) return;
      if (const size_t space = SpaceRun(pos_); space != 0) {
        Finish(space);
        continue;
      }
      if (Number() || Name() || String()) continue;
      Operator(closers);
    }
  }

  size_t Digits(size_t at) const {  // (\d+_)*\d+
    size_t p = at;
    while (p < source_.size() && ((source_[p] >= '0' && source_[p] <= '9') ||
                                  (source_[p] == '_' && p > at && source_[p - 1] != '_' && p + 1 < source_.size() &&
                                   source_[p + 1] >= '0' && source_[p + 1] <= '9'))) {
      ++p;
    }
    return p - at;
  }

  bool Number() {
    if (Peek() < '0' || Peek() > '9') return false;
    const size_t whole = Digits(pos_);
    size_t end = pos_ + whole;
    bool is_float = false;
    if (pos_ == 0 || source_[pos_ - 1] != '.') {
      size_t p = end;
      if (p < source_.size() && source_[p] == '.') {
        if (const size_t n = Digits(p + 1); n > 0) {
          p += 1 + n;
          is_float = true;
          end = p;
        }
      }
      if (p < source_.size() && (source_[p] | 32) == 'e') {
        size_t q = p + 1;
        if (q < source_.size() && (source_[q] == '+' || source_[q] == '-')) ++q;
        if (const size_t n = Digits(q); n > 0) {
          is_float = true;
          end = q + n;
        }
      }
    }
    if (is_float) {
      std::string digits = source_.substr(pos_, end - pos_);
      std::erase(digits, '_');
      Emit(Tok::kFloat, digits).floating = std::strtod(digits.c_str(), nullptr);
      Finish(end - pos_);
      return true;
    }
    return Integer(whole);
  }

  bool Integer(size_t decimal_bytes) {
    int base = 10;
    size_t n = decimal_bytes;
    const char kind = static_cast<char>(Peek(1) | 32);
    if (Peek() == '0' && (kind == 'x' || kind == 'o' || kind == 'b')) {
      const int wanted = kind == 'x' ? 16 : kind == 'o' ? 8 : 2;
      const auto digit = [&](size_t i) {
        const int d = HexDigit(Peek(i));
        return d >= 0 && d < wanted;
      };
      size_t p = 2;
      while (digit(p) || (Peek(p) == '_' && digit(p + 1))) ++p;
      if (p > 2) {
        base = wanted;
        n = p;
      }
    }
    if (base == 10 && Peek() == '0') {  // only zeros: 012 is 0 and then 12
      n = 1;
      while (Peek(n) == '0' || (Peek(n) == '_' && Peek(n + 1) == '0')) ++n;
    }
    std::string digits = source_.substr(pos_ + (base == 10 ? 0 : 2), n - (base == 10 ? 0 : 2));
    std::erase(digits, '_');
    int64_t value = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (parsed.ec != std::errc()) Throw(Err::kUnsupported, "integer beyond 64 bits: " + digits.substr(0, 40), line_);
    Emit(Tok::kInteger, digits).integer = value;
    Finish(n);
    return true;
  }

  bool Name() {
    size_t end = pos_;
    while (end < source_.size()) {
      size_t next = end;
      const char32_t c = DecodeAt(source_, next);
      if (!IsWord(c)) break;
      end = next;
    }
    if (end == pos_) return false;
    size_t first = pos_;
    if (!IsIdentifierStart(DecodeAt(source_, first))) Fail("Invalid character in identifier");
    Emit(Tok::kName, source_.substr(pos_, end - pos_));
    Finish(end - pos_);
    return true;
  }

  bool String() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') return false;
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return false;
    std::string decoded = Unescape(std::string_view(source_).substr(pos_ + 1, end - pos_ - 1));
    Emit(Tok::kString, std::move(decoded));
    Finish(end + 1 - pos_);
    return true;
  }

  // Python's unicode-escape, after jinja2 has turned every character beyond ASCII into an escape of its own.
  std::string Unescape(std::string_view s) {
    std::string out;
    for (size_t i = 0; i < s.size();) {
      if (s[i] != '\\') {
        out += s[i++];
        continue;
      }
      if (++i == s.size()) Fail("\\ at end of string");
      const char c = s[i];
      if (static_cast<unsigned char>(c) >= 0x80) {
        const char32_t point = DecodeAt(s, i);
        char name[16];
        std::snprintf(name, sizeof name,
                      point < 0x100     ? "\\x%02x"
                      : point < 0x10000 ? "\\u%04x"
                                        : "\\U%08x",
                      static_cast<unsigned>(point));
        out += name;
        continue;
      }
      ++i;
      switch (c) {
        case '\n': break;
        case '\\':
        case '\'':
        case '"': out += c; break;
        case 'a': out += '\a'; break;
        case 'b': out += '\b'; break;
        case 'f': out += '\f'; break;
        case 'n': out += '\n'; break;
        case 'r': out += '\r'; break;
        case 't': out += '\t'; break;
        case 'v': out += '\v'; break;
        case 'x': i = Hex(s, i, 2, out); break;
        case 'u': i = Hex(s, i, 4, out); break;
        case 'U': i = Hex(s, i, 8, out); break;
        case 'N': Fail("\\N{...} escapes are not supported");
        case '0':
        case '1':
        case '2':
        case '3':
        case '4':
        case '5':
        case '6':
        case '7': {
          char32_t value = static_cast<char32_t>(c - '0');
          for (int n = 1; n < 3 && i < s.size() && s[i] >= '0' && s[i] <= '7'; ++n)
            value = value * 8 + static_cast<char32_t>(s[i++] - '0');
          AppendUtf8(out, value);
          break;
        }
        default: out += '\\'; out += c;
      }
    }
    return out;
  }

  size_t Hex(std::string_view s, size_t at, size_t digits, std::string& out) {
    uint64_t value = 0;
    for (size_t n = 0; n < digits; ++n, ++at) {
      const int d = at < s.size() ? HexDigit(s[at]) : -1;
      if (d < 0) Fail("truncated escape in a string");
      value = value * 16 + static_cast<uint64_t>(d);
    }
    if (value > 0x10FFFF) Fail("illegal Unicode character in a string");
    if (value >= 0xD800 && value < 0xE000) Throw(Err::kUnsupported, "a lone surrogate in a string", line_);
    AppendUtf8(out, static_cast<char32_t>(value));
    return at;
  }

  void Operator(std::string& closers) {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    for (std::string_view op : kTwo) {
      if (At(op)) {
        Emit(Tok::kOperator, std::string(op));
        return Finish(2);
      }
    }
    const char c = Peek();
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      size_t next = pos_;
      DecodeAt(source_, next);
      Fail("unexpected char '" + source_.substr(pos_, next - pos_) + "'");
    }
    if (c == '{') closers += '}';
    if (c == '(') closers += ')';
    if (c == '[') closers += ']';
    if (c == '}' || c == ')' || c == ']') {
      if (closers.empty()) Fail(std::string("unexpected '") + c + "'");
      if (closers.back() != c) Fail(std::string("unexpected '") + c + "', expected '" + closers.back() + "'");
      closers.pop_back();
    }
    Emit(Tok::kOperator, std::string(1, c));
    Finish(1);
  }

  std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Lex(std::string_view source) { return Lexer(source).Run(); }

std::string Describe(const Token& token) {
  switch (token.type) {
    case Tok::kData: return "template data";
    case Tok::kVariableBegin: return "begin of print statement";
    case Tok::kVariableEnd: return "end of print statement";
    case Tok::kBlockBegin: return "begin of statement block";
    case Tok::kBlockEnd: return "end of statement block";
    case Tok::kEof: return "end of template";
    case Tok::kName:
    case Tok::kString:
    case Tok::kInteger:
    case Tok::kFloat:
    case Tok::kOperator: break;
  }
  return token.text.substr(0, 60);
}

}  // namespace ridge::text::jinja
