#include "text/jinja/methods.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/unicode.h"

namespace ridge::text::jinja {
namespace {

// ------------------------------------------------------------------------------------------------------- list and tuple

Value SequenceCount(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "count", {""}, 1);
  int64_t n = 0;
  Iter it(in, self);
  for (Value item; it.Next(item);) n += Equals(item, b.Get(0), in.budget());
  return Value::Int(n);
}

Value SequenceIndex(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "index", {"", "", ""}, 1);
  const int64_t length = Length(self);
  const auto limit = [&](size_t i, int64_t fallback) {
    if (!b.Has(i)) return fallback;
    const int64_t v = ToIndex(b.Get(i), "slice index");
    return v < 0 ? std::max<int64_t>(v + length, 0) : v;
  };
  const int64_t start = limit(1, 0), stop = limit(2, length);
  int64_t at = 0;
  Iter it(in, self);
  for (Value item; it.Next(item); ++at) {
    if (at >= start && at < stop && Equals(item, b.Get(0), in.budget())) return Value::Int(at);
  }
  Throw(Err::kValue, Repr(in, b.Get(0)) + " is not in list");
}

Value ListCopy(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "copy", {}, 0);
  return in.MakeList(self.items());
}

// ----------------------------------------------------------------------------------------------------------------- dict

Value DictGet(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "get", {"", ""}, 1);
  const Value* found = self.As<DictObj>().table.Find(b.Get(0), in.budget());
  return found != nullptr ? *found : b.Or(1, Value::None());
}

template <ViewObj::What kWhat>
Value DictView(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "dict method", {}, 0);
  return in.heap().View(self, kWhat);
}

Value DictCopy(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "copy", {}, 0);
  in.budget().Step(self.As<DictObj>().table.size());
  return in.heap().Dict(self.As<DictObj>().table);
}

// -------------------------------------------------------------------------------------------------------------- numbers

Value BitLength(Interp&, const Value& self, Args& args) {
  const Bound b(args, "bit_length", {}, 0);
  uint64_t magnitude =
      self.integer() < 0 ? 0 - static_cast<uint64_t>(self.integer()) : static_cast<uint64_t>(self.integer());
  int64_t bits = 0;
  for (; magnitude != 0; magnitude >>= 1) ++bits;
  return Value::Int(bits);
}

Value IsInteger(Interp&, const Value& self, Args& args) {
  const Bound b(args, "is_integer", {}, 0);
  return Value::Bool(std::isfinite(self.floating()) && self.floating() == std::floor(self.floating()));
}

// ----------------------------------------------------------------------------------------------------------------- loop

Value LoopCycle(Interp&, const Value& self, Args& args) {
  if (!args.named.empty()) Throw(Err::kType, "cycle() takes no keyword arguments");
  if (args.positional.empty()) Throw(Err::kType, "no items for cycling given");
  const auto n = static_cast<int64_t>(args.positional.size());
  return args.positional[static_cast<size_t>((self.As<LoopObj>().index0 % n + n) % n)];
}

Value LoopChanged(Interp& in, const Value& self, Args& args) {
  if (!args.named.empty()) Throw(Err::kType, "changed() takes no keyword arguments");
  auto& loop = self.As<LoopObj>();
  Value now = in.heap().Tuple(args.positional);
  if (!loop.changed.IsMissing() && Equals(loop.changed, now, in.budget())) return Value::Bool(false);
  loop.changed = std::move(now);
  return Value::Bool(true);
}

Value LoopAttribute(Interp& in, const Value& object, std::string_view name) {
  auto& loop = object.As<LoopObj>();
  if (name == "index0") return Value::Int(loop.index0);
  if (name == "index") return Value::Int(loop.index0 + 1);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "last") return Value::Bool(!loop.PeekNext());
  if (name == "length") return Value::Int(loop.Length(in));
  if (name == "revindex") return Value::Int(loop.Length(in) - loop.index0);
  if (name == "revindex0") return Value::Int(loop.Length(in) - loop.index0 - 1);
  if (name == "depth") return Value::Int(loop.depth0 + 1);
  if (name == "depth0") return Value::Int(loop.depth0);
  if (name == "previtem") {
    const bool none = loop.index0 == 0 || loop.before.IsMissing();
    return none ? in.MakeUndefined("there is no previous item") : loop.before;
  }
  if (name == "nextitem") return loop.PeekNext() ? loop.after : in.MakeUndefined("there is no next item");
  if (name == "cycle") return in.heap().Function("cycle", LoopCycle, object);
  if (name == "changed") return in.heap().Function("changed", LoopChanged, object);
  return {};
}

// ------------------------------------------------------------------------------------------------------ cycler and others

