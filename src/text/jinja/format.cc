// "%…" % args, str.format and format specifications.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "text/jinja/interp.h"
#include "text/jinja/methods.h"
#include "text/jinja/python.h"
#include "text/jinja/unicode.h"

namespace ridge::text::jinja {
namespace {

constexpr int64_t kMaxPrecision = 4000;

// A number as text: sign, prefix (0x), digits; padded to width with the fill on the side that align says ('=': after the prefix).
struct Padding {
  std::string fill = " ";
  char align = '>';
  int64_t width = 0;
};

std::string Pad(Interp& in, const std::string& head, const std::string& body, const Padding& p) {
  const int64_t missing = p.width - CountCodePoints(head) - CountCodePoints(body);
  if (missing <= 0) return head + body;
  ReserveBytes(in, missing * static_cast<int64_t>(p.fill.size()));
  in.budget().Step(static_cast<uint64_t>(missing) / 16);
  const int64_t left = p.align == '<' ? 0 : p.align == '^' ? missing / 2 : missing;
  std::string before, after;
  for (int64_t i = 0; i < missing; ++i) (i < left ? before : after) += p.fill;
  return p.align == '=' ? head + before + body : before + head + body + after;
}

std::string FloatDigits(double magnitude, char type, int64_t precision, bool alternate) {
  if (precision > kMaxPrecision) Throw(Err::kLimit, "the precision is too large");
  if (!std::isfinite(magnitude)) return std::isnan(magnitude) ? "nan" : "inf";
  char format[8] = {'%', alternate ? '#' : '.', alternate ? '.' : '*', alternate ? '*' : type, alternate ? type : '\0',
                    '\0'};
  std::string out(static_cast<size_t>(precision) + 400, '\0');
  const int n = std::snprintf(out.data(), out.size(), format, static_cast<int>(precision), magnitude);
  out.resize(static_cast<size_t>(std::max(n, 0)));
  return out;
}

std::string IntDigits(uint64_t magnitude, int base, bool upper) {
  const char* const digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  do {
    out += digits[magnitude % static_cast<unsigned>(base)];
    magnitude /= static_cast<unsigned>(base);
  } while (magnitude != 0);
  std::reverse(out.begin(), out.end());
  return out;
}

uint64_t Magnitude(int64_t i) { return i < 0 ? 0 - static_cast<uint64_t>(i) : static_cast<uint64_t>(i); }

// Puts a separator between groups of digits before the point.
std::string Group(const std::string& digits, char separator, size_t every) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  const size_t end = digits.find('e') != std::string::npos && every == 3 ? std::min(whole, digits.find('e')) : whole;
  std::string out;
  for (size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(end);
}

std::string Ascii(std::string_view repr) {
  std::string out;
  for (size_t at = 0; at < repr.size();) {
    const char32_t c = DecodeAt(repr, at);
    if (c < 0x80) {
      out += static_cast<char>(c);
      continue;
    }
    char code[16];
    std::snprintf(code, sizeof code,
                  c < 0x100     ? "\\x%02x"
                  : c < 0x10000 ? "\\u%04x"
                                : "\\U%08x",
                  static_cast<unsigned>(c));
    out += code;
  }
  return out;
}

// ------------------------------------------------------------------------------------------------------- percent format

class Percent {
 public:
  Percent(Interp& in, std::string_view format, const Value& args, bool escape)
      : in_(in), s_(format), args_(args), escape_(escape), tuple_(args.Is(Kind::kTuple)) {
    // Whatever has __getitem__ may stand for a mapping, and then need not be used up.
    mapping_like_ = !tuple_ && !args.IsString() && !args.IsNumber() && !args.IsNone() && !args.Is(Kind::kFunction) &&
                    !args.Is(Kind::kMacro);
  }

