// Python's arithmetic.
#include <cmath>
#include <string>

#include "text/jinja/interp.h"
#include "text/jinja/python.h"

namespace ridge::text::jinja {
namespace {

[[noreturn]] void ThrowBig() { Throw(Err::kUnsupported, "integer beyond 64 bits"); }

std::string_view Symbol(ExprKind op) {
  switch (op) {
    case ExprKind::kAdd: return "+";
    case ExprKind::kSub: return "-";
    case ExprKind::kMul: return "*";
    case ExprKind::kDiv: return "/";
    case ExprKind::kFloorDiv: return "//";
    case ExprKind::kMod: return "%";
    default: return "** or pow()";
  }
}

[[noreturn]] void ThrowOperands(ExprKind op, const Value& a, const Value& b) {
  Throw(Err::kType, "unsupported operand type(s) for " + std::string(Symbol(op)) + ": '" + std::string(TypeName(a)) +
                        "' and '" + std::string(TypeName(b)) + "'");
}

int64_t FloorDiv(int64_t a, int64_t b) {
  if (b == 0) Throw(Err::kValue, "integer division or modulo by zero");
  if (b == -1) {
    if (a == INT64_MIN) ThrowBig();
    return -a;
  }
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

int64_t FloorMod(int64_t a, int64_t b) {
  if (b == 0) Throw(Err::kValue, "integer division or modulo by zero");
  if (b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

double FloatMod(double a, double b) {
  double r = std::fmod(a, b);
  if (r != 0) {
    if ((b < 0) != (r < 0)) r += b;
  } else {
    r = std::copysign(0.0, b);
  }
  return r;
}

double FloatFloorDiv(double a, double b) {  // as CPython: from the remainder, so that a == q * b + r
  double r = std::fmod(a, b);
  double q = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) q -= 1;
  if (q == 0) return std::copysign(0.0, a / b);
  double floor = std::floor(q);
  if (q - floor > 0.5) floor += 1;
  return floor;
}

Value IntPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) Throw(Err::kValue, "0.0 cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value::Int(exponent == 0 ? 1 : base);
  if (base == -1) return Value::Int(exponent % 2 == 0 ? 1 : -1);
  int64_t result = 1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) ThrowBig();
  }
  return Value::Int(result);
}

Value FloatPower(double a, double b) {
  if (a == 0 && b < 0) Throw(Err::kValue, "0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))
    Throw(Err::kUnsupported, "complex numbers are not supported");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) Throw(Err::kOverflow, "Result too large");
  return Value::Float(result);
}

Value Integers(ExprKind op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case ExprKind::kAdd:
      if (__builtin_add_overflow(a, b, &result)) ThrowBig();
      return Value::Int(result);
    case ExprKind::kSub:
      if (__builtin_sub_overflow(a, b, &result)) ThrowBig();
      return Value::Int(result);
    case ExprKind::kMul:
      if (__builtin_mul_overflow(a, b, &result)) ThrowBig();
      return Value::Int(result);
    case ExprKind::kDiv:
      if (b == 0) Throw(Err::kValue, "division by zero");
      return Value::Float(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case ExprKind::kFloorDiv: return Value::Int(FloorDiv(a, b));
    case ExprKind::kMod: return Value::Int(FloorMod(a, b));
    default: return IntPower(a, b);
  }
}

Value Floats(ExprKind op, double a, double b) {
  switch (op) {
    case ExprKind::kAdd: return Value::Float(a + b);
    case ExprKind::kSub: return Value::Float(a - b);
    case ExprKind::kMul: return Value::Float(a * b);
    case ExprKind::kPow: return FloatPower(a, b);
    default: break;
  }
  if (b == 0) Throw(Err::kValue, "float division by zero");
  if (op == ExprKind::kDiv) return Value::Float(a / b);
  return Value::Float(op == ExprKind::kMod ? FloatMod(a, b) : FloatFloorDiv(a, b));
}

Value Repeat(Interp& in, const Value& sequence, int64_t times) {
  const uint64_t n = times > 0 ? static_cast<uint64_t>(times) : 0;
  const size_t unit = sequence.IsString() ? sequence.text().size() : sequence.items().size() * sizeof(Value);
  Budget& budget = in.budget();
  if (unit > 0 && n > (budget.max_bytes - budget.live_bytes) / unit)
    Throw(Err::kLimit, "the template needs too much memory");
  budget.Step(n * unit / 64);
  if (sequence.IsString()) {
    std::string out;
    out.reserve(n * unit);
    for (uint64_t i = 0; unit > 0 && i < n; ++i) out += sequence.text();
    return in.Str(std::move(out), sequence.As<StringObj>().markup);
  }
  std::vector<Value> items;
  const auto& source = sequence.items();
  items.reserve(n * source.size());
  for (uint64_t i = 0; !source.empty() && i < n; ++i) items.insert(items.end(), source.begin(), source.end());
  return sequence.Is(Kind::kList) ? in.heap().List(std::move(items)) : in.heap().Tuple(std::move(items));
}

Value AddStrings(Interp& in, const Value& a, const Value& b) {
  const bool a_markup = a.As<StringObj>().markup;
  const bool b_markup = b.As<StringObj>().markup;
  in.budget().Step((a.text().size() + b.text().size()) / 64);
  if (a_markup == b_markup) return in.Str(a.text() + b.text(), a_markup);
  return in.Str((a_markup ? a.text() : EscapeHtml(a.text())) + (b_markup ? b.text() : EscapeHtml(b.text())), true);
}

}  // namespace

