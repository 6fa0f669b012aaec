// Filters on sequences and mappings.
#include <algorithm>
#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/methods.h"
#include "text/jinja/unicode.h"

namespace ridge::text::jinja {
namespace {

// `attribute=` of many filters: "a.b.0" walks items and attributes.
class AttributeGetter {
 public:
  AttributeGetter(Interp& in, const Value& attribute, bool ignore_case, Value fallback = {})
      : in_(&in), ignore_case_(ignore_case), fallback_(std::move(fallback)) {
    if (attribute.IsMissing() || attribute.IsNone()) return;
    if (!attribute.IsString()) {
      parts_.push_back(attribute);
      return;
    }
    std::string_view rest = attribute.text();
    while (true) {
      const size_t dot = rest.find('.');
      const std::string_view part = rest.substr(0, dot);
      const bool digits =
          !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == std::string_view::npos;
      parts_.push_back(digits ? Value::Int(std::atoll(std::string(part).c_str())) : in.Str(std::string(part)));
      if (dot == std::string_view::npos) return;
      rest.remove_prefix(dot + 1);
    }
  }

  Value operator()(Value item) const {
    for (const Value& part : parts_) {
      item = GetItem(*in_, item, part);
      if (item.IsUndefined() && !fallback_.IsMissing() && !fallback_.IsNone()) item = fallback_;
    }
    return ignore_case_ && item.IsString() ? in_->Str(ToLower(item.text())) : item;
  }

 private:
  Interp* in_;
  bool ignore_case_;
  Value fallback_;
  std::vector<Value> parts_;
};

// Stable merge sort: unlike std::stable_sort it stays within bounds whatever the comparison answers (nan).
using Keyed = std::pair<Value, Value>;  // key, item
void SortKeyed(Interp& in, std::vector<Keyed>& items, bool reverse) {
  const auto before = [&](const Keyed& b, const Keyed& a) {
    return reverse ? Less(in, a.first, b.first) : Less(in, b.first, a.first);
  };
  std::vector<Keyed> other(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    for (size_t start = 0; start < items.size(); start += 2 * width) {
      const size_t middle = std::min(start + width, items.size()), end = std::min(start + 2 * width, items.size());
      size_t a = start, b = middle;
      for (size_t out = start; out < end; ++out) {
        const bool take_b = a == middle || (b < end && before(items[b], items[a]));
        other[out] = std::move(items[take_b ? b++ : a++]);
      }
    }
    items.swap(other);
  }
}

std::vector<Value> Sorted(Interp& in, const std::vector<Value>& values, const std::function<Value(const Value&)>& key,
                          bool reverse) {
  std::vector<Keyed> keyed;
  keyed.reserve(values.size());
  for (const Value& v : values) keyed.emplace_back(key(v), v);
  SortKeyed(in, keyed, reverse);
  std::vector<Value> out;
  out.reserve(keyed.size());
  for (Keyed& k : keyed) out.push_back(std::move(k.second));
  return out;
}

Value FilterLength(Interp&, const Value& v, Args& args) {
  const Bound b(args, "length", {}, 0);
  return Value::Int(Length(v));
}

Value FilterList(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "list", {}, 0);
  return in.MakeList(ToVector(in, v));
}

Value FilterFirst(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "first", {}, 0);
  Iter it(in, v);
  Value item;
  return it.Next(item) ? item : in.MakeUndefined("No first item, sequence was empty.");
}

bool IsReversible(const Value& v) {
  return v.IsString() || v.IsSequence() || v.Is(Kind::kDict) || v.Is(Kind::kRange) || v.Is(Kind::kView) ||
         v.IsUndefined();
}

Value FilterLast(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "last", {}, 0);
  if (!IsReversible(v)) Throw(Err::kType, "'" + std::string(TypeName(v)) + "' object is not reversible");
  if (v.IsString() || v.IsSequence() || v.Is(Kind::kRange)) {
    Value item = Length(v) > 0 ? GetItem(in, v, Value::Int(-1)) : Value();
    return item.IsMissing() ? in.MakeUndefined("No last item, sequence was empty.") : item;
  }
  std::vector<Value> items = ToVector(in, v);
  return items.empty() ? in.MakeUndefined("No last item, sequence was empty.") : items.back();
}