Value CyclerNext(Interp&, const Value& self, Args& args) {
  const Bound b(args, "next", {}, 0);
  auto& cycler = self.As<CyclerObj>();
  Value v = cycler.items.items()[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.items().size();
  return v;
}
Value CyclerReset(Interp&, const Value& self, Args& args) {
  const Bound b(args, "reset", {}, 0);
  self.As<CyclerObj>().position = 0;
  return Value::None();
}

Value CyclerAttribute(Interp& in, const Value& object, std::string_view name) {
  const auto& cycler = object.As<CyclerObj>();
  if (name == "current") return cycler.items.items()[cycler.position];
  if (name == "items") return cycler.items;
  if (name == "pos") return Value::Int(static_cast<int64_t>(cycler.position));
  if (name == "next") return in.heap().Function("next", CyclerNext, object);
  if (name == "reset") return in.heap().Function("reset", CyclerReset, object);
  return {};
}

Value MacroAttribute(Interp& in, const Value& object, std::string_view name) {
  const Stmt& s = *object.As<MacroObj>().macro;
  if (name == "name") return s.kind == StmtKind::kMacro ? in.Str(s.name) : Value::None();
  if (name == "arguments") {
    std::vector<Value> names;
    for (const ExprPtr& e : s.params) names.push_back(in.Str(e->text));
    return in.heap().Tuple(std::move(names));
  }
  if (name == "catch_kwargs") return Value::Bool(s.reads_kwargs);
  if (name == "catch_varargs") return Value::Bool(s.reads_varargs);
  if (name == "caller") return Value::Bool(s.reads_caller);
  return {};
}

// --------------------------------------------------------------------------------------------------------------- lookup

constexpr NamedMethod kListMethods[] = {{"copy", ListCopy}, {"count", SequenceCount}, {"index", SequenceIndex}};
constexpr NamedMethod kTupleMethods[] = {{"count", SequenceCount}, {"index", SequenceIndex}};
constexpr NamedMethod kDictMethods[] = {{"copy", DictCopy},
                                        {"get", DictGet},
                                        {"items", DictView<ViewObj::What::kItems>},
                                        {"keys", DictView<ViewObj::What::kKeys>},
                                        {"values", DictView<ViewObj::What::kValues>}};

// What ImmutableSandboxedEnvironment keeps from templates.
constexpr std::string_view kUnsafeList[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
constexpr std::string_view kUnsafeDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
// Attributes that every Python object has: reaching one is refused, where an unknown name is only undefined.
constexpr std::string_view kPrivate[] = {
    "__class__", "__delattr__",      "__dir__",    "__doc__",  "__eq__",          "__format__",
    "__ge__",    "__getattribute__", "__gt__",     "__hash__", "__init__",        "__init_subclass__",
    "__le__",    "__lt__",           "__ne__",     "__new__",  "__reduce__",      "__reduce_ex__",
    "__repr__",  "__setattr__",      "__sizeof__", "__str__",  "__subclasshook__"};

bool In(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value Unsafe(Interp& in, const Value& object, std::string_view name) {
  return in.MakeUndefined("access to attribute " + ReprString(name) + " of '" + std::string(TypeName(object)) +
                          "' object is unsafe.");
}

Value Bind(Interp& in, const Value& object, std::string_view name, std::span<const NamedMethod> methods) {
  for (const NamedMethod& m : methods) {
    if (m.name == name) return in.heap().Function(std::string(name), m.method, object);
  }
  return {};
}

}  // namespace

Value Attribute(Interp& in, const Value& object, std::string_view name) {
  const bool dunder = name.size() > 4 && name.starts_with("__") && name.ends_with("__");
  if (object.IsUndefined()) {
    if (dunder && In(kPrivate, name)) return Unsafe(in, object, name);
    ThrowUndefined(object);
  }
  if (object.Is(Kind::kNamespace)) {
    if (name == "__class__") return Unsafe(in, object, name);
    const Value* found = object.As<NamespaceObj>().table.Find(name);
    if (found == nullptr) return {};
    return name.starts_with("_") ? Unsafe(in, object, name) : *found;
  }
  if (dunder && In(kPrivate, name)) return Unsafe(in, object, name);
  switch (object.kind()) {
    case Kind::kString: {
      Value method = Bind(in, object, name, StringMethods());
      return method.IsMissing() ? Bind(in, object, name, StringQueries()) : method;
    }
    case Kind::kList:
      if (In(kUnsafeList, name)) return Unsafe(in, object, name);
      return Bind(in, object, name, kListMethods);
    case Kind::kTuple:
      if (object.As<ListObj>().group && (name == "grouper" || name == "list")) return object.items()[name == "list"];
      return Bind(in, object, name, kTupleMethods);
    case Kind::kDict:
      if (In(kUnsafeDict, name)) return Unsafe(in, object, name);
      return Bind(in, object, name, kDictMethods);
    case Kind::kBool:
    case Kind::kInt:
      if (name == "real" || name == "numerator") return Value::Int(object.integer());
      if (name == "imag") return Value::Int(0);
      if (name == "denominator") return Value::Int(1);
      return name == "bit_length" ? in.heap().Function("bit_length", BitLength, object) : Value();
    case Kind::kFloat:
      if (name == "real") return object;
      if (name == "imag") return Value::Float(0);
      return name == "is_integer" ? in.heap().Function("is_integer", IsInteger, object) : Value();
    case Kind::kRange: {
      const auto& r = object.As<RangeObj>();
      if (name == "start") return Value::Int(r.start);
      if (name == "stop") return Value::Int(r.stop);
      if (name == "step") return Value::Int(r.step);
      return Bind(in, object, name, kTupleMethods);
    }
    case Kind::kLoop: return LoopAttribute(in, object, name);
    case Kind::kCycler: return CyclerAttribute(in, object, name);
    case Kind::kMacro: return MacroAttribute(in, object, name);
    case Kind::kJoiner:
      if (name == "sep") return object.As<JoinerObj>().separator;
      return name == "used" ? Value::Bool(object.As<JoinerObj>().used) : Value();
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
    case Kind::kNamespace:
    case Kind::kView:
    case Kind::kIterator:
    case Kind::kFunction: return {};
  }
  return {};
}

}  // namespace ridge::text::jinja