  std::string Run() {
    while (at_ < s_.size()) {
      if (s_[at_] != '%') {
        const size_t next = std::min(s_.find('%', at_), s_.size());
        out_ += s_.substr(at_, next - at_);
        at_ = next;
        continue;
      }
      ++at_;
      Directive();
      in_.budget().Step(1 + out_.size() / 1024);
      ReserveBytes(in_, static_cast<int64_t>(out_.size()));
    }
    const bool left_over = tuple_ ? used_ < args_.items().size() : used_ == 0 && !mapping_like_;
    if (left_over) Throw(Err::kType, "not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  [[noreturn]] static void Incomplete() { Throw(Err::kValue, "incomplete format"); }
  char Peek() const { return at_ < s_.size() ? s_[at_] : '\0'; }

  Value Next() {
    if (tuple_) {
      if (used_ >= args_.items().size()) Throw(Err::kType, "not enough arguments for format string");
      return args_.items()[used_++];
    }
    if (used_++ > 0) Throw(Err::kType, "not enough arguments for format string");
    return args_;
  }

  int64_t Number() {
    if (Peek() == '*') {
      ++at_;
      const Value v = Next();
      if (!v.IsIntegral()) Throw(Err::kType, "* wants int");
      return std::clamp<int64_t>(v.integer(), -1'000'000'000, 1'000'000'000);
    }
    int64_t n = 0;
    while (Peek() >= '0' && Peek() <= '9') n = std::min<int64_t>(n * 10 + (s_[at_++] - '0'), 1'000'000'000);
    return n;
  }

  void Directive() {
    bool keyed = false;
    Value subject;
    if (Peek() == '(') {
      size_t end = at_ + 1;
      int depth = 1;
      for (; end < s_.size() && depth > 0; ++end) depth += s_[end] == '(' ? 1 : s_[end] == ')' ? -1 : 0;
      if (depth > 0) Throw(Err::kValue, "incomplete format key");
      if (!mapping_like_) Throw(Err::kType, "format requires a mapping");
      const Value key = in_.Str(std::string(s_.substr(at_ + 1, end - at_ - 2)));
      if (args_.IsUndefined()) ThrowUndefined(args_);
      if (!args_.Is(Kind::kDict)) Throw(Err::kType, "list indices must be integers or slices, not str");
      const Value* found = args_.As<DictObj>().table.Find(key, in_.budget());
      if (found == nullptr) Throw(Err::kLookup, ReprString(key.text()));
      subject = *found;
      keyed = true;
      used_ = std::max<size_t>(used_, 1);
      at_ = end;
    }
    bool left = false, plus = false, space = false, zero = false, alternate = false;
    for (;; ++at_) {
      if (Peek() == '-')
        left = true;
      else if (Peek() == '+')
        plus = true;
      else if (Peek() == ' ')
        space = true;
      else if (Peek() == '0')
        zero = true;
      else if (Peek() == '#')
        alternate = true;
      else
        break;
    }
    int64_t width = Number();
    if (width < 0) {
      left = true;
      width = -width;
    }
    int64_t precision = -1;
    if (Peek() == '.') {
      ++at_;
      precision = std::max<int64_t>(Number(), 0);
    }
    if (Peek() == 'h' || Peek() == 'l' || Peek() == 'L') ++at_;
    if (at_ >= s_.size()) Incomplete();
    const char type = s_[at_++];
    if (type == '%') {
      out_ += '%';
      return;
    }
    if (!keyed) subject = Next();
    Padding pad{" ", left ? '<' : '>', width};
    std::string head, body;
    const auto sign = [&](bool negative) { head = negative ? "-" : plus ? "+" : space ? " " : ""; };
    switch (type) {
      case 's':
      case 'r':
      case 'a':
        body = Text(subject, type);
        if (precision >= 0) body.resize(ByteOffset(body, precision, CountCodePoints(body)));
        out_ += Pad(in_, "", body, pad);
        return;
      case 'c':
        body = Character(subject);
        out_ += Pad(in_, "", body, pad);
        return;
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X': {
        const bool decimal = type == 'd' || type == 'i' || type == 'u';
        const int64_t value = Integer(subject, type, decimal);
        sign(value < 0);
        const int base = decimal ? 10 : type == 'o' ? 8 : 16;
        body = IntDigits(Magnitude(value), base, type == 'X');
        if (precision > static_cast<int64_t>(body.size())) {
          ReserveBytes(in_, precision);
          body.insert(0, static_cast<size_t>(precision) - body.size(), '0');
        }
        if (alternate && !decimal) head += type == 'o' ? "0o" : type == 'x' ? "0x" : "0X";
        break;
      }
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        if (subject.IsUndefined()) ThrowUndefined(subject);
        if (!subject.IsNumber()) Throw(Err::kType, "must be real number, not " + std::string(TypeName(subject)));
        const double d = subject.AsDouble();
        sign(std::signbit(d) && !std::isnan(d));
        body = FloatDigits(std::fabs(d), type, precision < 0 ? 6 : precision, alternate);
        break;
      }
      default: Throw(Err::kValue, std::string("unsupported format character '") + type + "'");
    }
    if (zero && !left) {
      pad.fill = "0";
      pad.align = '=';
    }
    out_ += Pad(in_, head, body, pad);
  }

  std::string Text(const Value& v, char type) {
    std::string s = type == 's' ? ToStr(in_, v) : type == 'r' ? Repr(in_, v) : Ascii(Repr(in_, v));
    const bool safe = type == 's' && v.IsString() && v.As<StringObj>().markup;
    return escape_ && !safe ? EscapeHtml(s) : s;
  }
  std::string Character(const Value& v) {
    std::string out;
    if (v.IsIntegral() && v.integer() >= 0 && v.integer() < 0x110000 &&
        (v.integer() < 0xD800 || v.integer() > 0xDFFF)) {
      AppendUtf8(out, static_cast<char32_t>(v.integer()));
      return out;
    }
    if (!v.IsString() || v.As<StringObj>().length != 1) Throw(Err::kType, "%c requires int or char");
    return v.text();
  }
  static int64_t Integer(const Value& v, char type, bool truncate) {
    if (v.IsIntegral()) return v.integer();
    if (v.IsUndefined()) ThrowUndefined(v);
    if (truncate && v.Is(Kind::kFloat)) {
      if (!(std::fabs(v.floating()) < 9.2233720368547758e18)) Throw(Err::kUnsupported, "integer beyond 64 bits");
      return static_cast<int64_t>(v.floating());
    }
    Throw(Err::kType, std::string("%") + type + " format: a number is required, not " + std::string(TypeName(v)));
  }

  Interp& in_;
  std::string_view s_;
  const Value& args_;
  bool escape_, tuple_, mapping_like_ = false;
  size_t at_ = 0, used_ = 0;
  std::string out_;
};

// ---------------------------------------------------------------------------------------------------- format specification

struct Spec {
  std::string fill;
  char align = 0, sign = '-', grouping = 0, type = 0;
  bool alternate = false, zero = false;
  int64_t width = 0, precision = -1;
};

Spec ParseSpec(std::string_view s) {
  Spec spec;
  size_t at = 0;
  const auto peek = [&] { return at < s.size() ? s[at] : '\0'; };
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  size_t second = 0;
  if (!s.empty()) DecodeAt(s, second);
  if (second > 0 && second < s.size() && is_align(s[second])) {
    spec.fill = s.substr(0, second);
    spec.align = s[second];
    at = second + 1;
  } else if (is_align(peek())) {
    spec.align = s[at++];
  }
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = s[at++];
  if (peek() == '#') spec.alternate = (++at, true);
  if (peek() == '0') {
    ++at;
    spec.zero = true;
  }
  const auto number = [&] {
    int64_t n = 0;
    while (peek() >= '0' && peek() <= '9') n = std::min<int64_t>(n * 10 + (s[at++] - '0'), 1'000'000'000'000);
    return n;
  };
  spec.width = number();
  if (peek() == ',' || peek() == '_') spec.grouping = s[at++];
  if (peek() == '.') {
    ++at;
    if (!(peek() >= '0' && peek() <= '9')) Throw(Err::kValue, "Format specifier missing precision");
    spec.precision = number();
  }
  if (at + 1 < s.size()) Throw(Err::kValue, "Invalid format specifier");
  if (at < s.size()) spec.type = s[at];
  return spec;
}

[[noreturn]] void UnknownCode(const Spec& spec, const Value& v) {
  Throw(Err::kValue,
        std::string("Unknown format code '") + spec.type + "' for object of type '" + std::string(TypeName(v)) + "'");
}

std::string FormatText(Interp& in, const Value& v, const Spec& spec) {
  if (spec.type != 0 && spec.type != 's') UnknownCode(spec, v);
  if (spec.sign != '-' || spec.alternate || spec.grouping != 0 || spec.align == '=')
    Throw(Err::kValue, "this format specifier is not allowed for strings");
  std::string s = v.text();
  if (spec.precision >= 0) s.resize(ByteOffset(s, spec.precision, v.As<StringObj>().length));
  return Pad(in, "", s,
             {!spec.fill.empty() ? spec.fill
              : spec.zero        ? "0"
                                 : " ",
              spec.align != 0 ? spec.align : '<', spec.width});
}

std::string FormatFloat(double magnitude, const Spec& spec, const Value& v) {
  switch (spec.type) {
    case 0:
      if (spec.precision < 0) return ReprFloat(magnitude);
      {
        std::string s = FloatDigits(magnitude, 'g', std::max<int64_t>(spec.precision, 1), spec.alternate);
        if (s.find_first_not_of("0123456789") == std::string::npos) s += ".0";
        return s;
      }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': return FloatDigits(magnitude, spec.type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
    case 'n': return FloatDigits(magnitude, 'g', spec.precision < 0 ? 6 : spec.precision, spec.alternate);
    case '%': return FloatDigits(magnitude * 100, 'f', spec.precision < 0 ? 6 : spec.precision, spec.alternate) + "%";
    default: UnknownCode(spec, v);
  }
}

std::string FormatNumber(Interp& in, const Value& v, const Spec& spec) {
  std::string head, body;
  size_t every = 3;
  const bool negative = v.IsIntegral() ? v.integer() < 0 : std::signbit(v.floating()) && !std::isnan(v.floating());
  head = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  const std::string_view integer_types("bcdoxXn");
  if (v.IsIntegral() && (spec.type == 0 || integer_types.find(spec.type) != std::string_view::npos)) {
    if (spec.precision >= 0) Throw(Err::kValue, "Precision not allowed in integer format specifier");
    if (spec.type == 'c') {
      if (v.integer() < 0 || v.integer() > 0x10FFFF || (v.integer() >= 0xD800 && v.integer() < 0xE000))
        Throw(Err::kOverflow, "%c arg not in range(0x110000)");
      AppendUtf8(body, static_cast<char32_t>(v.integer()));
      return Pad(in, "", body, {spec.fill.empty() ? " " : spec.fill, spec.align != 0 ? spec.align : '<', spec.width});
    }
    const int base = spec.type == 'b' ? 2 : spec.type == 'o' ? 8 : spec.type == 'x' || spec.type == 'X' ? 16 : 10;
    body = IntDigits(Magnitude(v.integer()), base, spec.type == 'X');
    if (base != 10) {
      if (spec.grouping == ',') Throw(Err::kValue, "Cannot specify ',' with this type.");
      every = 4;
      if (spec.alternate) head += std::string("0") + spec.type;
    }
  } else {
    body = FormatFloat(std::fabs(v.AsDouble()), spec, v);
  }
  if (spec.grouping != 0) body = Group(body, spec.grouping, every);
  const char align = spec.align != 0 ? spec.align : spec.zero ? '=' : '>';
  return Pad(in, head, body, {!spec.fill.empty() ? spec.fill : spec.zero ? "0" : " ", align, spec.width});
}

// ---------------------------------------------------------------------------------------------------------- str.format

class Formatter {
 public:
  Formatter(Interp& in, Args& args, const Value* mapping, bool escape)
      : in_(in), args_(args), mapping_(mapping), escape_(escape) {}

