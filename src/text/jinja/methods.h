// Python's methods of str, list, dict and the rest, as a template reaches them: value.name(...).
//
//   Value strip = Attribute(in, text, "strip");   // missing: no such attribute (python.h)
//
// Guarantees: what the immutable sandbox forbids (append, pop, update, __class__ …) comes back as an undefined value that raises.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "text/jinja/interp.h"

namespace ridge::text::jinja {

using Method = Value (*)(Interp& in, const Value& self, Args& args);
struct NamedMethod {
  std::string_view name;
  Method method;
};

std::span<const NamedMethod> StringMethods();  // methods_string.cc: transforming
std::span<const NamedMethod> StringQueries();  // methods_query.cc: searching and asking

// Shared with the filters.
void ReserveBytes(Interp& in, int64_t bytes);  // throws kLimit where that much cannot be had
std::vector<std::string_view> SplitLines(std::string_view s, bool keep_ends);
std::string Justify(Interp& in, const Value& text, int64_t width, const Value& fill, char side);  // side: l, r, c
std::string ReplaceText(Interp& in, std::string_view s, std::string_view from, std::string_view to, int64_t count);

}  // namespace ridge::text::jinja
