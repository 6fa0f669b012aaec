// Values of the template language: Python's objects as far as chat templates can see them.
//
//   Value greeting = heap.Str("hello");          // counted against the rendering's memory
//   if (greeting.Is(Kind::kString)) use(greeting.text());
//
// Guarantees: strings are valid UTF-8; every object is counted in the Budget while it lives; containers nest at most kMaxNesting
// deep, so that recursive walks and destructors end. One rendering owns its values: nothing here is thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ridge::text::jinja {

// Errors inside the interpreter travel as this exception; chat_template.cc turns them into Error. The kinds are those that Python
// code inside jinja2 tells apart.
enum class Err { kSyntax, kType, kValue, kLookup, kOverflow, kUndefined, kRuntime, kLimit, kUnsupported };
struct JinjaError {
  Err kind;
  std::string message;
  int line = 0;  // 1-based; 0: the line being executed
};
[[noreturn]] void Throw(Err kind, std::string message, int line = 0);

constexpr int kMaxNesting = 200;
__extension__ typedef __int128
    Wide;  // for sums and products of two int64 (as typedef: -Wpedantic allows __extension__ there)

// What one rendering may still use.
struct Budget {
  uint64_t steps_left = 0;
  size_t live_bytes = 0;
  size_t max_bytes = 0;

  void Step(uint64_t n = 1);
  void Take(size_t bytes);  // counts the bytes, and the work of filling them
  void Give(size_t bytes) { live_bytes -= bytes; }
};

enum class Kind : uint8_t {
  kMissing,  // no value at all: an unset variable or argument; templates never see it
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kNamespace,
  kRange,
  kView,
  kIterator,
  kLoop,
  kMacro,
  kFunction,
  kCycler,
  kJoiner,
};

struct Object {
  explicit Object(Budget& owner) : budget(&owner) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() { budget->Give(bytes); }

  uint32_t refs = 0;
  int depth = 1;  // containers: 1 + the deepest element
  Budget* budget;
  size_t bytes = 0;  // counted in the budget
};

struct StringObj;
struct ListObj;
struct DictObj;
struct UndefinedObj;

class Value {
 public:
  Value() = default;
  Value(const Value& o) : kind_(o.kind_), u_(o.u_) {
    if (IsObject()) ++u_.o->refs;
  }
  Value(Value&& o) noexcept : kind_(o.kind_), u_(o.u_) { o.kind_ = Kind::kMissing; }
  Value& operator=(Value o) noexcept {
    std::swap(kind_, o.kind_);
    std::swap(u_, o.u_);
    return *this;
  }
  ~Value() {
    if (IsObject() && --u_.o->refs == 0) delete u_.o;
  }

  static Value None() {
    Value v;
    v.kind_ = Kind::kNone;
    return v;
  }
  static Value Bool(bool b) {
    Value v;
    v.kind_ = Kind::kBool;
    v.u_.i = b;
    return v;
  }
  static Value Int(int64_t i) {
    Value v;
    v.kind_ = Kind::kInt;
    v.u_.i = i;
    return v;
  }
  static Value Float(double d) {
    Value v;
    v.kind_ = Kind::kFloat;
    v.u_.d = d;
    return v;
  }
  static Value Of(Kind kind, Object* object) {
    Value v;
    v.kind_ = kind;
    v.u_.o = object;
    ++object->refs;
    return v;
  }

  Kind kind() const { return kind_; }
  bool Is(Kind kind) const { return kind_ == kind; }
  bool IsObject() const { return kind_ == Kind::kUndefined || kind_ >= Kind::kString; }
  bool IsMissing() const { return kind_ == Kind::kMissing; }
  bool IsUndefined() const { return kind_ == Kind::kUndefined; }
  bool IsNone() const { return kind_ == Kind::kNone; }
  bool IsString() const { return kind_ == Kind::kString; }
  bool IsIntegral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }  // bool is an int in Python
  bool IsNumber() const { return IsIntegral() || kind_ == Kind::kFloat; }
  bool IsSequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  bool boolean() const { return u_.i != 0; }
  int64_t integer() const { return u_.i; }  // kInt, kBool
  double floating() const { return u_.d; }
  double AsDouble() const { return kind_ == Kind::kFloat ? u_.d : static_cast<double>(u_.i); }
  Object* object() const { return u_.o; }
  template <class T>
  T& As() const {
    return *static_cast<T*>(u_.o);
  }

  const std::string& text() const;          // kString
  const std::vector<Value>& items() const;  // kList, kTuple
  int depth() const { return IsObject() ? u_.o->depth : 0; }

 private:
  Kind kind_ = Kind::kMissing;
  union {
    int64_t i;
    double d;
    Object* o;
  } u_ = {.i = 0};
};

