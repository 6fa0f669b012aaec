#include "text/jinja/python.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja/interp.h"
#include "text/jinja/unicode.h"

namespace ridge::text::jinja {

std::string_view TypeName(const Value& v) {
  switch (v.kind()) {
    case Kind::kMissing: return "missing";
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return v.As<StringObj>().markup ? "Markup" : "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kNamespace: return "Namespace";
    case Kind::kRange: return "range";
    case Kind::kView:
      switch (v.As<ViewObj>().what) {
        case ViewObj::What::kKeys: return "dict_keys";
        case ViewObj::What::kValues: return "dict_values";
        case ViewObj::What::kItems: return "dict_items";
      }
      break;
    case Kind::kIterator: return v.As<IteratorObj>().name;
    case Kind::kLoop: return "LoopContext";
    case Kind::kMacro: return "Macro";
    case Kind::kFunction: return "function";
    case Kind::kCycler: return "Cycler";
    case Kind::kJoiner: return "Joiner";
  }
  return "object";
}

void ThrowUndefined(const Value& v) { Throw(Err::kUndefined, v.As<UndefinedObj>().message); }

// ---------------------------------------------------------------------------------------------------------------- text

std::string ReprFloat(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  std::string out;
  if (text[0] == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {  // Python's repr switches to an exponent here
    out += digits[0];
    if (n > 1) out += "." + digits.substr(1);
    char tail[16];
    std::snprintf(tail, sizeof tail, "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return out + tail;
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (n <= exponent + 1) return out + digits + std::string(static_cast<size_t>(exponent + 1 - n), '0') + ".0";
  return out + digits.substr(0, static_cast<size_t>(exponent + 1)) + "." +
         digits.substr(static_cast<size_t>(exponent + 1));
}

std::string ReprString(std::string_view s) {
  const bool has_single = s.find('\'') != std::string_view::npos;
  const char quote = has_single && s.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < s.size();) {
    const size_t start = at;
    const char32_t c = DecodeAt(s, at);
    char code[16];
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (IsPrintable(c)) {
      out += s.substr(start, at - start);
    } else {
      std::snprintf(code, sizeof code,
                    c < 0x100     ? "\\x%02x"
                    : c < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                    static_cast<unsigned>(c));
      out += code;
    }
  }
  return out + quote;
}

namespace {

// Appends repr(v); the budget counts what is built, since a small value can print long ([x] * n, x shared).
void AppendRepr(Interp& in, const Value& v, std::string& out);

void AppendItems(Interp& in, const std::vector<Value>& items, std::string& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    AppendRepr(in, items[i], out);
  }
}

void AppendTable(Interp& in, const Table& table, std::string& out) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : table.items()) {
    if (!first) out += ", ";
    first = false;
    AppendRepr(in, key, out);
    out += ": ";
    AppendRepr(in, value, out);
  }
  out += '}';
}

void AppendNamespace(Interp& in, NamespaceObj& ns, std::string& out) {
  out += "<Namespace ";
  if (ns.in_repr) {
    out += "{...}";
  } else {
    ns.in_repr = true;
    struct Reset {
      NamespaceObj& ns;
      ~Reset() { ns.in_repr = false; }
    } reset{ns};
    AppendTable(in, ns.table, out);
  }
  out += '>';
}

void AppendView(Interp& in, const ViewObj& view, std::string& out) {
  const Table& table = view.dict.As<DictObj>().table;
  out += view.what == ViewObj::What::kKeys     ? "dict_keys(["
         : view.what == ViewObj::What::kValues ? "dict_values(["
                                               : "dict_items([";
  bool first = true;
  for (const auto& [key, value] : table.items()) {
    if (!first) out += ", ";
    first = false;
    if (view.what == ViewObj::What::kItems) out += '(';
    if (view.what != ViewObj::What::kValues) AppendRepr(in, key, out);
    if (view.what == ViewObj::What::kItems) out += ", ";
    if (view.what != ViewObj::What::kKeys) AppendRepr(in, value, out);
    if (view.what == ViewObj::What::kItems) out += ')';
  }
  out += "])";
}

void AppendRepr(Interp& in, const Value& v, std::string& out) {
  in.stack().Check();
  in.budget().Step();
  if (out.size() > in.output_limit()) Throw(Err::kLimit, "a value is too long to print");
  switch (v.kind()) {
    case Kind::kMissing: out += "missing"; break;
    case Kind::kUndefined: out += "Undefined"; break;
    case Kind::kNone: out += "None"; break;
    case Kind::kBool: out += v.boolean() ? "True" : "False"; break;
    case Kind::kInt: out += std::to_string(v.integer()); break;
    case Kind::kFloat: out += ReprFloat(v.floating()); break;
    case Kind::kString: {
      in.budget().Step(v.text().size() / 16);
      const bool markup = v.As<StringObj>().markup;
      out += markup ? "Markup(" + ReprString(v.text()) + ")" : ReprString(v.text());
      break;
    }
    case Kind::kList:
      out += '[';
      AppendItems(in, v.items(), out);
      out += ']';
      break;
    case Kind::kTuple:
      out += '(';
      AppendItems(in, v.items(), out);
      out += v.items().size() == 1 ? ",)" : ")";
      break;
    case Kind::kDict: AppendTable(in, v.As<DictObj>().table, out); break;
    case Kind::kNamespace: AppendNamespace(in, v.As<NamespaceObj>(), out); break;
    case Kind::kRange: {
      const auto& r = v.As<RangeObj>();
      out += "range(" + std::to_string(r.start) + ", " + std::to_string(r.stop);
      if (r.step != 1) out += ", " + std::to_string(r.step);
      out += ')';
      break;
    }
    case Kind::kView: AppendView(in, v.As<ViewObj>(), out); break;
    case Kind::kLoop: {
      auto& loop = v.As<LoopObj>();
      out += "<LoopContext " + std::to_string(loop.index0 + 1) + "/" + std::to_string(loop.Length(in)) + ">";
      break;
    }
    case Kind::kMacro: {
      const Stmt& macro = *v.As<MacroObj>().macro;
      out += macro.kind == StmtKind::kMacro ? "<Macro " + ReprString(macro.name) + ">" : "<Macro anonymous>";
      break;
    }
    // Python prints an address here; a fixed text keeps the rendering reproducible.
    case Kind::kIterator: out += "<" + std::string(TypeName(v)) + " object>"; break;
    case Kind::kFunction: out += "<function " + v.As<FunctionObj>().name + ">"; break;
    case Kind::kCycler: out += "<jinja2.utils.Cycler object>"; break;
    case Kind::kJoiner: out += "<jinja2.utils.Joiner object>"; break;
  }
}

}  // namespace