Value Binary(Interp& in, ExprKind op, const Value& a, const Value& b) {
  if (a.IsIntegral() && b.IsIntegral()) return Integers(op, a.integer(), b.integer());
  if (a.IsNumber() && b.IsNumber()) return Floats(op, a.AsDouble(), b.AsDouble());
  if (op == ExprKind::kMod && a.IsString()) {
    const bool markup = a.As<StringObj>().markup;
    if (b.IsUndefined() &&
        !markup) {  // an undefined operand answers first only where the format is a plain str: it has __rmod__
      return in.Str(PercentFormat(in, a.text(), b, false));
    }
    return in.Str(PercentFormat(in, a.text(), b, markup), markup);
  }
  if (a.IsUndefined()) ThrowUndefined(a);
  if (b.IsUndefined()) {
    if (op == ExprKind::kAdd && a.IsSequence()) Throw(Err::kType, "can only concatenate " + std::string(TypeName(a)));
    ThrowUndefined(b);
  }
  if (op == ExprKind::kAdd) {
    if (a.IsString() && b.IsString()) return AddStrings(in, a, b);
    if (a.IsSequence() && a.kind() == b.kind()) {
      std::vector<Value> items;
      items.reserve(a.items().size() + b.items().size());
      items.insert(items.end(), a.items().begin(), a.items().end());
      items.insert(items.end(), b.items().begin(), b.items().end());
      in.budget().Step(items.size());
      return a.Is(Kind::kList) ? in.heap().List(std::move(items)) : in.heap().Tuple(std::move(items));
    }
    if (a.IsString()) Throw(Err::kType, "can only concatenate str (not \"" + std::string(TypeName(b)) + "\") to str");
  }
  if (op == ExprKind::kMul) {
    const bool a_repeats = a.IsString() || a.IsSequence();
    const bool b_repeats = b.IsString() || b.IsSequence();
    if (a_repeats && b.IsIntegral()) return Repeat(in, a, b.integer());
    if (b_repeats && a.IsIntegral()) return Repeat(in, b, a.integer());
  }
  ThrowOperands(op, a, b);
}

Value Negate(const Value& v) {
  if (v.IsIntegral()) {
    if (v.integer() == INT64_MIN) ThrowBig();
    return Value::Int(-v.integer());
  }
  if (v.Is(Kind::kFloat)) return Value::Float(-v.floating());
  if (v.IsUndefined()) ThrowUndefined(v);
  Throw(Err::kType, "bad operand type for unary -: '" + std::string(TypeName(v)) + "'");
}

Value Positive(const Value& v) {
  if (v.IsIntegral()) return Value::Int(v.integer());
  if (v.Is(Kind::kFloat)) return v;
  if (v.IsUndefined()) ThrowUndefined(v);
  Throw(Err::kType, "bad operand type for unary +: '" + std::string(TypeName(v)) + "'");
}

}  // namespace ridge::text::jinja
