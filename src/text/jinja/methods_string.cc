#include <algorithm>

#include "text/jinja/methods.h"
#include "text/jinja/unicode.h"

namespace ridge::text::jinja {

void ReserveBytes(Interp& in, int64_t bytes) {
  const Budget& budget = in.budget();
  if (bytes > 0 && static_cast<uint64_t>(bytes) > budget.max_bytes - budget.live_bytes)
    Throw(Err::kLimit, "the template needs too much memory");
}

std::vector<std::string_view> SplitLines(std::string_view s, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t at = 0; at < s.size();) {
    const size_t end = at;
    const char32_t c = DecodeAt(s, at);
    if (!IsLineBreak(c)) continue;
    if (c == '\r' && at < s.size() && s[at] == '\n') ++at;
    lines.push_back(s.substr(start, (keep_ends ? at : end) - start));
    start = at;
  }
  if (start < s.size()) lines.push_back(s.substr(start));
  return lines;
}

std::string Justify(Interp& in, const Value& text, int64_t width, const Value& fill, char side) {
  std::string pad = " ";
  if (!fill.IsMissing()) {
    if (!fill.IsString() || fill.As<StringObj>().length != 1)
      Throw(Err::kType, "The fill character must be exactly one character long");
    pad = fill.text();
  }
  const auto& s = text.As<StringObj>();
  const int64_t missing = width - s.length;
  if (missing <= 0) return s.text;
  ReserveBytes(in, missing);
  in.budget().Step(static_cast<uint64_t>(missing) / 16);
  // CPython puts the odd space of center() to the left only where the width is odd too.
  const int64_t left = side == 'l' ? 0 : side == 'r' ? missing : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += pad;
  out += s.text;
  for (int64_t i = left; i < missing; ++i) out += pad;
  return out;
}

std::string ReplaceText(Interp& in, std::string_view s, std::string_view from, std::string_view to, int64_t count) {
  std::string out;
  uint64_t left = count < 0 ? UINT64_MAX : static_cast<uint64_t>(count);
  const auto append = [&](std::string_view part) {
    if (out.size() + part.size() > out.capacity()) ReserveBytes(in, static_cast<int64_t>(out.size() + part.size()));
    out += part;
  };
  in.budget().Step(s.size() / 16);
  if (from.empty()) {  // between all characters
    size_t at = 0;
    while (left > 0) {
      --left;
      in.budget().Step(1 + to.size() / 64);
      append(to);
      if (at >= s.size()) return out;
      const size_t start = at;
      DecodeAt(s, at);
      append(s.substr(start, at - start));
    }
    append(s.substr(at));
    return out;
  }
  size_t at = 0;
  while (left > 0) {
    const size_t found = s.find(from, at);
    if (found == std::string_view::npos) break;
    --left;
    in.budget().Step(1 + to.size() / 64);
    append(s.substr(at, found - at));
    append(to);
    at = found + from.size();
  }
  append(s.substr(at));
  return out;
}

namespace {

bool IsMarkup(const Value& v) { return v.As<StringObj>().markup; }
Value Like(Interp& in, const Value& self, std::string_view s) { return in.Str(std::string(s), IsMarkup(self)); }

std::string TextArgument(const Value& v, std::string_view what) {
  if (v.IsString()) return v.text();
  Throw(Err::kType, std::string(what) + " must be str, not " + std::string(TypeName(v)));
}
// An argument that Markup's methods escape.
std::string Escaped(Interp& in, const Value& self, const Value& v, std::string_view what) {
  if (IsMarkup(self)) return Escape(in, v).text();
  return TextArgument(v, what);
}

template <std::string (*kMap)(std::string_view)>
Value Map(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "str method", {}, 0);
  in.budget().Step(self.text().size() / 8);
  return Like(in, self, kMap(self.text()));
}

template <bool kLeft, bool kRight>
Value StripMethod(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "strip", {""}, 0);
  const std::string& s = self.text();
  if (!b.Has(0) || b.Get(0).IsNone()) return Like(in, self, Strip(s, kLeft, kRight));
  const std::string chars = TextArgument(b.Get(0), "strip arg");
  in.budget().Step(s.size() * (chars.size() / 64));
  return Like(in, self, Strip(s, chars, kLeft, kRight));
}