std::string Repr(Interp& in, const Value& v) {
  std::string out;
  AppendRepr(in, v, out);
  in.budget().Step(out.size() / 64);
  return out;
}

std::string ToStr(Interp& in, const Value& v) {
  if (v.IsString()) return v.text();
  if (v.IsUndefined()) return {};
  return Repr(in, v);
}

Value Soft(Interp& in, const Value& v) { return v.IsString() ? v : in.Str(ToStr(in, v)); }

std::string EscapeHtml(std::string_view s) {
  std::string out;
  out.reserve(s.size());
  for (char c : s) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

Value Escape(Interp& in, const Value& v) {
  if (v.IsString() && v.As<StringObj>().markup) return v;
  return in.Str(EscapeHtml(ToStr(in, v)), true);
}

// ---------------------------------------------------------------------------------------------------------- comparison

bool Truth(const Value& v) {
  switch (v.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool:
    case Kind::kInt: return v.integer() != 0;
    case Kind::kFloat: return v.floating() != 0;
    case Kind::kString: return !v.text().empty();
    case Kind::kList:
    case Kind::kTuple: return !v.items().empty();
    case Kind::kDict: return v.As<DictObj>().table.size() != 0;
    case Kind::kRange: return v.As<RangeObj>().length != 0;
    case Kind::kView: return v.As<ViewObj>().dict.As<DictObj>().table.size() != 0;
    case Kind::kNamespace:
    case Kind::kIterator:
    case Kind::kLoop:
    case Kind::kMacro:
    case Kind::kFunction:
    case Kind::kCycler:
    case Kind::kJoiner: return true;
  }
  return true;
}

static int CompareNumbers(const Value& a, const Value& b) {  // -1, 0, 1; 2: unordered (nan)
  if (a.IsIntegral() && b.IsIntegral()) return a.integer() < b.integer() ? -1 : a.integer() > b.integer();
  // long double holds every int64 exactly (64-bit mantissa or more on the targets Ridge builds for).
  const long double x = a.IsIntegral() ? static_cast<long double>(a.integer()) : a.floating();
  const long double y = b.IsIntegral() ? static_cast<long double>(b.integer()) : b.floating();
  if (x < y) return -1;
  if (x > y) return 1;
  return x == y ? 0 : 2;
}

static bool EqualTables(const Table& a, const Table& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.items()) {
    const Value* other = b.Find(key, budget);
    if (other == nullptr || !Equals(value, *other, budget)) return false;
  }
  return true;
}

