// Filters that make text.
#include <algorithm>
#include <charconv>

#include "text/jinja/builtins.h"
#include "text/jinja/methods.h"
#include "text/jinja/unicode.h"

namespace ridge::text::jinja {
namespace {

bool IsMarkup(const Value& v) { return v.IsString() && v.As<StringObj>().markup; }
Value Like(Interp& in, const Value& soft, std::string s) { return in.Str(std::move(s), IsMarkup(soft)); }

template <std::string (*kMap)(std::string_view)>
Value Map(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "filter", {}, 0);
  const Value soft = Soft(in, v);
  in.budget().Step(soft.text().size() / 8);
  return Like(in, soft, kMap(soft.text()));
}

// jinja2's title splits at more places than Python's: after - ( { [ < and whitespace.
std::string TitleWords(std::string_view s) {
  const auto breaks = [](char32_t c) { return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<'; };
  std::string out;
  for (size_t at = 0; at < s.size();) {
    size_t end = at;
    while (end < s.size()) {
      size_t next = end;
      if (breaks(DecodeAt(s, next))) break;
      end = next;
    }
    if (end > at) {
      size_t second = at;
      DecodeAt(s, second);
      out += ToUpper(s.substr(at, second - at)) + ToLower(s.substr(second, end - second));
      at = end;
    }
    while (at < s.size()) {
      size_t next = at;
      if (!breaks(DecodeAt(s, next))) break;
      out += s.substr(at, next - at);
      at = next;
    }
  }
  return out;
}

Value FilterString(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "string", {}, 0);
  return Soft(in, v);
}
Value FilterSafe(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "safe", {}, 0);
  return in.Str(ToStr(in, v), true);
}
Value FilterEscape(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "escape", {}, 0);
  return Escape(in, v);
}
Value FilterForceEscape(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "forceescape", {}, 0);
  return in.Str(EscapeHtml(ToStr(in, v)), true);
}

Value FilterTrim(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "trim", {"chars"}, 0);
  const Value soft = Soft(in, v);
  const std::string& s = soft.text();
  if (!b.Has(0) || b.Get(0).IsNone()) return Like(in, soft, std::string(Strip(s, true, true)));
  if (!b.Get(0).IsString()) Throw(Err::kType, "strip arg must be None or str");
  in.budget().Step(s.size() * (b.Get(0).text().size() / 64));
  return Like(in, soft, std::string(Strip(s, b.Get(0).text(), true, true)));
}

Value FilterReplace(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "replace", {"old", "new", "count"}, 2);
  const int64_t count = b.Has(2) && !b.Get(2).IsNone() ? ToIndex(b.Get(2), "count") : -1;
  return in.Str(ReplaceText(in, ToStr(in, v), ToStr(in, b.Get(0)), ToStr(in, b.Get(1)), count));
}

Value FilterCenter(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "center", {"width"}, 0);
  const Value soft = Soft(in, v);
  return Like(in, soft, Justify(in, soft, b.Has(0) ? ToIndex(b.Get(0), "width") : 80, {}, 'c'));
}

Value FilterFormat(Interp& in, const Value& v, Args& args) {
  if (!args.positional.empty() && !args.named.empty())
    Throw(Err::kValue, "can't handle positional and keyword arguments at the same time");
  Value values;
  if (args.named.empty()) {
    values = in.heap().Tuple(args.positional);
  } else {
    Table table;
    for (auto& [name, value] : args.named) table.Set(in.Str(name), value, in.budget());
    values = in.heap().Dict(std::move(table));
  }
  return Binary(in, ExprKind::kMod, Soft(in, v), values);
}

const Value& NeedText(const Value& v, std::string_view filter) {
  if (v.IsUndefined()) ThrowUndefined(v);
  if (!v.IsString()) Throw(Err::kType, std::string(filter) + " needs a string, not " + std::string(TypeName(v)));
  return v;
}

Value FilterIndent(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "indent", {"width", "first", "blank"}, 0);
  NeedText(v, "indent");
  std::string pad = "    ";
  if (b.Has(0) && b.Get(0).IsString()) {
    pad = b.Get(0).text();
  } else if (b.Has(0)) {
    const int64_t width = ToIndex(b.Get(0), "width");
    ReserveBytes(in, width);
    pad.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool blank = b.Flag(2, false);
  const std::string text = v.text() + "\n";
  std::string out = b.Flag(1, false) ? pad : "";
  bool first = true;
  in.budget().Step(text.size() / 16);
  for (std::string_view line : SplitLines(text, false)) {
    if (!first) out += '\n';
    if (!first && (blank || !line.empty())) out += pad;
    out += line;
    first = false;
    in.budget().Step(1 + pad.size() / 64);
    ReserveBytes(in, static_cast<int64_t>(out.size()));
  }
  return Like(in, v, std::move(out));
}

