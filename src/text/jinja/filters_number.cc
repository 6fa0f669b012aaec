// Filters on numbers, and default, attr, map's siblings on single values.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja/builtins.h"
#include "text/jinja/unicode.h"

namespace ridge::text::jinja {
namespace {

// Drops Python's underscores between digits; false: they stand elsewhere.
bool DropUnderscores(std::string& s) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '_') {
      out += s[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < s.size() && std::isalnum(static_cast<unsigned char>(s[i - 1])) &&
                         std::isalnum(static_cast<unsigned char>(s[i + 1]));
    if (!between) return false;
  }
  s = std::move(out);
  return true;
}

// int(text, base) of Python.
std::optional<int64_t> ParseInt(std::string_view text, int64_t base) {
  std::string s(Strip(text, true, true));
  if (!DropUnderscores(s)) return std::nullopt;
  bool negative = false;
  size_t at = 0;
  if (at < s.size() && (s[at] == '+' || s[at] == '-')) negative = s[at++] == '-';
  const auto prefix = [&](char letter) { return at + 1 < s.size() && s[at] == '0' && (s[at + 1] | 32) == letter; };
  if ((base == 16 || base == 0) && prefix('x'))
    at += 2, base = 16;
  else if ((base == 8 || base == 0) && prefix('o'))
    at += 2, base = 8;
  else if ((base == 2 || base == 0) && prefix('b'))
    at += 2, base = 2;
  if (base == 0) {
    if (s.size() - at > 1 && s[at] == '0' && s.find_first_not_of('0', at) != std::string::npos) return std::nullopt;
    base = 10;
  }
  if (base < 2 || base > 36 || at >= s.size()) return std::nullopt;
  if (!std::isalnum(static_cast<unsigned char>(s[at]))) return std::nullopt;
  if (negative) s[--at] = '-';
  int64_t value = 0;
  const auto parsed = std::from_chars(s.data() + at, s.data() + s.size(), value, static_cast<int>(base));
  if (parsed.ptr != s.data() + s.size()) return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range) Throw(Err::kUnsupported, "integer beyond 64 bits");
  return parsed.ec == std::errc() ? std::optional(value) : std::nullopt;
}

// float(text) of Python.
std::optional<double> ParseFloat(std::string_view text) {
  std::string s(Strip(text, true, true));
  if (!DropUnderscores(s) || s.empty()) return std::nullopt;
  const std::string lower = ToLower(s);
  const std::string word = lower[0] == '+' || lower[0] == '-' ? lower.substr(1) : lower;
  const double sign = lower[0] == '-' ? -1 : 1;
  if (word == "inf" || word == "infinity") return sign * INFINITY;
  if (word == "nan") return std::copysign(NAN, sign);
  if (word.empty() || word.find_first_not_of("0123456789.e+-") != std::string::npos ||
      !(std::isdigit(static_cast<unsigned char>(word[0])) || word[0] == '.')) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double value = std::strtod(lower.c_str(), &end);
  return end == lower.c_str() + lower.size() ? std::optional(value) : std::nullopt;
}

Value FloatToInt(double d) {
  if (!(std::fabs(d) < 9.2233720368547758e18)) Throw(Err::kUnsupported, "integer beyond 64 bits");
  return Value::Int(static_cast<int64_t>(d));
}

Value FilterInt(Interp&, const Value& v, Args& args) {
  const Bound b(args, "int", {"default", "base"}, 0);
  const Value fallback = b.Or(0, Value::Int(0));
  if (v.IsUndefined()) ThrowUndefined(v);
  if (v.IsIntegral()) return Value::Int(v.integer());
  if (v.Is(Kind::kFloat)) {
    if (std::isnan(v.floating())) return fallback;
    if (std::isinf(v.floating())) Throw(Err::kOverflow, "cannot convert float infinity to integer");
    return FloatToInt(v.floating());
  }
  if (!v.IsString()) return fallback;
  if (const auto i = ParseInt(v.text(), b.Has(1) ? ToIndex(b.Get(1), "base") : 10)) return Value::Int(*i);
  const auto d = ParseFloat(v.text());
  return d && std::isfinite(*d) ? FloatToInt(*d) : fallback;
}

Value FilterFloat(Interp&, const Value& v, Args& args) {
  const Bound b(args, "float", {"default"}, 0);
  if (v.IsUndefined()) ThrowUndefined(v);
  if (v.IsNumber()) return Value::Float(v.AsDouble());
  if (v.IsString()) {
    if (const auto d = ParseFloat(v.text())) return Value::Float(*d);
  }
  return b.Or(0, Value::Float(0));
}

Value FilterAbs(Interp&, const Value& v, Args& args) {
  const Bound b(args, "abs", {}, 0);
  if (v.IsIntegral()) return v.integer() < 0 ? Negate(v) : Value::Int(v.integer());
  if (v.Is(Kind::kFloat)) return Value::Float(std::fabs(v.floating()));
  Throw(Err::kType, "bad operand type for abs(): '" + std::string(TypeName(v)) + "'");
}