bool Equals(const Value& a, const Value& b, Budget& budget) {
  budget.Step();
  if (a.IsNumber() && b.IsNumber()) return CompareNumbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString: return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      if (a.object() == b.object()) return true;
      return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                        [&](const Value& x, const Value& y) { return Equals(x, y, budget); });
    case Kind::kDict:
      return a.object() == b.object() || EqualTables(a.As<DictObj>().table, b.As<DictObj>().table, budget);
    case Kind::kRange: {
      const auto &x = a.As<RangeObj>(), &y = b.As<RangeObj>();
      return x.length == y.length && (x.length == 0 || (x.start == y.start && (x.length == 1 || x.step == y.step)));
    }
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kNamespace:
    case Kind::kView:
    case Kind::kIterator:
    case Kind::kLoop:
    case Kind::kMacro:
    case Kind::kFunction:
    case Kind::kCycler:
    case Kind::kJoiner: break;
  }
  return a.object() == b.object();
}

bool KeyEquals(const Value& a, const Value& b, Budget& budget) { return Equals(a, b, budget); }

[[noreturn]] static void ThrowOrder(std::string_view op, const Value& a, const Value& b) {
  Throw(Err::kType, "'" + std::string(op) + "' not supported between instances of '" + std::string(TypeName(a)) +
                        "' and '" + std::string(TypeName(b)) + "'");
}

// a op b for the four orderings.
static bool Ordered(Interp& in, CompareOp op, const Value& a, const Value& b) {
  in.budget().Step();
  const auto decide = [op](int c) {
    return c != 2 && (op == CompareOp::kLt   ? c < 0
                      : op == CompareOp::kLe ? c <= 0
                      : op == CompareOp::kGt ? c > 0
                                             : c >= 0);
  };
  if (a.IsUndefined()) ThrowUndefined(a);
  if (b.IsUndefined()) ThrowUndefined(b);
  if (a.IsNumber() && b.IsNumber()) return decide(CompareNumbers(a, b));
  if (a.IsString() && b.IsString()) {
    in.budget().Step(std::min(a.text().size(), b.text().size()) / 64);
    const int c = a.text().compare(b.text());  // UTF-8 orders as code points do
    return decide(c < 0 ? -1 : c > 0);
  }
  if (a.IsSequence() && a.kind() == b.kind()) {
    const auto &x = a.items(), &y = b.items();
    const size_t n = std::min(x.size(), y.size());
    for (size_t i = 0; i < n; ++i) {
      if (!Equals(x[i], y[i], in.budget())) return Ordered(in, op, x[i], y[i]);
    }
    return decide(x.size() < y.size() ? -1 : x.size() > y.size());
  }
  static constexpr std::string_view kText[] = {"==", "!=", "<", "<=", ">", ">="};
  ThrowOrder(kText[static_cast<size_t>(op)], a, b);
}

