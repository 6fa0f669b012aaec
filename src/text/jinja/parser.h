// Tokens to the tree, by jinja2's grammar.
//
//   Template tree = Parse(source, {.depth = 200, .stack_bytes = 2 << 20});
//
// Guarantees: throws JinjaError where jinja2 raises TemplateSyntaxError; the tree is at most `depth` deep.
#pragma once

#include <string_view>

#include "text/jinja/ast.h"

namespace ridge::text::jinja {

struct ParseLimits {
  int depth = 200;
  size_t stack_bytes = size_t{2} << 20;
};

Template Parse(std::string_view source, const ParseLimits& limits);  // names bound: ready to execute

// Binds every name to a slot (resolver.cc), as jinja2's compiler does, and refuses what that compiler refuses.
void Resolve(Template& tree, const ParseLimits& limits);
bool IsFilter(std::string_view name);  // filters.cc
bool IsTest(std::string_view name);    // tests.cc

}  // namespace ridge::text::jinja