Value FilterReverse(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "reverse", {}, 0);
  if (v.IsString()) return Slice(in, v, {}, {}, Value::Int(-1));
  std::vector<Value> items = ToVector(in, v);
  std::reverse(items.begin(), items.end());
  Value list = in.MakeList(std::move(items));
  if (!IsReversible(v)) return list;
  const char* name = v.Is(Kind::kList) ? "list_reverseiterator" : v.Is(Kind::kRange) ? "range_iterator" : "reversed";
  return in.heap().Iterator(list, name, [it = Iter(in, list)](Value& next) mutable { return it.Next(next); });
}

Value FilterItems(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "items", {}, 0);
  // The error comes when the generator runs, as in Python.
  Value source = v.Is(Kind::kDict) ? in.heap().View(v, ViewObj::What::kItems) : v;
  return in.heap().Iterator(source, "generator", [&in, source, it = Iter(), started = false](Value& next) mutable {
    if (source.IsUndefined()) return false;
    if (!source.Is(Kind::kView)) Throw(Err::kType, "Can only get item pairs from a mapping.");
    if (!std::exchange(started, true)) it = Iter(in, source);
    return it.Next(next);
  });
}

// sorted(reverse=…) takes an integer, not any truth.
bool ReverseFlag(const Bound& b, size_t i) { return b.Has(i) && ToIndex(b.Get(i), "reverse") != 0; }

Value FilterDictSort(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "dictsort", {"case_sensitive", "by", "reverse"}, 0);
  const std::string by = b.Has(1) ? ToStr(in, b.Get(1)) : "key";
  if (by != "key" && by != "value") Throw(Err::kValue, "You can only sort by either \"key\" or \"value\"");
  if (v.IsUndefined()) ThrowUndefined(v);
  if (!v.Is(Kind::kDict)) Throw(Err::kType, "'" + std::string(TypeName(v)) + "' object has no attribute 'items'");
  const AttributeGetter key(in, Value::Int(by == "value"), !b.Flag(0, false));
  std::vector<Value> pairs;
  for (const auto& [k, value] : v.As<DictObj>().table.items()) pairs.push_back(in.heap().Pair(k, value));
  return in.MakeList(Sorted(in, pairs, key, ReverseFlag(b, 2)));
}

Value FilterSort(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "sort", {"reverse", "case_sensitive", "attribute"}, 0);
  const bool ignore_case = !b.Flag(1, false);
  std::vector<AttributeGetter> getters;
  if (b.Has(2) && b.Get(2).IsString()) {  // "a,b": by a, then by b
    std::string_view rest = b.Get(2).text();
    while (true) {
      const size_t comma = rest.find(',');
      getters.emplace_back(in, in.Str(std::string(rest.substr(0, comma))), ignore_case);
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    getters.emplace_back(in, b.Get(2), ignore_case);
  }
  const auto key = [&](const Value& item) {
    std::vector<Value> keys;
    for (const AttributeGetter& getter : getters) keys.push_back(getter(item));
    return in.MakeList(std::move(keys));
  };
  return in.MakeList(Sorted(in, ToVector(in, v), key, ReverseFlag(b, 0)));
}

Value FilterUnique(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "unique", {"case_sensitive", "attribute"}, 0);
  const AttributeGetter key(in, b.Get(1), !b.Flag(0, false));
  return in.heap().Iterator(v, "generator",
                            [&in, v, key, it = Iter(), started = false, seen = Table()](Value& next) mutable {
                              if (!std::exchange(started, true)) it = Iter(in, v);
                              while (it.Next(next)) {
                                if (seen.Set(key(next), Value::None(), in.budget())) return true;
                              }
                              return false;
                            });
}

template <bool kMax>
Value FilterExtreme(Interp& in, const Value& v, Args& args) {
  const Bound b(args, kMax ? "max" : "min", {"case_sensitive", "attribute"}, 0);
  const AttributeGetter key(in, b.Get(1), !b.Flag(0, false));
  Iter it(in, v);
  Value best;
  if (!it.Next(best)) return in.MakeUndefined("No aggregated item, sequence was empty.");
  Value best_key = key(best);
  for (Value item; it.Next(item);) {
    Value item_key = key(item);
    if (!Compare(in, kMax ? CompareOp::kGt : CompareOp::kLt, item_key, best_key)) continue;
    best = item;
    best_key = std::move(item_key);
  }
  return best;
}