bool Less(Interp& in, const Value& a, const Value& b) { return Ordered(in, CompareOp::kLt, a, b); }

bool Compare(Interp& in, CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEq: return Equals(a, b, in.budget());
    case CompareOp::kNe: return !Equals(a, b, in.budget());
    case CompareOp::kIn: return Contains(in, b, a);
    case CompareOp::kNotIn: return !Contains(in, b, a);
    case CompareOp::kLt:
    case CompareOp::kLe:
    case CompareOp::kGt:
    case CompareOp::kGe: break;
  }
  return Ordered(in, op, a, b);
}

bool Contains(Interp& in, const Value& container, const Value& item) {
  Budget& budget = in.budget();
  switch (container.kind()) {
    case Kind::kString:
      if (!item.IsString())
        Throw(Err::kType, "'in <string>' requires string as left operand, not " + std::string(TypeName(item)));
      budget.Step(container.text().size() / 16);
      return container.text().find(item.text()) != std::string::npos;
    case Kind::kDict: return container.As<DictObj>().table.Find(item, budget) != nullptr;
    case Kind::kView: {
      const auto& view = container.As<ViewObj>();
      if (view.what == ViewObj::What::kKeys) return view.dict.As<DictObj>().table.Find(item, budget) != nullptr;
      break;
    }
    default: break;
  }
  if (!IsIterable(container))
    Throw(Err::kType, "argument of type '" + std::string(TypeName(container)) + "' is not iterable");
  Iter it(in, container);
  for (Value next; it.Next(next);) {
    if (Equals(next, item, budget)) return true;
  }
  return false;
}

// ----------------------------------------------------------------------------------------------------------- iteration

std::optional<int64_t> TryLength(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined: return 0;
    case Kind::kString: return v.As<StringObj>().length;
    case Kind::kList:
    case Kind::kTuple: return static_cast<int64_t>(v.items().size());
    case Kind::kDict: return static_cast<int64_t>(v.As<DictObj>().table.size());
    case Kind::kRange: return v.As<RangeObj>().length;
    case Kind::kView: return static_cast<int64_t>(v.As<ViewObj>().dict.As<DictObj>().table.size());
    default: return std::nullopt;
  }
}

int64_t Length(const Value& v) {
  if (const auto length = TryLength(v)) return *length;
  Throw(Err::kType, "object of type '" + std::string(TypeName(v)) + "' has no len()");
}

bool IsIterable(const Value& v) { return TryLength(v).has_value() || v.Is(Kind::kIterator) || v.Is(Kind::kLoop); }

Iter::Iter(Interp& in, const Value& iterable) : in_(&in), source_(iterable) {
  if (!IsIterable(iterable)) Throw(Err::kType, "'" + std::string(TypeName(iterable)) + "' object is not iterable");
}