  std::string Run(std::string_view s, int depth) {
    if (depth < 0) Throw(Err::kValue, "Max string recursion exceeded");
    std::string out;
    for (size_t at = 0; at < s.size();) {
      const char c = s[at++];
      if (c == '}') {
        if (at >= s.size() || s[at] != '}') Throw(Err::kValue, "Single '}' encountered in format string");
        ++at;
      } else if (c == '{') {
        if (at < s.size() && s[at] == '{') {
          ++at;
        } else {
          out += Field(s, at, depth);
          in_.budget().Step(1 + out.size() / 1024);
          ReserveBytes(in_, static_cast<int64_t>(out.size()));
          continue;
        }
      }
      out += c;
    }
    return out;
  }

 private:
  std::string Field(std::string_view s, size_t& at, int depth) {
    const size_t start = at;
    int nested = 1;
    bool bracket = false;
    for (; at < s.size(); ++at) {  // brackets hide braces and ! : in the field name
      if (s[at] == '[') bracket = true;
      if (s[at] == ']') bracket = false;
      if (bracket) continue;
      if (s[at] == '{') ++nested;
      if (s[at] == '}' && --nested == 0) break;
    }
    if (at >= s.size()) Throw(Err::kValue, "expected '}' before end of string");
    const std::string_view field = s.substr(start, at++ - start);
    size_t name_end = 0;
    for (bool inside = false; name_end < field.size(); ++name_end) {
      if (field[name_end] == '[') inside = true;
      if (field[name_end] == ']') inside = false;
      if (!inside && (field[name_end] == ':' || field[name_end] == '!')) break;
      if (!inside && field[name_end] == '{') Throw(Err::kValue, "unexpected '{' in field name");
    }
    std::string_view rest = field.substr(name_end);
    char conversion = 0;
    if (rest.starts_with('!')) {
      if (rest.size() < 2) Throw(Err::kValue, "end of string while looking for conversion specifier");
      conversion = rest[1];
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') Throw(Err::kValue, "expected ':' after conversion specifier");
    }
    if (!rest.empty()) rest.remove_prefix(1);
    Value v = Lookup(field.substr(0, name_end));
    const std::string spec = Run(rest, depth - 1);
    switch (conversion) {
      case 0: break;
      case 's': v = in_.Str(ToStr(in_, v)); break;
      case 'r': v = in_.Str(Repr(in_, v)); break;
      case 'a': v = in_.Str(Ascii(Repr(in_, v))); break;
      default: Throw(Err::kValue, std::string("Unknown conversion specifier ") + conversion);
    }
    const bool safe = v.IsString() && v.As<StringObj>().markup;
    std::string text = FormatValue(in_, v, spec);
    return escape_ && !safe ? EscapeHtml(text) : text;
  }