Value FilterTruncate(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "truncate", {"length", "killwords", "end", "leeway"}, 0);
  const int64_t length = b.Has(0) ? ToIndex(b.Get(0), "length") : 255;
  const Value end = b.Or(2, in.Str("..."));
  const int64_t leeway = b.Has(3) && !b.Get(3).IsNone() ? ToIndex(b.Get(3), "leeway") : 5;
  const int64_t end_length = Length(end);
  if (length < end_length)
    Throw(Err::kValue, "expected length >= " + std::to_string(end_length) + ", got " + std::to_string(length));
  if (leeway < 0) Throw(Err::kValue, "expected leeway >= 0, got " + std::to_string(leeway));
  if (Length(v) - leeway <= length) return v;
  const Value head = Slice(in, NeedText(v, "truncate"), {}, Value::Int(length - end_length), {});
  if (b.Flag(1, false)) return Binary(in, ExprKind::kAdd, head, end);
  const size_t space = head.text().rfind(' ');
  const Value words = space == std::string::npos ? head : Like(in, head, head.text().substr(0, space));
  return Binary(in, ExprKind::kAdd, words, end);
}

Value FilterWordCount(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "wordcount", {}, 0);
  const Value soft = Soft(in, v);
  int64_t n = 0;
  bool inside = false;
  const std::string& s = soft.text();
  in.budget().Step(s.size() / 16);
  for (size_t at = 0; at < s.size();) {
    const bool word = IsWord(DecodeAt(s, at));
    n += word && !inside;
    inside = word;
  }
  return Value::Int(n);
}

// textwrap's chunks of a line: runs of whitespace, words, and words cut after a hyphen between letters.
std::vector<std::u32string> Chunks(const std::vector<char32_t>& s, bool hyphens) {
  std::vector<std::u32string> out;
  const auto space = [](char32_t c) { return c == ' ' || (c >= 9 && c <= 13); };
  const auto letter = [](char32_t c) { return IsWord(c) && !(c >= '0' && c <= '9'); };
  for (size_t i = 0; i < s.size();) {
    std::u32string chunk;
    const bool blank = space(s[i]);
    while (i < s.size() && space(s[i]) == blank) {
      chunk += s[i++];
      const size_t n = chunk.size();
      if (!blank && hyphens && chunk.back() == '-' && n > 2 && letter(chunk[n - 2]) && IsWord(chunk[n - 3]) &&
          i + 1 < s.size() && IsWord(s[i]) && letter(s[i + 1]))
        break;
    }
    out.push_back(std::move(chunk));
  }
  return out;
}

std::vector<std::string> WrapLine(std::string_view line, size_t width, bool break_long, bool hyphens) {
  std::vector<std::u32string> chunks = Chunks(ToCodePoints(line), hyphens);
  const auto blank = [](const std::u32string& c) { return std::all_of(c.begin(), c.end(), IsSpace); };
  std::reverse(chunks.begin(), chunks.end());
  std::vector<std::string> lines;
  while (!chunks.empty()) {
    std::vector<std::u32string> current;
    size_t used = 0;
    if (blank(chunks.back()) && !lines.empty()) chunks.pop_back();
    while (!chunks.empty() && used + chunks.back().size() <= width) {
      used += chunks.back().size();
      current.push_back(std::move(chunks.back()));
      chunks.pop_back();
    }
    if (!chunks.empty() && chunks.back().size() > width) {
      const size_t room = width - used;
      if (break_long) {
        size_t cut = room;
        const std::u32string& chunk = chunks.back();
        if (hyphens && chunk.size() > room) {
          const size_t hyphen = room == 0 ? std::u32string::npos : chunk.rfind(U'-', room - 1);
          if (hyphen != std::u32string::npos && hyphen > 0 &&
              std::any_of(chunk.begin(), chunk.begin() + static_cast<ptrdiff_t>(hyphen),
                          [](char32_t c) { return c != '-'; }))
            cut = hyphen + 1;
        }
        current.push_back(chunk.substr(0, cut));
        chunks.back().erase(0, cut);
      } else if (current.empty()) {
        current.push_back(std::move(chunks.back()));
        chunks.pop_back();
      }
    }
    if (!current.empty() && blank(current.back())) current.pop_back();
    if (current.empty()) continue;
    std::string text;
    for (const std::u32string& chunk : current) {
      for (char32_t c : chunk) AppendUtf8(text, c);
    }
    lines.push_back(std::move(text));
  }
  return lines;
}

