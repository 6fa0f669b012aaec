// json.dumps, as the trainers' tojson calls it.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/interp.h"
#include "text/jinja/methods.h"
#include "text/jinja/python.h"
#include "text/jinja/unicode.h"

namespace ridge::text::jinja {
namespace {

class Dumper {
 public:
  Dumper(Interp& in, bool ensure_ascii, const Value& indent, const Value& separators, bool sort_keys)
      : in_(in), ensure_ascii_(ensure_ascii), sort_keys_(sort_keys) {
    if (!indent.IsNone()) {
      indented_ = true;
      item_separator_ = ",";
      if (indent.IsString()) {
        indent_ = indent.text();
      } else {
        const int64_t width = ToIndex(indent, "indent");
        ReserveBytes(in, width);
        indent_.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
      }
    }
    if (separators.IsNone()) return;
    const std::vector<Value> pair = ToVector(in, separators);
    if (pair.size() != 2 || !pair[0].IsString() || !pair[1].IsString())
      Throw(Err::kValue, "separators must be two strings");
    item_separator_ = pair[0].text();
    key_separator_ = pair[1].text();
  }

  std::string Run(const Value& v) {
    Dump(v, 0);
    return std::move(out_);
  }

 private:
  void String(std::string_view s) {
    in_.budget().Step(s.size() / 16);
    out_ += '"';
    for (size_t at = 0; at < s.size();) {
      const size_t start = at;
      const char32_t c = DecodeAt(s, at);
      switch (c) {
        case '"': out_ += "\\\""; continue;
        case '\\': out_ += "\\\\"; continue;
        case '\n': out_ += "\\n"; continue;
        case '\r': out_ += "\\r"; continue;
        case '\t': out_ += "\\t"; continue;
        case '\b': out_ += "\\b"; continue;
        case '\f': out_ += "\\f"; continue;
        default: break;
      }
      if (c >= 0x20 && (!ensure_ascii_ || c < 0x7F)) {
        out_ += s.substr(start, at - start);
      } else if (c < 0x10000) {
        Escape(c);
      } else {
        Escape(0xD800 + ((c - 0x10000) >> 10));
        Escape(0xDC00 + ((c - 0x10000) & 0x3FF));
      }
    }
    out_ += '"';
  }
  void Escape(char32_t unit) {
    char code[16];
    std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(unit));
    out_ += code;
  }

  static std::string Number(const Value& v) {
    if (v.Is(Kind::kInt)) return std::to_string(v.integer());
    const double d = v.floating();
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return ReprFloat(d);
  }

  void NewLine(int level) {
    if (!indented_) return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += indent_;
    in_.budget().Step(static_cast<uint64_t>(level) * (1 + indent_.size() / 64));
  }

  void Key(const Value& key) {
    switch (key.kind()) {
      case Kind::kString: String(key.text()); return;
      case Kind::kBool: out_ += key.boolean() ? "\"true\"" : "\"false\""; return;
      case Kind::kNone: out_ += "\"null\""; return;
      case Kind::kInt:
      case Kind::kFloat: out_ += '"' + Number(key) + '"'; return;
      default: Throw(Err::kType, "keys must be str, int, float, bool or None, not " + std::string(TypeName(key)));
    }
  }

  void Object(const Table& table, int level) {
    if (table.size() == 0) {
      out_ += "{}";
      return;
    }
    std::vector<Table::Item> items = table.items();
    if (sort_keys_) {  // insertion by Python's order of keys, which refuses to compare unlike ones
      for (size_t i = 1; i < items.size(); ++i) Less(in_, items[i].first, items[i - 1].first);
      std::stable_sort(items.begin(), items.end(), [](const Table::Item& a, const Table::Item& b) {
        return a.first.IsString() && b.first.IsString()   ? a.first.text() < b.first.text()
               : a.first.IsNumber() && b.first.IsNumber() ? a.first.AsDouble() < b.first.AsDouble()
                                                          : false;
      });
    }
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : items) {
      if (!first) out_ += item_separator_;
      first = false;
      NewLine(level + 1);
      Key(key);
      out_ += key_separator_;
      Dump(value, level + 1);
    }
    NewLine(level);
    out_ += '}';
  }

  void Array(const std::vector<Value>& items, int level) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    bool first = true;
    for (const Value& item : items) {
      if (!first) out_ += item_separator_;
      first = false;
      NewLine(level + 1);
      Dump(item, level + 1);
    }
    NewLine(level);
    out_ += ']';
  }

  void Dump(const Value& v, int level) {
    in_.stack().Check();
    in_.budget().Step(1 + item_separator_.size() / 64 + key_separator_.size() / 64);
    ReserveBytes(in_, static_cast<int64_t>(out_.size()));
    switch (v.kind()) {
      case Kind::kNone: out_ += "null"; return;
      case Kind::kBool: out_ += v.boolean() ? "true" : "false"; return;
      case Kind::kInt:
      case Kind::kFloat: out_ += Number(v); return;
      case Kind::kString: String(v.text()); return;
      case Kind::kList:
      case Kind::kTuple: Array(v.items(), level); return;
      case Kind::kDict: Object(v.As<DictObj>().table, level); return;
      default: Throw(Err::kType, "Object of type " + std::string(TypeName(v)) + " is not JSON serializable");
    }
  }

  Interp& in_;
  bool ensure_ascii_, sort_keys_, indented_ = false;
  std::string indent_, item_separator_ = ", ", key_separator_ = ": ";
  std::string out_;
};

}  // namespace

std::string ToJson(Interp& in, const Value& v, bool ensure_ascii, const Value& indent, const Value& separators,
                   bool sort_keys) {
  return Dumper(in, ensure_ascii, indent, separators, sort_keys).Run(v);
}

}  // namespace ridge::text::jinja