Value FilterSum(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "sum", {"attribute", "start"}, 0);
  const AttributeGetter get(in, b.Get(0), false);
  Value sum = b.Or(1, Value::Int(0));
  if (sum.IsString()) Throw(Err::kType, "sum() can't sum strings [use ''.join(seq) instead]");
  Iter it(in, v);
  for (Value item; it.Next(item);) sum = Binary(in, ExprKind::kAdd, sum, get(item));
  return sum;
}

Value FilterBatch(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "batch", {"linecount", "fill_with"}, 1);
  const Value count = b.Get(0), fill = b.Or(1, Value::None());
  Value g = in.heap().Iterator(
      v, "generator", [&in, v, count, fill, it = Iter(), started = false, tail = Value()](Value& next) mutable {
        if (!std::exchange(started, true)) it = Iter(in, v);
        std::vector<Value> row;
        if (!tail.IsMissing()) row.push_back(std::exchange(tail, Value()));
        for (Value item; it.Next(item);) {
          if (Equals(Value::Int(static_cast<int64_t>(row.size())), count, in.budget())) {
            tail = std::move(item);
            next = in.MakeList(std::move(row));
            return true;
          }
          row.push_back(std::move(item));
        }
        if (row.empty()) return false;
        if (!fill.IsNone() && Less(in, Value::Int(static_cast<int64_t>(row.size())), count)) {
          const int64_t missing = ToIndex(count, "linecount") - static_cast<int64_t>(row.size());
          if (missing > (int64_t{1} << 40)) Throw(Err::kLimit, "the template needs too much memory");
          ReserveBytes(in, missing * static_cast<int64_t>(sizeof(Value)));
          row.insert(row.end(), static_cast<size_t>(missing), fill);
        }
        next = in.MakeList(std::move(row));
        return true;
      });
  Heap::Nest(*g.object(), fill);
  return g;
}

Value FilterSlice(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "slice", {"slices", "fill_with"}, 1);
  const Value slices = b.Get(0), fill = b.Or(1, Value::None());
  Value g = in.heap().Iterator(
      v, "generator",
      [&in, v, slices, fill, items = Value(), number = int64_t{0}, offset = int64_t{0}](Value& next) mutable {
        if (items.IsMissing()) items = in.MakeList(ToVector(in, v));
        const auto length = static_cast<int64_t>(items.items().size());
        const int64_t n = ToIndex(slices, "slices");
        if (n == 0) Throw(Err::kValue, "integer division or modulo by zero");
        if (n < 0 || number >= n) return false;
        const int64_t each = length / n, extra = length % n;
        const int64_t start = offset + number * each;
        if (number < extra) ++offset;
        const int64_t end = offset + (number + 1) * each;
        std::vector<Value> row(items.items().begin() + start, items.items().begin() + end);
        if (!fill.IsNone() && number >= extra) row.push_back(fill);
        ++number;
        next = in.MakeList(std::move(row));
        return true;
      });
  Heap::Nest(*g.object(), fill);
  return g;
}

Value FilterGroupBy(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = b.Flag(2, false);
  const AttributeGetter key(in, b.Get(0), !case_sensitive, b.Get(1));
  const AttributeGetter real(in, b.Get(0), false, b.Get(1));
  const std::vector<Value> sorted = Sorted(in, ToVector(in, v), key, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < sorted.size();) {
    const Value group_key = key(sorted[i]);
    std::vector<Value> members;
    const size_t first = i;
    for (; i < sorted.size() && Equals(key(sorted[i]), group_key, in.budget()); ++i) members.push_back(sorted[i]);
    if (i == first) members.push_back(sorted[i++]);  // nan differs from itself
    Value grouper = case_sensitive ? group_key : real(members[0]);
    groups.push_back(in.heap().Group(std::move(grouper), in.MakeList(std::move(members))));
  }
  return in.MakeList(std::move(groups));
}

// ---- map, select, reject

// Args that a generator keeps, with their nesting counted.
void NestArgs(const Value& generator, const Args& args) {
  for (const Value& v : args.positional) Heap::Nest(*generator.object(), v);
  for (const auto& [name, v] : args.named) Heap::Nest(*generator.object(), v);
}