Value FilterWordWrap(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "wordwrap", {"width", "break_long_words", "wrapstring", "break_on_hyphens"}, 0);
  const int64_t width = b.Has(0) ? ToIndex(b.Get(0), "width") : 79;
  NeedText(v, "wordwrap");
  const std::string joint = b.Has(2) && !b.Get(2).IsNone() ? NeedText(b.Get(2), "wrapstring").text() : "\n";
  in.budget().Step(v.text().size());
  std::string out;
  bool first_line = true;
  for (std::string_view line : SplitLines(v.text(), false)) {
    if (width <= 0 && !line.empty()) Throw(Err::kValue, "invalid width " + std::to_string(width) + " (must be > 0)");
    if (!first_line) out += joint;
    first_line = false;
    bool first = true;
    for (const std::string& part :
         WrapLine(line, static_cast<size_t>(std::max<int64_t>(width, 1)), b.Flag(1, true), b.Flag(3, true))) {
      if (!first) out += joint;
      first = false;
      out += part;
      in.budget().Step(1 + joint.size() / 64);
      ReserveBytes(in, static_cast<int64_t>(out.size()));
    }
  }
  return in.Str(std::move(out));
}

std::string Quote(Interp& in, const Value& v, bool for_query) {
  std::string out;
  for (unsigned char c : ToStr(in, v)) {
    const bool plain =
        (c < 0x80 && std::isalnum(c)) || c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !for_query);
    if (plain) {
      out += static_cast<char>(c);
    } else if (c == ' ' && for_query) {
      out += '+';
    } else {
      char code[4];
      std::snprintf(code, sizeof code, "%%%02X", c);
      out += code;
    }
  }
  return out;
}

Value FilterUrlEncode(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "urlencode", {}, 0);
  if (v.IsString() || !IsIterable(v)) return in.Str(Quote(in, v, false));
  std::string out;
  const Value pairs = v.Is(Kind::kDict) ? in.heap().View(v, ViewObj::What::kItems) : v;
  Iter it(in, pairs);
  for (Value pair; it.Next(pair);) {
    const std::vector<Value> parts = ToVector(in, pair);
    if (parts.size() != 2) Throw(Err::kValue, "urlencode needs pairs");
    if (!out.empty()) out += '&';
    out += Quote(in, parts[0], true) + "=" + Quote(in, parts[1], true);
    ReserveBytes(in, static_cast<int64_t>(out.size()));
  }
  return in.Str(std::move(out));
}

Value FilterXmlAttr(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "xmlattr", {"autospace"}, 0);
  if (v.IsUndefined()) ThrowUndefined(v);
  if (!v.Is(Kind::kDict)) Throw(Err::kType, "'" + std::string(TypeName(v)) + "' object has no attribute 'items'");
  std::string out;
  for (const auto& [key, value] : v.As<DictObj>().table.items()) {
    if (value.IsNone() || value.IsUndefined()) continue;
    if (NeedText(key, "xmlattr").text().find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      Throw(Err::kValue, "Invalid character in attribute name: " + ReprString(key.text()));
    }
    if (!out.empty()) out += ' ';
    out += Escape(in, key).text() + "=\"" + Escape(in, value).text() + "\"";
    ReserveBytes(in, static_cast<int64_t>(out.size()));
  }
  if (b.Flag(0, true) && !out.empty()) out.insert(out.begin(), ' ');
  return in.Str(std::move(out));
}

