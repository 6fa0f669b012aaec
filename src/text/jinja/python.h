// Python's operations on values: str, repr, truth, comparison, arithmetic, subscripts, iteration.
//
//   Value sum = Binary(in, ExprKind::kAdd, a, b);      // throws JinjaError (kType) as Python raises TypeError
//   for (Iter it(in, list); it.Next(item);) ...
//
// Guarantees: text is byte-for-byte Python's (float repr, quotes, True, None); integers beyond 64 bits are an error (kUnsupported).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace ridge::text::jinja {

std::string_view TypeName(const Value& v);  // as in Python's messages: 'dict', 'jinja2.runtime.Undefined' …
[[noreturn]] void ThrowUndefined(const Value& v);

std::string ToStr(Interp& in, const Value& v);
std::string Repr(Interp& in, const Value& v);
std::string ReprString(std::string_view s);
std::string ReprFloat(double d);
Value Soft(Interp& in, const Value& v);  // soft_str: strings as they are, Markup included
Value Escape(Interp& in, const Value& v);
std::string EscapeHtml(std::string_view s);

bool Truth(const Value& v);
bool Equals(const Value& a, const Value& b, Budget& budget);
bool Compare(Interp& in, CompareOp op, const Value& a, const Value& b);
bool Less(Interp& in, const Value& a, const Value& b);
bool Contains(Interp& in, const Value& container, const Value& item);

std::optional<int64_t> TryLength(const Value& v);  // none: the type has no len()
int64_t Length(const Value& v);
bool IsIterable(const Value& v);

Value Binary(Interp& in, ExprKind op, const Value& a, const Value& b);
Value Negate(const Value& v);
Value Positive(const Value& v);

Value GetAttr(Interp& in, const Value& object, const Value& name);  // object.name
Value GetItem(Interp& in, const Value& object, const Value& key);   // object[key]
Value Slice(Interp& in, const Value& object, const Value& start, const Value& stop, const Value& step);
// methods.cc: the Python attribute `name` of the object, unsafe ones as an undefined value that raises; missing: no such attribute.
Value Attribute(Interp& in, const Value& object, std::string_view name);

int64_t ToIndex(const Value& v, std::string_view what);  // an int or bool; throws kType

// Iteration over anything iterable; throws kType for the rest.
class Iter {
 public:
  Iter() = default;
  Iter(Interp& in, const Value& iterable);
  bool Next(Value& item);

 private:
  Interp* in_ = nullptr;
  Value source_;
  size_t at_ = 0;
};
std::vector<Value> ToVector(Interp& in, const Value& iterable);

// format.cc
std::string PercentFormat(Interp& in, std::string_view format, const Value& args, bool escape);
std::string FormatMethod(Interp& in, const std::string& format, Args& args, const Value* mapping, bool escape);
std::string FormatValue(Interp& in, const Value& v, std::string_view spec);  // format(v, spec)
// json.cc
std::string ToJson(Interp& in, const Value& v, bool ensure_ascii, const Value& indent, const Value& separators,
                   bool sort_keys);

}  // namespace ridge::text::jinja