  Value Lookup(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    const std::string first(name.substr(0, first_end));
    Value v;
    const bool digits =
        !first.empty() && first.size() < 10 && first.find_first_not_of("0123456789") == std::string::npos;
    if (name.empty() || digits) {
      const bool automatic = name.empty();
      if (automatic ? manual_ : automatic_ > 0)
        Throw(Err::kValue, "cannot switch between manual field specification and automatic field numbering");
      manual_ = manual_ || !automatic;
      const size_t index = automatic ? automatic_++ : static_cast<size_t>(std::stoll(first));
      if (index >= args_.positional.size())
        Throw(Err::kLookup, "Replacement index " + std::to_string(index) + " out of range for positional args tuple");
      v = args_.positional[index];
    } else {
      v = Named(first);
    }
    name.remove_prefix(first_end);
    while (!name.empty()) {
      if (name[0] == '.') {
        const size_t end = std::min(name.find_first_of(".[", 1), name.size());
        if (end == 1) Throw(Err::kValue, "Empty attribute in format string");
        v = GetAttr(in_, v, in_.Str(std::string(name.substr(1, end - 1))));
        name.remove_prefix(end);
        continue;
      }
      const size_t close = name[0] == '[' ? name.find(']') : std::string_view::npos;
      if (close == std::string_view::npos) Throw(Err::kValue, "Missing ']' in format string");
      const std::string key(name.substr(1, close - 1));
      if (key.empty()) Throw(Err::kValue, "Empty attribute in format string");
      const bool index = key.size() < 18 && key.find_first_not_of("0123456789") == std::string::npos;
      v = GetItem(in_, v, index ? Value::Int(std::stoll(key)) : in_.Str(key));
      name.remove_prefix(close + 1);
      if (!name.empty() && name[0] != '.' && name[0] != '[')
        Throw(Err::kValue, "Only '.' or '[' may follow ']' in format field specifier");
    }
    return v;
  }

