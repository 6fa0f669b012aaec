#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "text/jinja/unicode.h"

namespace ridge::text::jinja {

void Throw(Err kind, std::string message, int line) { throw JinjaError{kind, std::move(message), line}; }

void Budget::Step(uint64_t n) {
  if (steps_left < n) {
    steps_left = 0;
    Throw(Err::kLimit, "the template needs too many steps");
  }
  steps_left -= n;
}

void Budget::Take(size_t bytes) {
  Step(bytes / 64);
  if (bytes > max_bytes - live_bytes) Throw(Err::kLimit, "the template needs too much memory");
  live_bytes += bytes;
}

namespace {

constexpr size_t kLinearItems = 8;
constexpr size_t kItemBytes = 2 * sizeof(Value);
constexpr size_t kIndexBytes = 40;  // one node of the hash index

uint64_t Mix(uint64_t h) {
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdULL;
  return h ^ (h >> 33);
}

}  // namespace

uint64_t HashOf(const Value& v) {
  switch (v.kind()) {
    case Kind::kBool:
    case Kind::kInt: return Mix(static_cast<uint64_t>(v.integer()));
    case Kind::kFloat: {
      const double d = v.floating();
      if (d == std::floor(d) && std::fabs(d) < 9e18) return Mix(static_cast<uint64_t>(static_cast<int64_t>(d)));
      return std::hash<double>()(d);
    }
    case Kind::kString: return std::hash<std::string>()(v.text());
    case Kind::kTuple: {
      uint64_t h = 7;
      for (const Value& item : v.items()) h = Mix(h * 31 + HashOf(item));
      return h;
    }
    case Kind::kList: Throw(Err::kType, "unhashable type: 'list'");
    case Kind::kDict: Throw(Err::kType, "unhashable type: 'dict'");
    case Kind::kNone: return 1;
    case Kind::kUndefined: return 2;
    case Kind::kMissing: return 3;
    case Kind::kRange: return Mix(static_cast<uint64_t>(v.As<RangeObj>().length));
    case Kind::kNamespace:
    case Kind::kView:
    case Kind::kIterator:
    case Kind::kLoop:
    case Kind::kMacro:
    case Kind::kFunction:
    case Kind::kCycler:
    case Kind::kJoiner: break;
  }
  return Mix(reinterpret_cast<uintptr_t>(v.object()));
}

int64_t Table::Locate(const Value& key, uint64_t hash, Budget& budget) const {
  if (items_.size() <= kLinearItems) {
    for (size_t i = 0; i < items_.size(); ++i) {
      if (KeyEquals(items_[i].first, key, budget)) return static_cast<int64_t>(i);
    }
    return -1;
  }
  auto [first, last] = index_.equal_range(hash);
  for (; first != last; ++first) {
    if (KeyEquals(items_[first->second].first, key, budget)) return first->second;
  }
  return -1;
}

const Value* Table::Find(const Value& key, Budget& budget) const {
  const int64_t at = Locate(key, HashOf(key), budget);
  return at < 0 ? nullptr : &items_[static_cast<size_t>(at)].second;
}

const Value* Table::Find(std::string_view key) const {
  if (items_.size() <= kLinearItems) {
    for (const Item& item : items_) {
      if (item.first.IsString() && item.first.text() == key) return &item.second;
    }
    return nullptr;
  }
  auto [first, last] = index_.equal_range(std::hash<std::string_view>()(key));
  for (; first != last; ++first) {
    const Item& item = items_[first->second];
    if (item.first.IsString() && item.first.text() == key) return &item.second;
  }
  return nullptr;
}

bool Table::Set(Value key, Value value, Budget& budget) {
  const uint64_t hash = HashOf(key);
  const int64_t at = Locate(key, hash, budget);
  if (at >= 0) {
    items_[static_cast<size_t>(at)].second = std::move(value);
    return false;
  }
  items_.emplace_back(std::move(key), std::move(value));
  if (items_.size() == kLinearItems + 1) {
    for (uint32_t i = 0; i < items_.size(); ++i) index_.emplace(HashOf(items_[i].first), i);
  } else if (items_.size() > kLinearItems) {
    index_.emplace(hash, static_cast<uint32_t>(items_.size() - 1));
  }
  return true;
}

void Heap::Nest(Object& container, const Value& element) {
  container.depth = std::max(container.depth, element.depth() + 1);
  if (container.depth > kMaxNesting) Throw(Err::kLimit, "values are nested too deep");
}

Value Heap::Str(std::string text, bool markup) {
  auto* object = New<StringObj>(text.capacity() > 15 ? text.capacity() : 0);
  const Value v = Value::Of(Kind::kString, object);
  object->length = CountCodePoints(text);
  object->text = std::move(text);
  object->markup = markup;
  return v;
}

Value Heap::Sequence(Kind kind, std::vector<Value> items) {
  auto* object = New<ListObj>(items.size() * sizeof(Value));
  Value v = Value::Of(kind, object);
  for (const Value& item : items) {
    // A namespace is emptied by its heap, so it ends a chain of destructors; walks through it are bounded by the stack check.
    Nest(*object, item);
  }
  object->items = std::move(items);
  return v;
}

Value Heap::Pair(Value a, Value b) {
  std::vector<Value> items;
  items.reserve(2);
  items.push_back(std::move(a));
  items.push_back(std::move(b));
  return Tuple(std::move(items));
}

Value Heap::Group(Value grouper, Value list) {
  Value v = Pair(std::move(grouper), std::move(list));
  v.As<ListObj>().group = true;
  return v;
}

Value Heap::Dict(Table table) {
  auto* object = New<DictObj>(table.size() * (kItemBytes + (table.size() > kLinearItems ? kIndexBytes : 0)));
  Value v = Value::Of(Kind::kDict, object);
  for (const Table::Item& item : table.items()) {
    Nest(*object, item.first);
    Nest(*object, item.second);
  }
  object->table = std::move(table);
  return v;
}

Value Heap::Namespace(Table table) {
  auto* object = New<NamespaceObj>(table.size() * (kItemBytes + kIndexBytes));
  Value v = Value::Of(Kind::kNamespace, object);
  object->table = std::move(table);
  mutables_.push_back(v);
  return v;
}

void Heap::SetAttribute(NamespaceObj& ns, Value key, Value value) {
  if (ns.table.Set(std::move(key), std::move(value), budget_)) {
    budget_.Take(kItemBytes + kIndexBytes);
    ns.bytes += kItemBytes + kIndexBytes;
  }
}

Heap::~Heap() {
  for (Value& v : mutables_) {
    if (v.Is(Kind::kNamespace)) v.As<NamespaceObj>().table.Clear();
    if (v.Is(Kind::kIterator)) v.As<IteratorObj>().next = nullptr;
  }
}

Value Heap::Undefined(std::string message) {
  auto* object = New<UndefinedObj>(message.size());
  Value v = Value::Of(Kind::kUndefined, object);
  object->message = std::move(message);
  return v;
}

Value Heap::Range(int64_t start, int64_t stop, int64_t step) {
  if (step == 0) Throw(Err::kValue, "range() arg 3 must not be zero");
  auto* object = New<RangeObj>(0);
  Value v = Value::Of(Kind::kRange, object);
  object->start = start;
  object->stop = stop;
  object->step = step;
  const Wide span = step > 0 ? static_cast<Wide>(stop) - start : static_cast<Wide>(start) - stop;
  const Wide width = step > 0 ? step : -static_cast<Wide>(step);
  const Wide length = span <= 0 ? 0 : (span + width - 1) / width;
  if (length > 100000)
    Throw(Err::kOverflow, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  object->length = static_cast<int64_t>(length);
  return v;
}

Value Heap::View(Value dict, ViewObj::What what) {
  auto* object = New<ViewObj>(0);
  Value v = Value::Of(Kind::kView, object);
  Nest(*object, dict);
  object->dict = std::move(dict);
  object->what = what;
  return v;
}

Value Heap::Iterator(const Value& source, const char* name, std::function<bool(Value&)> next) {
  auto* object = New<IteratorObj>(128);
  Value v = Value::Of(Kind::kIterator, object);
  Nest(*object, source);
  object->name = name;
  object->next = std::move(next);
  mutables_.push_back(v);
  return v;
}

Value Heap::Function(std::string name, std::function<Value(Interp&, const Value&, Args&)> call, Value self) {
  auto* object = New<FunctionObj>(64);
  Value v = Value::Of(Kind::kFunction, object);
  Nest(*object, self);
  object->name = std::move(name);
  object->call = std::move(call);
  object->self = std::move(self);
  return v;
}

}  // namespace ridge::text::jinja