bool Iter::Next(Value& item) {
  if (source_.IsMissing()) return false;
  in_->budget().Step();
  switch (source_.kind()) {
    case Kind::kString: {
      const std::string& s = source_.text();
      if (at_ >= s.size()) return false;
      const size_t start = at_;
      DecodeAt(s, at_);
      item = in_->Str(s.substr(start, at_ - start));  // of Markup too: it does not override __iter__
      return true;
    }
    case Kind::kList:
    case Kind::kTuple:
      if (at_ >= source_.items().size()) return false;
      item = source_.items()[at_++];
      return true;
    case Kind::kDict: {
      const Table& table = source_.As<DictObj>().table;
      if (at_ >= table.size()) return false;
      item = table.items()[at_++].first;
      return true;
    }
    case Kind::kView: {
      const auto& view = source_.As<ViewObj>();
      const Table& table = view.dict.As<DictObj>().table;
      if (at_ >= table.size()) return false;
      const auto& [key, value] = table.items()[at_++];
      item = view.what == ViewObj::What::kKeys     ? key
             : view.what == ViewObj::What::kValues ? value
                                                   : in_->heap().Pair(key, value);
      return true;
    }
    case Kind::kRange: {
      const auto& r = source_.As<RangeObj>();
      if (static_cast<int64_t>(at_) >= r.length) return false;
      item = Value::Int(r.start + static_cast<int64_t>(at_++) * r.step);
      return true;
    }
    case Kind::kIterator: {
      auto& it = source_.As<IteratorObj>();
      in_->stack().Check();
      if (it.running) Throw(Err::kValue, "generator already executing");
      if (it.next) {
        it.running = true;
        struct Reset {
          IteratorObj& it;
          ~Reset() { it.running = false; }
        } reset{it};
        const Value keep = source_;
        if (it.next(item)) return true;
        it.next = nullptr;
      }
      return false;
    }
    case Kind::kLoop: {
      auto& loop = source_.As<LoopObj>();
      in_->stack().Check();
      if (!loop.Advance(*in_)) return false;
      item = in_->heap().Pair(loop.current, source_);
      return true;
    }
    default: return false;
  }
}

std::vector<Value> ToVector(Interp& in, const Value& iterable) {
  if (iterable.IsSequence()) {
    in.budget().Step(iterable.items().size());
    return iterable.items();
  }
  std::vector<Value> out;
  Iter it(in, iterable);
  for (Value item; it.Next(item);) out.push_back(std::move(item));
  return out;
}

// ---------------------------------------------------------------------------------------------------------- subscripts

int64_t ToIndex(const Value& v, std::string_view what) {
  if (v.IsIntegral()) return v.integer();
  if (v.IsUndefined()) ThrowUndefined(v);
  Throw(Err::kType, std::string(what) + " must be an integer, not '" + std::string(TypeName(v)) + "'");
}

// object[key] of Python; missing where it raises TypeError or LookupError.
static Value Subscript(Interp& in, const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::kUndefined: ThrowUndefined(object);
    case Kind::kDict: {
      if (key.Is(Kind::kList) || key.Is(Kind::kDict)) return {};
      const Table& table = object.As<DictObj>().table;
      if (key.Is(Kind::kTuple)) {
        try {
          HashOf(key);
        } catch (const JinjaError&) {
          return {};
        }
      }
      const Value* found = key.IsString() ? table.Find(key.text()) : table.Find(key, in.budget());
      return found != nullptr ? *found : Value();
    }
    case Kind::kString: {
      if (!key.IsIntegral()) return {};
      const auto& s = object.As<StringObj>();
      const int64_t i = key.integer() < 0 ? key.integer() + s.length : key.integer();
      if (i < 0 || i >= s.length) return {};
      const size_t start = ByteOffset(s.text, i, s.length);
      if (!s.ascii()) in.budget().Step(start / 16);
      size_t end = start;
      DecodeAt(s.text, end);
      return in.Str(s.text.substr(start, end - start), s.markup);
    }
    case Kind::kList:
    case Kind::kTuple: {
      if (!key.IsIntegral()) return {};
      const auto n = static_cast<int64_t>(object.items().size());
      const int64_t i = key.integer() < 0 ? key.integer() + n : key.integer();
      return i < 0 || i >= n ? Value() : object.items()[static_cast<size_t>(i)];
    }
    case Kind::kRange: {
      if (!key.IsIntegral()) return {};
      const auto& r = object.As<RangeObj>();
      const int64_t i = key.integer() < 0 ? key.integer() + r.length : key.integer();
      return i < 0 || i >= r.length ? Value() : Value::Int(r.start + i * r.step);
    }
    default: return {};
  }
}