// ---- split

std::vector<std::string_view> SplitSpace(std::string_view s, uint64_t limit) {
  std::vector<std::string_view> parts;
  while (true) {
    s = Strip(s, true, false);
    if (s.empty()) return parts;
    if (parts.size() == limit) {
      parts.push_back(s);
      return parts;
    }
    size_t end = 0;
    while (end < s.size()) {
      size_t next = end;
      if (IsSpace(DecodeAt(s, next))) break;
      end = next;
    }
    parts.push_back(s.substr(0, end));
    s.remove_prefix(end);
  }
}

std::vector<std::string_view> SplitSpaceRight(std::string_view s, uint64_t limit) {
  std::vector<std::string_view> parts;
  while (true) {
    s = Strip(s, false, true);
    if (s.empty()) break;
    if (parts.size() == limit) {
      parts.push_back(s);
      break;
    }
    size_t start = s.size();
    while (start > 0) {
      const size_t previous = PreviousStart(s, start);
      size_t at = previous;
      if (IsSpace(DecodeAt(s, at))) break;
      start = previous;
    }
    parts.push_back(s.substr(start));
    s = s.substr(0, start);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> SplitBy(std::string_view s, std::string_view separator, uint64_t limit, bool from_right) {
  std::vector<std::string_view> parts;
  if (from_right) {
    while (parts.size() < limit && s.size() >= separator.size()) {
      const size_t found = s.rfind(separator);
      if (found == std::string_view::npos) break;
      parts.push_back(s.substr(found + separator.size()));
      s = s.substr(0, found);
    }
    parts.push_back(s);
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  while (parts.size() < limit) {
    const size_t found = s.find(separator);
    if (found == std::string_view::npos) break;
    parts.push_back(s.substr(0, found));
    s.remove_prefix(found + separator.size());
  }
  parts.push_back(s);
  return parts;
}

Value ToParts(Interp& in, const Value& self, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string_view part : parts) items.push_back(Like(in, self, part));
  return in.MakeList(std::move(items));
}

template <bool kRight>
Value Split(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "split", {"sep", "maxsplit"}, 0);
  const int64_t max = b.Has(1) ? ToIndex(b.Get(1), "maxsplit") : -1;
  const uint64_t limit = max < 0 ? UINT64_MAX : static_cast<uint64_t>(max);
  const std::string& s = self.text();
  in.budget().Step(s.size() / 16);
  if (!b.Has(0) || b.Get(0).IsNone())
    return ToParts(in, self, kRight ? SplitSpaceRight(s, limit) : SplitSpace(s, limit));
  const std::string separator = TextArgument(b.Get(0), "sep");
  if (separator.empty()) Throw(Err::kValue, "empty separator");
  return ToParts(in, self, SplitBy(s, separator, limit, kRight));
}

Value SplitLinesMethod(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "splitlines", {"keepends"}, 0);
  in.budget().Step(self.text().size() / 16);
  return ToParts(in, self, SplitLines(self.text(), b.Flag(0, false)));
}

template <bool kRight>
Value Partition(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "partition", {""}, 1);
  const std::string separator = TextArgument(b.Get(0), "sep");
  if (separator.empty()) Throw(Err::kValue, "empty separator");
  const std::string& s = self.text();
  const size_t found = kRight ? s.rfind(separator) : s.find(separator);
  std::vector<Value> parts;
  if (found == std::string::npos) {
    const Value empty = Like(in, self, "");
    parts = kRight ? std::vector<Value>{empty, empty, self} : std::vector<Value>{self, empty, empty};
  } else {
    parts = {Like(in, self, s.substr(0, found)), Like(in, self, separator),
             Like(in, self, s.substr(found + separator.size()))};
  }
  return in.heap().Tuple(std::move(parts));
}

// ---- others

Value Join(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "join", {""}, 1);
  std::string out;
  size_t index = 0;
  Iter it(in, b.Get(0));
  for (Value item; it.Next(item); ++index) {
    if (!item.IsString() && !IsMarkup(self)) {
      Throw(Err::kType, "sequence item " + std::to_string(index) + ": expected str instance, " +
                            std::string(TypeName(item)) + " found");
    }
    if (index > 0) out += self.text();
    out += Escaped(in, self, item, "item");
    ReserveBytes(in, static_cast<int64_t>(out.size()));
    in.budget().Step(self.text().size() / 64);
  }
  return Like(in, self, out);
}