// round(x, digits): exact decimal rounding, ties to even, as printf does from the exact binary value.
double RoundFloat(double x, int64_t digits) {
  if (!std::isfinite(x) || digits > 323) return x;
  if (digits < -308) return std::copysign(0.0, x);
  if (digits >= 0) {
    char buffer[800];
    std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), x);
    return std::strtod(buffer, nullptr);
  }
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(x / scale) * scale;
}

int64_t RoundInt(int64_t x, int64_t digits) {  // digits < 0
  if (digits < -18) return 0;
  int64_t scale = 1;
  for (; digits < 0; ++digits) scale *= 10;
  const Wide remainder = ((x % scale) + scale) % scale;
  Wide down = static_cast<Wide>(x) - remainder;
  const bool up = remainder * 2 > scale || (remainder * 2 == scale && (down / scale) % 2 != 0);
  down += up ? scale : 0;
  if (down > INT64_MAX || down < INT64_MIN) Throw(Err::kUnsupported, "integer beyond 64 bits");
  return static_cast<int64_t>(down);
}

Value FilterRound(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "round", {"precision", "method"}, 0);
  const Value method = b.Or(1, in.Str("common"));
  const std::string name = method.IsString() ? method.text() : "";
  if (name != "common" && name != "ceil" && name != "floor") Throw(Err::kValue, "method must be common, ceil or floor");
  const Value precision = b.Or(0, Value::Int(0));
  if (name != "common") {
    const Value scale = Binary(in, ExprKind::kPow, Value::Int(10), precision);
    const Value scaled = Binary(in, ExprKind::kMul, v, scale);
    if (!scaled.IsNumber()) Throw(Err::kType, "must be real number, not " + std::string(TypeName(scaled)));
    Value whole = scaled;
    if (scaled.Is(Kind::kFloat)) {
      if (!std::isfinite(scaled.floating())) Throw(Err::kValue, "cannot convert float NaN or infinity to integer");
      whole = FloatToInt(name == "ceil" ? std::ceil(scaled.floating()) : std::floor(scaled.floating()));
    }
    return Binary(in, ExprKind::kDiv, whole, scale);
  }
  if (!v.IsNumber()) Throw(Err::kType, "type " + std::string(TypeName(v)) + " doesn't define __round__ method");
  if (precision.IsNone()) {
    if (v.IsIntegral()) return Value::Int(v.integer());
    if (!std::isfinite(v.floating())) Throw(Err::kValue, "cannot convert float NaN or infinity to integer");
    return FloatToInt(std::nearbyint(v.floating()));
  }
  const int64_t digits = ToIndex(precision, "precision");
  if (v.IsIntegral()) return Value::Int(digits >= 0 ? v.integer() : RoundInt(v.integer(), digits));
  return Value::Float(RoundFloat(v.floating(), digits));
}

Value FilterFileSize(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "filesizeformat", {"binary"}, 0);
  double bytes = 0;
  if (v.IsNumber()) {
    bytes = v.AsDouble();
  } else {
    const auto parsed = v.IsString() ? ParseFloat(v.text()) : std::nullopt;
    if (!parsed) Throw(Err::kValue, "could not convert to float");
    bytes = *parsed;
  }
  const bool binary = b.Flag(0, false);
  const double base = binary ? 1024 : 1000;
  if (bytes == 1) return in.Str("1 Byte");
  if (bytes < base) return in.Str(std::to_string(FloatToInt(bytes).integer()) + " Bytes");
  double unit = base;
  size_t i = 0;
  for (; i < 7 && bytes >= unit * base; ++i) unit *= base;
  char text[64];
  std::snprintf(text, sizeof text, "%.1f %c%sB", bytes / unit, (binary ? "KMGTPEZY" : "kMGTPEZY")[i],
                binary ? "i" : "");
  return in.Str(text);
}

Value FilterDefault(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "default", {"default_value", "boolean"}, 0);
  const bool replace = v.IsUndefined() || (b.Flag(1, false) && !Truth(v));
  return replace ? b.Or(0, in.Str("")) : v;
}

Value FilterAttr(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "attr", {"name"}, 1);
  if (!b.Get(0).IsString())
    Throw(Err::kType, "attribute name must be string, not '" + std::string(TypeName(b.Get(0))) + "'");
  Value found = Attribute(in, v, b.Get(0).text());  // the attribute alone: attr() never looks at items
  return found.IsMissing() ? in.MakeUndefined("'" + std::string(TypeName(v)) + " object' has no attribute " +
                                              ReprString(b.Get(0).text()))
                           : found;
}

constexpr NamedFilter kFilters[] = {
    {"default", FilterDefault},
    {"d", FilterDefault},
    {"int", FilterInt},
    {"float", FilterFloat},
    {"abs", FilterAbs},
    {"round", FilterRound},
    {"filesizeformat", FilterFileSize},
    {"attr", FilterAttr},
};

}  // namespace

std::span<const NamedFilter> NumberFilters() { return kFilters; }

}  // namespace ridge::text::jinja