static Value NoAttribute(Interp& in, const Value& object, const Value& key) {
  std::string type(TypeName(object));
  if (object.IsNone()) type = "None";
  if (key.IsString()) {
    const std::string shown = object.IsNone() ? "None" : type + " object";
    return in.MakeUndefined("'" + shown + "' has no attribute " + ReprString(key.text()));
  }
  return in.MakeUndefined((object.IsNone() ? "None" : type + " object") + " has no element " + Repr(in, key));
}

Value GetAttr(Interp& in, const Value& object, const Value& name) {
  Value found = Attribute(in, object, name.text());
  if (found.IsMissing()) found = Subscript(in, object, name);
  return found.IsMissing() ? NoAttribute(in, object, name) : found;
}

Value GetItem(Interp& in, const Value& object, const Value& key) {
  Value found = Subscript(in, object, key);
  if (found.IsMissing() && key.IsString()) found = Attribute(in, object, key.text());
  return found.IsMissing() ? NoAttribute(in, object, key) : found;
}

Value Slice(Interp& in, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.IsUndefined()) ThrowUndefined(object);
  const bool sliceable = object.IsString() || object.IsSequence() || object.Is(Kind::kRange);
  if (!sliceable) Throw(Err::kType, "'" + std::string(TypeName(object)) + "' object is not subscriptable with a slice");
  const auto index = [](const Value& v) -> std::optional<int64_t> {
    if (v.IsMissing() || v.IsNone()) return std::nullopt;
    if (!v.IsIntegral()) Throw(Err::kType, "slice indices must be integers or None");
    return v.integer();
  };
  const int64_t n = Length(object);
  const int64_t by = index(step).value_or(1);
  if (by == 0) Throw(Err::kValue, "slice step cannot be zero");
  const auto clamp = [&](std::optional<int64_t> i, int64_t fallback) {
    if (!i) return fallback;
    const int64_t at = *i < 0 ? *i + n : *i;
    return by > 0 ? std::clamp<int64_t>(at, 0, n) : std::clamp<int64_t>(at, -1, n - 1);
  };
  const int64_t from = clamp(index(start), by > 0 ? 0 : n - 1);
  const int64_t to = clamp(index(stop), by > 0 ? n : -1);
  const auto each = [&](auto&& use) {
    if (by > n || by < -n) {  // one step leaves the sequence
      if (by > 0 ? from < to : from > to) use(from);
      return;
    }
    const int64_t count = by > 0 ? (to - from + by - 1) / by : (from - to - by - 1) / -by;
    for (int64_t k = 0; k < count; ++k) use(from + k * by);
  };
  if (object.IsString()) {
    const auto& s = object.As<StringObj>();
    in.budget().Step(s.text.size() / 64);
    if (by == 1) {
      if (from >= to) return in.Str("", s.markup);
      const size_t begin = ByteOffset(s.text, from, s.length);
      const size_t end = begin + ByteOffset(std::string_view(s.text).substr(begin), to - from, s.length - from);
      return in.Str(s.text.substr(begin, end - begin), s.markup);
    }
    const std::vector<char32_t> points = ToCodePoints(s.text);
    std::string out;
    each([&](int64_t i) { AppendUtf8(out, points[static_cast<size_t>(i)]); });
    return in.Str(std::move(out), s.markup);
  }
  if (object.Is(Kind::kRange)) {
    const auto& r = object.As<RangeObj>();
    const auto at = [&](int64_t i) { return static_cast<int64_t>(r.start + static_cast<Wide>(i) * r.step); };
    int64_t scaled = 0;
    if (__builtin_mul_overflow(r.step, by, &scaled)) Throw(Err::kUnsupported, "integer beyond 64 bits");
    return in.heap().Range(at(from), at(to), scaled);
  }
  std::vector<Value> items;
  each([&](int64_t i) { items.push_back(object.items()[static_cast<size_t>(i)]); });
  in.budget().Step(items.size());
  return object.Is(Kind::kList) ? in.heap().List(std::move(items)) : in.heap().Tuple(std::move(items));
}

}  // namespace ridge::text::jinja
