#include <algorithm>

#include "text/jinja/methods.h"
#include "text/jinja/unicode.h"

namespace ridge::text::jinja {
namespace {

// The part of a string that find, count, startswith … look at: [start, end) in code points, as byte offsets.
struct Window {
  bool valid = true;  // false: start lies beyond end, nothing is found, not even ""
  size_t begin = 0, end = 0;
};

Window MakeWindow(const StringObj& s, const Bound& b, size_t first) {
  const auto index = [&](size_t i, int64_t fallback) {
    if (!b.Has(i) || b.Get(i).IsNone()) return fallback;
    const int64_t v = ToIndex(b.Get(i), "slice index");
    return v < 0 ? std::max<int64_t>(v + s.length, 0) : v;
  };
  const int64_t start = index(first, 0);
  const int64_t end = std::min(index(first + 1, s.length), s.length);
  if (start > end) return {false, 0, 0};
  return {true, ByteOffset(s.text, start, s.length), ByteOffset(s.text, end, s.length)};
}

std::string Needle(const Value& v) {
  if (!v.IsString()) Throw(Err::kType, "must be str, not " + std::string(TypeName(v)));
  return v.text();
}

int64_t FindIn(Interp& in, const Value& self, Args& args, bool from_right) {
  const Bound b(args, "find", {"", "", ""}, 1);
  const auto& s = self.As<StringObj>();
  const std::string needle = Needle(b.Get(0));
  const Window w = MakeWindow(s, b, 1);
  if (!w.valid) return -1;
  in.budget().Step(s.text.size() / 16);
  const std::string_view part = std::string_view(s.text).substr(w.begin, w.end - w.begin);
  const size_t at = from_right ? part.rfind(needle) : part.find(needle);
  if (at == std::string_view::npos) return -1;
  return CountCodePoints(std::string_view(s.text).substr(0, w.begin + at));
}

template <bool kRight>
Value Find(Interp& in, const Value& self, Args& args) {
  return Value::Int(FindIn(in, self, args, kRight));
}

template <bool kRight>
Value Index(Interp& in, const Value& self, Args& args) {
  const int64_t at = FindIn(in, self, args, kRight);
  if (at < 0) Throw(Err::kValue, "substring not found");
  return Value::Int(at);
}

Value Count(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "count", {"", "", ""}, 1);
  const auto& s = self.As<StringObj>();
  const std::string needle = Needle(b.Get(0));
  const Window w = MakeWindow(s, b, 1);
  if (!w.valid) return Value::Int(0);
  in.budget().Step(s.text.size() / 16);
  const std::string_view part = std::string_view(s.text).substr(w.begin, w.end - w.begin);
  if (needle.empty()) return Value::Int(CountCodePoints(part) + 1);
  int64_t n = 0;
  for (size_t at = part.find(needle); at != std::string_view::npos; at = part.find(needle, at + needle.size())) ++n;
  return Value::Int(n);
}

template <bool kEnd>
Value HasAffix(Interp&, const Value& self, Args& args) {
  const Bound b(args, kEnd ? "endswith" : "startswith", {"", "", ""}, 1);
  const auto& s = self.As<StringObj>();
  const Window w = MakeWindow(s, b, 1);
  const auto has = [&](const Value& affix) {
    if (!affix.IsString())
      Throw(Err::kType, "startswith first arg must be str or a tuple of str, not " + std::string(TypeName(affix)));
    if (!w.valid) return false;
    const std::string_view part = std::string_view(s.text).substr(w.begin, w.end - w.begin);
    return kEnd ? part.ends_with(affix.text()) : part.starts_with(affix.text());
  };
  if (!b.Get(0).Is(Kind::kTuple)) return Value::Bool(has(b.Get(0)));
  for (const Value& affix : b.Get(0).items()) {
    if (has(affix)) return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool (*kTest)(char32_t)>
Value All(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "str method", {}, 0);
  const std::string& s = self.text();
  in.budget().Step(s.size() / 16);
  for (size_t at = 0; at < s.size();) {
    if (!kTest(DecodeAt(s, at))) return Value::Bool(false);
  }
  return Value::Bool(!s.empty() || kTest == IsPrintable);
}

Value IsAsciiMethod(Interp&, const Value& self, Args& args) {
  const Bound b(args, "isascii", {}, 0);
  return Value::Bool(std::all_of(self.text().begin(), self.text().end(), [](unsigned char c) { return c < 0x80; }));
}

// isupper, islower: some cased character, and none of the other case.
template <bool kUpper>
Value IsCase(Interp&, const Value& self, Args& args) {
  const Bound b(args, "str method", {}, 0);
  return Value::Bool(kUpper ? AllUpper(self.text()) : AllLower(self.text()));
}

Value IsTitleMethod(Interp&, const Value& self, Args& args) {
  const Bound b(args, "istitle", {}, 0);
  bool in_word = false, any = false;
  const std::string& s = self.text();
  for (size_t at = 0; at < s.size();) {
    const char32_t c = DecodeAt(s, at);
    if (IsUpper(c) || IsTitle(c)) {
      if (in_word) return Value::Bool(false);
      in_word = any = true;
    } else if (IsLower(c)) {
      if (!in_word) return Value::Bool(false);
      any = true;
    } else {
      in_word = false;
    }
  }
  return Value::Bool(any);
}

Value IsIdentifier(Interp&, const Value& self, Args& args) {
  const Bound b(args, "isidentifier", {}, 0);
  const std::string& s = self.text();
  if (s.empty()) return Value::Bool(false);
  size_t at = 0;
  if (!IsIdentifierStart(DecodeAt(s, at))) return Value::Bool(false);
  while (at < s.size()) {
    if (!IsWord(DecodeAt(s, at))) return Value::Bool(false);
  }
  return Value::Bool(true);
}

Value NotText(Interp&, const Value&, Args&) {
  Throw(Err::kUnsupported, "bytes and translation tables are not supported");
}

constexpr NamedMethod kMethods[] = {
    {"count", Count},
    {"endswith", HasAffix<true>},
    {"find", Find<false>},
    {"index", Index<false>},
    {"isalnum", All<IsAlnum>},
    {"isalpha", All<IsAlpha>},
    {"isascii", IsAsciiMethod},
    {"isdecimal", All<IsDecimal>},
    {"isdigit", All<IsDigit>},
    {"isidentifier", IsIdentifier},
    {"islower", IsCase<false>},
    {"isnumeric", All<IsNumeric>},
    {"isprintable", All<IsPrintable>},
    {"isspace", All<IsSpace>},
    {"istitle", IsTitleMethod},
    {"isupper", IsCase<true>},
    {"rfind", Find<true>},
    {"rindex", Index<true>},
    {"startswith", HasAffix<false>},
    {"encode", NotText},
    {"maketrans", NotText},
    {"translate", NotText},
};

}  // namespace

std::span<const NamedMethod> StringQueries() { return kMethods; }

}  // namespace ridge::text::jinja