// The entities that escape() writes and the commonest others; html.unescape knows 2,231.
std::string UnescapeHtml(std::string_view s) {
  static constexpr std::pair<std::string_view, std::string_view> kNamed[] = {
      {"amp;", "&"},         {"lt;", "<"},          {"gt;", ">"},           {"quot;", "\""},       {"apos;", "'"},
      {"nbsp;", "\xC2\xA0"}, {"copy;", "\xC2\xA9"}, {"raquo;", "\xC2\xBB"}, {"laquo;", "\xC2\xAB"}};
  std::string out;
  for (size_t i = 0; i < s.size();) {
    if (s[i] != '&') {
      out += s[i++];
      continue;
    }
    const std::string_view rest = s.substr(i + 1);
    const auto* named =
        std::find_if(std::begin(kNamed), std::end(kNamed), [&](const auto& n) { return rest.starts_with(n.first); });
    if (named != std::end(kNamed)) {
      out += named->second;
      i += 1 + named->first.size();
      continue;
    }
    const bool hex = rest.starts_with("#x") || rest.starts_with("#X");
    uint32_t code = 0;
    const char* begin = rest.data() + std::min<size_t>(hex ? 2 : 1, rest.size());
    const auto parsed = std::from_chars(begin, rest.data() + rest.size(), code, hex ? 16 : 10);
    const bool valid = code > 31 && code < 0x110000 && !(code >= 0xD800 && code < 0xE000);
    if (rest.starts_with("#") && parsed.ec == std::errc() && parsed.ptr < rest.data() + rest.size() &&
        *parsed.ptr == ';' && valid) {
      AppendUtf8(out, code);
      i += 1 + static_cast<size_t>(parsed.ptr - rest.data()) + 1;
    } else {
      out += s[i++];
    }
  }
  return out;
}

Value FilterStripTags(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "striptags", {}, 0);
  const std::string s = ToStr(in, v);
  std::string kept;
  size_t at = 0;
  in.budget().Step(s.size() / 8);
  while (true) {
    const size_t open = s.find('<', at);
    if (open == std::string::npos) break;
    const bool comment = s.compare(open, 4, "<!--") == 0;
    const size_t close = comment ? s.find("-->", open + 4) : s.find('>', open);
    if (close == std::string::npos) break;
    kept += s.substr(at, open - at);
    at = close + (comment ? 3 : 1);
  }
  kept += s.substr(at);
  std::string collapsed;
  std::string_view rest = Strip(kept, true, true);
  for (size_t i = 0; i < rest.size();) {
    size_t next = i;
    if (IsSpace(DecodeAt(rest, next))) {
      collapsed += ' ';
      rest = Strip(rest.substr(i), true, false);
      i = 0;
    } else {
      collapsed += rest.substr(i, next - i);
      i = next;
    }
  }
  return in.Str(UnescapeHtml(collapsed));
}

bool HoldsDict(const Value& v) {  // pprint sorts dicts, repr does not
  return v.Is(Kind::kDict) || (v.IsSequence() && std::any_of(v.items().begin(), v.items().end(), HoldsDict));
}

Value FilterPprint(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "pprint", {}, 0);
  std::string text = Repr(in, v);
  if (CountCodePoints(text) > 80 || HoldsDict(v))
    Throw(Err::kUnsupported, "the filter 'pprint' is supported for values of one line without dicts only");
  return in.Str(std::move(text));
}

Value FilterToJson(Interp& in, const Value& v, Args& args) {
  const Bound b(args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  return in.Str(ToJson(in, v, b.Flag(0, false), b.Or(1, Value::None()), b.Or(2, Value::None()), b.Flag(3, false)));
}

Value FilterUrlize(Interp&, const Value&, Args&) {
  Throw(Err::kUnsupported, "the filter 'urlize' is not supported: chat templates render plain text");
}

constexpr NamedFilter kFilters[] = {
    {"tojson", FilterToJson},
    {"trim", FilterTrim},
    {"string", FilterString},
    {"safe", FilterSafe},
    {"lower", Map<ToLower>},
    {"upper", Map<ToUpper>},
    {"title", Map<TitleWords>},
    {"capitalize", Map<Capitalize>},
    {"replace", FilterReplace},
    {"indent", FilterIndent},
    {"format", FilterFormat},
    {"escape", FilterEscape},
    {"e", FilterEscape},
    {"forceescape", FilterForceEscape},
    {"center", FilterCenter},
    {"truncate", FilterTruncate},
    {"wordcount", FilterWordCount},
    {"wordwrap", FilterWordWrap},
    {"urlencode", FilterUrlEncode},
    {"xmlattr", FilterXmlAttr},
    {"striptags", FilterStripTags},
    {"pprint", FilterPprint},
    {"urlize", FilterUrlize},
};

}  // namespace

std::span<const NamedFilter> TextFilters() { return kFilters; }

}  // namespace ridge::text::jinja
