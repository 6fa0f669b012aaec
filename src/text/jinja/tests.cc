#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/parser.h"
#include "text/jinja/unicode.h"

namespace ridge::text::jinja {
namespace {

void None(Args& args, std::string_view name) { const Bound b(args, name, {}, 0); }

template <bool (*kTest)(const Value&)>
bool Plain(Interp&, const Value& v, Args& args) {
  None(args, "test");
  return kTest(v);
}

bool IsDefined(const Value& v) { return !v.IsUndefined(); }
bool IsUndefined(const Value& v) { return v.IsUndefined(); }
bool IsNone(const Value& v) { return v.IsNone(); }
bool IsBoolean(const Value& v) { return v.Is(Kind::kBool); }
bool IsTrue(const Value& v) { return v.Is(Kind::kBool) && v.boolean(); }
bool IsFalse(const Value& v) { return v.Is(Kind::kBool) && !v.boolean(); }
bool IsIntegerValue(const Value& v) { return v.Is(Kind::kInt); }
bool IsFloat(const Value& v) { return v.Is(Kind::kFloat); }
bool IsNumber(const Value& v) { return v.IsNumber(); }
bool IsString(const Value& v) { return v.IsString(); }
bool IsMapping(const Value& v) { return v.Is(Kind::kDict); }
bool IsEscaped(const Value& v) { return v.IsString() && v.As<StringObj>().markup; }
bool IsIterableValue(const Value& v) { return IsIterable(v); }
// len() and __getitem__: an undefined value has both.
bool IsSequenceValue(const Value& v) { return TryLength(v).has_value() && !v.Is(Kind::kView); }
bool IsCallable(const Value& v) {
  return v.Is(Kind::kFunction) || v.Is(Kind::kMacro) || v.Is(Kind::kLoop) || v.Is(Kind::kJoiner) || v.IsUndefined();
}

Value Remainder(Interp& in, const Value& v, const Value& divisor) { return Binary(in, ExprKind::kMod, v, divisor); }

bool TestOdd(Interp& in, const Value& v, Args& args) {
  None(args, "odd");
  return Equals(Remainder(in, v, Value::Int(2)), Value::Int(1), in.budget());
}
bool TestEven(Interp& in, const Value& v, Args& args) {
  None(args, "even");
  return Equals(Remainder(in, v, Value::Int(2)), Value::Int(0), in.budget());
}
bool TestDivisibleBy(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "divisibleby", {"num"}, 1);
  return Equals(Remainder(in, v, b.Get(0)), Value::Int(0), in.budget());
}

bool TestLower(Interp& in, const Value& v, Args& args) { return None(args, "lower"), AllLower(ToStr(in, v)); }
bool TestUpper(Interp& in, const Value& v, Args& args) { return None(args, "upper"), AllUpper(ToStr(in, v)); }

bool TestSameAs(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "sameas", {"other"}, 1);
  const Value& other = b.Get(0);
  if (v.kind() != other.kind()) return false;
  // Identity of numbers and strings is an accident of CPython; equality is the nearest that can be relied on.
  if (!v.IsObject() || v.IsString()) return Equals(v, other, in.budget());
  return v.object() == other.object();
}

bool TestIn(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "in", {"seq"}, 1);
  return Contains(in, b.Get(0), v);
}
bool TestFilter(Interp& in, const Value& v, Args& args) {
  None(args, "filter");
  return v.IsString() ? FindFilter(v.text()) != nullptr : (static_cast<void>(HashOf(v)), static_cast<void>(in), false);
}
bool TestTest(Interp& in, const Value& v, Args& args) {
  None(args, "test");
  return v.IsString() ? FindTest(v.text()) != nullptr : (static_cast<void>(HashOf(v)), static_cast<void>(in), false);
}

template <CompareOp kOp>
bool TestCompare(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "comparison", {""}, 1);
  return Compare(in, kOp, v, b.Get(0));
}

struct NamedTest {
  std::string_view name;
  TestFunction function;
};
constexpr NamedTest kTests[] = {
    {"!=", TestCompare<CompareOp::kNe>},
    {"<", TestCompare<CompareOp::kLt>},
    {"<=", TestCompare<CompareOp::kLe>},
    {"==", TestCompare<CompareOp::kEq>},
    {">", TestCompare<CompareOp::kGt>},
    {">=", TestCompare<CompareOp::kGe>},
    {"boolean", Plain<IsBoolean>},
    {"callable", Plain<IsCallable>},
    {"defined", Plain<IsDefined>},
    {"divisibleby", TestDivisibleBy},
    {"eq", TestCompare<CompareOp::kEq>},
    {"equalto", TestCompare<CompareOp::kEq>},
    {"escaped", Plain<IsEscaped>},
    {"even", TestEven},
    {"false", Plain<IsFalse>},
    {"filter", TestFilter},
    {"float", Plain<IsFloat>},
    {"ge", TestCompare<CompareOp::kGe>},
    {"greaterthan", TestCompare<CompareOp::kGt>},
    {"gt", TestCompare<CompareOp::kGt>},
    {"in", TestIn},
    {"integer", Plain<IsIntegerValue>},
    {"iterable", Plain<IsIterableValue>},
    {"le", TestCompare<CompareOp::kLe>},
    {"lessthan", TestCompare<CompareOp::kLt>},
    {"lower", TestLower},
    {"lt", TestCompare<CompareOp::kLt>},
    {"mapping", Plain<IsMapping>},
    {"ne", TestCompare<CompareOp::kNe>},
    {"none", Plain<IsNone>},
    {"number", Plain<IsNumber>},
    {"odd", TestOdd},
    {"sameas", TestSameAs},
    {"sequence", Plain<IsSequenceValue>},
    {"string", Plain<IsString>},
    {"test", TestTest},
    {"true", Plain<IsTrue>},
    {"undefined", Plain<IsUndefined>},
    {"upper", TestUpper},
};
static_assert(std::is_sorted(std::begin(kTests), std::end(kTests),
                             [](const NamedTest& a, const NamedTest& b) { return a.name < b.name; }));

}  // namespace

TestFunction FindTest(std::string_view name) {
  const auto* at = std::lower_bound(std::begin(kTests), std::end(kTests), name,
                                    [](const NamedTest& t, std::string_view n) { return t.name < n; });
  return at != std::end(kTests) && at->name == name ? at->function : nullptr;
}

bool IsTest(std::string_view name) { return FindTest(name) != nullptr; }

FilterFunction FindFilter(std::string_view name) {
  for (std::span<const NamedFilter> table : {TextFilters(), SequenceFilters(), NumberFilters()}) {
    for (const NamedFilter& f : table) {
      if (f.name == name) return f.function;
    }
  }
  return nullptr;
}

bool IsFilter(std::string_view name) { return FindFilter(name) != nullptr; }

}  // namespace ridge::text::jinja