  Value Named(const std::string& name) {
    if (mapping_ != nullptr) {
      if (mapping_->IsUndefined()) ThrowUndefined(*mapping_);
      if (!mapping_->Is(Kind::kDict)) Throw(Err::kType, "format_map() needs a mapping");
      if (const Value* found = mapping_->As<DictObj>().table.Find(name)) return *found;
    }
    for (const auto& [key, value] : args_.named) {
      if (key == name) return value;
    }
    Throw(Err::kLookup, ReprString(name));
  }

  Interp& in_;
  Args& args_;
  const Value* mapping_;
  bool escape_;
  size_t automatic_ = 0;
  bool manual_ = false;
};

}  // namespace

std::string PercentFormat(Interp& in, std::string_view format, const Value& args, bool escape) {
  return Percent(in, format, args, escape).Run();
}

std::string FormatMethod(Interp& in, const std::string& format, Args& args, const Value* mapping, bool escape) {
  return Formatter(in, args, mapping, escape).Run(format, 2);
}

std::string FormatValue(Interp& in, const Value& v, std::string_view spec_text) {
  if (spec_text.empty()) return ToStr(in, v);
  if (!v.IsString() && !v.IsNumber())
    Throw(Err::kType, "unsupported format string passed to " + std::string(TypeName(v)) + ".__format__");
  const Spec spec = ParseSpec(spec_text);
  return v.IsString() ? FormatText(in, v, spec) : FormatNumber(in, v, spec);
}

}  // namespace ridge::text::jinja