Value Replace(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "replace", {"", "", ""}, 2);
  const int64_t count = b.Has(2) ? ToIndex(b.Get(2), "count") : -1;
  return Like(in, self,
              ReplaceText(in, self.text(), TextArgument(b.Get(0), "replace() argument 1"),
                          Escaped(in, self, b.Get(1), "replace() argument 2"), count));
}

template <char kSide>
Value JustifyMethod(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "center", {"", ""}, 1);
  return Like(in, self, Justify(in, self, ToIndex(b.Get(0), "width"), b.Get(1), kSide));
}

Value ZFill(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "zfill", {""}, 1);
  std::string s = Justify(in, self, ToIndex(b.Get(0), "width"), in.Str("0"), 'r');
  const std::string& original = self.text();
  if (s.size() > original.size() && !original.empty() && (original[0] == '+' || original[0] == '-')) {
    std::swap(s[0], s[s.size() - original.size()]);
  }
  return Like(in, self, s);
}

Value ExpandTabs(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "expandtabs", {"tabsize"}, 0);
  const int64_t size = b.Has(0) ? ToIndex(b.Get(0), "tabsize") : 8;
  std::string out;
  int64_t column = 0;
  const std::string& s = self.text();
  for (size_t at = 0; at < s.size();) {
    const size_t start = at;
    const char32_t c = DecodeAt(s, at);
    if (c == '\t') {
      if (size <= 0) continue;
      const int64_t pad = size - column % size;
      ReserveBytes(in, static_cast<int64_t>(out.size()) + pad);
      in.budget().Step(static_cast<uint64_t>(pad) / 16);
      out.append(static_cast<size_t>(pad), ' ');
      column += pad;
      continue;
    }
    out.append(s, start, at - start);
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return Like(in, self, out);
}

template <bool kPrefix>
Value RemoveAffix(Interp& in, const Value& self, Args& args) {
  const Bound b(args, "removeprefix", {""}, 1);
  const std::string affix = TextArgument(b.Get(0), "argument");
  std::string_view s = self.text();
  if (kPrefix && s.starts_with(affix)) s.remove_prefix(affix.size());
  if (!kPrefix && s.ends_with(affix)) s.remove_suffix(affix.size());
  return Like(in, self, s);
}

Value Format(Interp& in, const Value& self, Args& args) {
  return Like(in, self, FormatMethod(in, self.text(), args, nullptr, IsMarkup(self)));
}
Value FormatMap(Interp& in, const Value& self, Args& args) {
  if (!args.named.empty() || args.positional.size() != 1) Throw(Err::kType, "format_map() takes exactly one argument");
  const Value mapping = args.positional[0];
  Args none;
  return Like(in, self, FormatMethod(in, self.text(), none, &mapping, IsMarkup(self)));
}

constexpr NamedMethod kMethods[] = {
    {"capitalize", Map<Capitalize>},
    {"casefold", Map<CaseFold>},
    {"center", JustifyMethod<'c'>},
    {"expandtabs", ExpandTabs},
    {"format", Format},
    {"format_map", FormatMap},
    {"join", Join},
    {"ljust", JustifyMethod<'l'>},
    {"lower", Map<ToLower>},
    {"lstrip", StripMethod<true, false>},
    {"partition", Partition<false>},
    {"removeprefix", RemoveAffix<true>},
    {"removesuffix", RemoveAffix<false>},
    {"replace", Replace},
    {"rjust", JustifyMethod<'r'>},
    {"rpartition", Partition<true>},
    {"rsplit", Split<true>},
    {"rstrip", StripMethod<false, true>},
    {"split", Split<false>},
    {"splitlines", SplitLinesMethod},
    {"strip", StripMethod<true, true>},
    {"swapcase", Map<SwapCase>},
    {"title", Map<ToTitle>},
    {"upper", Map<ToUpper>},
    {"zfill", ZFill},
};

}  // namespace

std::span<const NamedMethod> StringMethods() { return kMethods; }

}  // namespace ridge::text::jinja