Value FilterMap(Interp& in, const Value& v, Args& args) {
  Value g = in.heap().Iterator(
      v, "generator",
      [&in, v, args, it = Iter(), started = false, get = std::function<Value(const Value&)>()](Value& next) mutable {
        if (!std::exchange(started, true)) {
          if (!Truth(v)) return false;
          const auto attribute =
              std::find_if(args.named.begin(), args.named.end(), [](const auto& n) { return n.first == "attribute"; });
          if (args.positional.empty() && attribute != args.named.end()) {
            const Bound b(args, "map", {"attribute", "default"}, 0);
            get = AttributeGetter(in, b.Get(0), false, b.Get(1));
          } else {
            if (args.positional.empty()) Throw(Err::kValue, "map requires a filter argument");
            const Value name = args.positional[0];
            if (!name.IsString()) Throw(Err::kRuntime, "No filter named " + Repr(in, name) + " found.");
            args.positional.erase(args.positional.begin());
            get = [&in, name, rest = args](const Value& item) {
              Args copy = rest;
              return in.CallFilter(name.text(), item, copy);
            };
          }
          it = Iter(in, v);
        }
        Value item;
        if (!it.Next(item)) return false;
        next = get(item);
        return true;
      });
  NestArgs(g, args);
  return g;
}

template <bool kReject, bool kAttribute>
Value FilterSelect(Interp& in, const Value& v, Args& args) {
  Value g = in.heap().Iterator(
      v, "generator",
      [&in, v, args, it = Iter(), started = false, attribute = Value(), test = Value()](Value& next) mutable {
        if (!std::exchange(started, true)) {
          if (!Truth(v)) return false;
          auto& positional = args.positional;
          if (kAttribute) {
            if (positional.empty()) Throw(Err::kValue, "Missing parameter for attribute name");
            attribute = positional[0];
            positional.erase(positional.begin());
          }
          if (!positional.empty()) {
            test = positional[0];
            positional.erase(positional.begin());
          }
          it = Iter(in, v);
        }
        const AttributeGetter get(in, attribute, false);
        while (it.Next(next)) {
          const Value subject = get(next);
          bool chosen = false;
          if (test.IsMissing()) {
            chosen = Truth(subject);
          } else {
            if (!test.IsString()) Throw(Err::kRuntime, "No test named " + Repr(in, test) + " found.");
            Args copy = args;
            chosen = in.CallTest(test.text(), subject, copy);
          }
          if (chosen != kReject) return true;
        }
        return false;
      });
  NestArgs(g, args);
  return g;
}

Value FilterJoin(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "join", {"d", "attribute"}, 0);
  const std::string separator = b.Has(0) ? ToStr(in, b.Get(0)) : "";
  const AttributeGetter get(in, b.Get(1), false);
  std::string out;
  bool first = true;
  Iter it(in, v);
  for (Value item; it.Next(item);) {
    if (!std::exchange(first, false)) out += separator;
    const Value part = get(item);
    out += part.IsString() ? part.text() : ToStr(in, part);
    in.budget().Step(1 + separator.size() / 64);
    ReserveBytes(in, static_cast<int64_t>(out.size()));
  }
  return in.Str(std::move(out));
}

Value FilterRandom(Interp&, const Value&, Args&) {
  Throw(Err::kUnsupported, "the filter 'random' is not supported: a prompt must be reproducible");
}

constexpr NamedFilter kFilters[] = {
    {"length", FilterLength},
    {"count", FilterLength},
    {"list", FilterList},
    {"first", FilterFirst},
    {"last", FilterLast},
    {"join", FilterJoin},
    {"map", FilterMap},
    {"items", FilterItems},
    {"selectattr", FilterSelect<false, true>},
    {"rejectattr", FilterSelect<true, true>},
    {"select", FilterSelect<false, false>},
    {"reject", FilterSelect<true, false>},
    {"dictsort", FilterDictSort},
    {"sort", FilterSort},
    {"unique", FilterUnique},
    {"reverse", FilterReverse},
    {"min", FilterExtreme<false>},
    {"max", FilterExtreme<true>},
    {"sum", FilterSum},
    {"batch", FilterBatch},
    {"slice", FilterSlice},
    {"groupby", FilterGroupBy},
    {"random", FilterRandom},
};

}  // namespace

std::span<const NamedFilter> SequenceFilters() { return kFilters; }

}  // namespace ridge::text::jinja
