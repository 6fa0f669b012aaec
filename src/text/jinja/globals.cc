// The global functions of transformers' template environment.
#include <cstring>
#include <ctime>

#include "text/jinja/interp.h"
#include "text/utf8.h"

namespace ridge::text::jinja {
namespace {

// dict(mapping or pairs, **more): the arguments of dict and namespace.
Table MakeTable(Interp& in, Args& args, std::string_view function) {
  if (args.positional.size() > 1)
    Throw(Err::kType,
          std::string(function) + " expected at most 1 argument, got " + std::to_string(args.positional.size()));
  Table table;
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.IsUndefined()) ThrowUndefined(source);
    if (source.Is(Kind::kDict)) {
      for (const auto& [key, value] : source.As<DictObj>().table.items()) table.Set(key, value, in.budget());
    } else {
      Iter it(in, source);
      for (Value item; it.Next(item);) {
        std::vector<Value> pair = ToVector(in, item);
        if (pair.size() != 2)
          Throw(Err::kValue,
                "dictionary update sequence element has length " + std::to_string(pair.size()) + "; 2 is required");
        table.Set(pair[0], pair[1], in.budget());
      }
    }
  }
  for (auto& [name, value] : args.named) table.Set(in.Str(name), std::move(value), in.budget());
  return table;
}

Value Range(Interp& in, const Value&, Args& args) {
  if (!args.named.empty()) Throw(Err::kType, "range() takes no keyword arguments");
  const size_t n = args.positional.size();
  if (n < 1 || n > 3) Throw(Err::kType, "range expected 1 to 3 arguments, got " + std::to_string(n));
  const auto at = [&](size_t i) { return ToIndex(args.positional[i], "range() argument"); };
  return in.heap().Range(n == 1 ? 0 : at(0), n == 1 ? at(0) : at(1), n == 3 ? at(2) : 1);
}

Value Dict(Interp& in, const Value&, Args& args) { return in.heap().Dict(MakeTable(in, args, "dict")); }
Value Namespace(Interp& in, const Value&, Args& args) { return in.heap().Namespace(MakeTable(in, args, "namespace")); }

Value Cycler(Interp& in, const Value&, Args& args) {
  if (!args.named.empty()) Throw(Err::kType, "cycler() takes no keyword arguments");
  if (args.positional.empty()) Throw(Err::kRuntime, "at least one item has to be provided");
  auto* cycler = in.heap().New<CyclerObj>(0);
  Value v = Value::Of(Kind::kCycler, cycler);
  Value items = in.heap().Tuple(args.positional);
  Heap::Nest(*cycler, items);
  cycler->items = std::move(items);
  return v;
}

Value Joiner(Interp& in, const Value&, Args& args) {
  const Bound b(args, "joiner", {"sep"}, 0);
  auto* joiner = in.heap().New<JoinerObj>(0);
  Value v = Value::Of(Kind::kJoiner, joiner);
  joiner->separator = b.Or(0, in.Str(", "));
  Heap::Nest(*joiner, joiner->separator);
  return v;
}

Value RaiseException(Interp& in, const Value&, Args& args) {
  const Bound b(args, "raise_exception", {"message"}, 1);
  Throw(Err::kRuntime, ToStr(in, b.Get(0)));
}

// datetime.strftime of a time without a zone: %f is zero, %z and %Z are empty, the rest is the C library's in the C locale.
Value StrftimeNow(Interp& in, const Value&, Args& args) {
  const Bound b(args, "strftime_now", {"format"}, 1);
  if (!b.Get(0).IsString())
    Throw(Err::kType, "strftime() argument 1 must be str, not " + std::string(TypeName(b.Get(0))));
  const std::time_t now = in.now() ? static_cast<std::time_t>(*in.now()) : std::time(nullptr);
  std::tm parts{};
  const bool ok = in.now() ? gmtime_r(&now, &parts) != nullptr : localtime_r(&now, &parts) != nullptr;
  if (!ok) Throw(Err::kOverflow, "the time is out of range");
  const std::string& source = b.Get(0).text();
  std::string format;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '%' || i + 1 == source.size()) {
      format += source[i];
      continue;
    }
    const char c = source[++i];
    if (c == 'f') {
      format += "000000";
    } else if (c != 'z' && c != 'Z') {
      format += '%';
      format += c;
    }
  }
  if (format.find('\0') != std::string::npos) Throw(Err::kValue, "embedded null character");
  if (format.empty()) return in.Str("");
  // A leading character tells an empty result from a buffer that is too small.
  format.insert(format.begin(), 'x');
  std::string out(format.size() + 256, '\0');
  while (out.size() < (size_t{1} << 20)) {
    in.budget().Step(out.size() / 64);
    if (const size_t n = std::strftime(out.data(), out.size(), format.c_str(), &parts); n > 0) {
      std::string text = out.substr(1, n - 1);
      if (FirstInvalidUtf8(text)) Throw(Err::kValue, "strftime_now gave text that is not UTF-8");
      return in.Str(std::move(text));
    }
    out.resize(out.size() * 4);
  }
  Throw(Err::kLimit, "the output is too long");
}

Value Lipsum(Interp&, const Value&, Args&) {
  Throw(Err::kUnsupported, "lipsum() is not supported: a prompt must be reproducible");
}

}  // namespace

void AddGlobals(Interp& in, Table& variables) {
  const auto add = [&](const char* name, Value (*function)(Interp&, const Value&, Args&)) {
    variables.Set(in.Str(name), in.heap().Function(name, function), in.budget());
  };
  add("range", Range);
  add("dict", Dict);
  add("namespace", Namespace);
  add("cycler", Cycler);
  add("joiner", Joiner);
  add("lipsum", Lipsum);
  add("raise_exception", RaiseException);
  add("strftime_now", StrftimeNow);
}

}  // namespace ridge::text::jinja