struct StringObj : Object {
  using Object::Object;
  std::string text;
  int64_t length = 0;   // code points
  bool markup = false;  // markupsafe.Markup: escapes what is added to it
  bool ascii() const { return length == static_cast<int64_t>(text.size()); }
};

struct ListObj : Object {  // list and tuple
  using Object::Object;
  std::vector<Value> items;
  bool group = false;  // groupby's tuple: .grouper and .list
};

uint64_t HashOf(const Value& v);  // throws kType for lists and dicts
bool KeyEquals(const Value& a, const Value& b, Budget& budget);

// A dict with Python's order and key equality (1 == 1.0 == True).
class Table {
 public:
  using Item = std::pair<Value, Value>;
  const Value* Find(const Value& key, Budget& budget) const;
  const Value* Find(std::string_view key) const;
  bool Set(Value key, Value value, Budget& budget);  // true: a new key
  const std::vector<Item>& items() const { return items_; }
  size_t size() const { return items_.size(); }
  void Clear() {
    items_.clear();
    index_.clear();
  }

 private:
  int64_t Locate(const Value& key, uint64_t hash, Budget& budget) const;
  std::vector<Item> items_;
  std::unordered_multimap<uint64_t, uint32_t> index_;  // hash → position; kept only beyond a handful of items
};

struct DictObj : Object {
  using Object::Object;
  Table table;
};
struct NamespaceObj
    : Object {  // the one mutable container; the interpreter empties all of them at its end, which breaks cycles
  using Object::Object;
  Table table;
  bool in_repr = false;
};
struct UndefinedObj : Object {
  using Object::Object;
  std::string message;
};
struct RangeObj : Object {
  using Object::Object;
  int64_t start = 0, stop = 0, step = 1, length = 0;
};
struct ViewObj : Object {  // dict.keys(), .values(), .items()
  enum class What { kKeys, kValues, kItems };
  using Object::Object;
  Value dict;
  What what = What::kKeys;
};
struct IteratorObj : Object {  // generators: consumed once, no length
  using Object::Object;
  std::function<bool(Value& next)> next;
  const char* name = "generator";
  bool running = false;
};

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};
class Interp;
struct FunctionObj : Object {
  using Object::Object;
  std::string name;
  Value self;  // of a bound method
  std::function<Value(Interp&, const Value& self, Args&)> call;
};

struct CyclerObj : Object {
  using Object::Object;
  Value items;  // kTuple, not empty
  size_t position = 0;
};
struct JoinerObj : Object {
  using Object::Object;
  Value separator;
  bool used = false;
};

// Makes values and counts them.
class Heap {
 public:
  explicit Heap(Budget& budget) : budget_(budget) {}
  Budget& budget() { return budget_; }

  Value Str(std::string text, bool markup = false);
  Value List(std::vector<Value> items) { return Sequence(Kind::kList, std::move(items)); }
  Value Tuple(std::vector<Value> items) { return Sequence(Kind::kTuple, std::move(items)); }
  Value Group(Value grouper, Value list);
  Value Pair(Value a, Value b);
  Value Dict(Table table);
  Value Namespace(Table table);
  Value Undefined(std::string message);
  Value Range(int64_t start, int64_t stop, int64_t step);
  Value View(Value dict, ViewObj::What what);
  Value Iterator(const Value& source, const char* name,
                 std::function<bool(Value&)> next);  // source: for the nesting depth
  Value Function(std::string name, std::function<Value(Interp&, const Value& self, Args&)> call, Value self = {});
  void SetAttribute(NamespaceObj& ns, Value key, Value value);

  // An object of type T, counted with extra bytes.
  template <class T>
  T* New(size_t extra_bytes) {
    budget_.Take(sizeof(T) + extra_bytes);
    T* object = new T(budget_);
    object->bytes = sizeof(T) + extra_bytes;
    return object;
  }
  static void Nest(Object& container, const Value& element);  // sets the depth; throws kLimit

  ~Heap();

 private:
  Value Sequence(Kind kind, std::vector<Value> items);
  Budget& budget_;
  std::vector<Value> mutables_;  // namespaces and iterators: emptied at the end, which breaks cycles and long chains
};

inline const std::string& Value::text() const { return As<StringObj>().text; }
inline const std::vector<Value>& Value::items() const { return As<ListObj>().items; }

}  // namespace ridge::text::jinja
