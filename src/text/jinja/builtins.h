// The tables of filters and tests that jinja2 has (filters*.cc, tests.cc).
//
//   if (FilterFunction f = FindFilter("trim")) Value v = f(in, value, args);
//
// Guarantees: the names are exactly jinja2 3.1's; a filter throws JinjaError where Python's raises.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/interp.h"

namespace ridge::text::jinja {

using FilterFunction = Value (*)(Interp& in, const Value& value, Args& args);
using TestFunction = bool (*)(Interp& in, const Value& value, Args& args);

struct NamedFilter {
  std::string_view name;
  FilterFunction function;
};

FilterFunction FindFilter(std::string_view name);  // null: no such filter
TestFunction FindTest(std::string_view name);

std::span<const NamedFilter> TextFilters();      // filters_text.cc
std::span<const NamedFilter> SequenceFilters();  // filters_sequence.cc
std::span<const NamedFilter> NumberFilters();    // filters_number.cc

}  // namespace ridge::text::jinja
