// Template source to tokens: trim_blocks and lstrip_blocks as transformers sets them, `-` and `+` controls, raw, comments.
//
//   std::vector<Token> tokens = Lex("{{ 1 + x }}");   // kVariableBegin kInteger kOperator("+") kName("x") kVariableEnd kEof
//
// Guarantees: throws JinjaError (kSyntax, with the line) where jinja2's lexer raises; the last token is kEof.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ridge::text::jinja {

enum class Tok : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEof,
};

struct Token {
  Tok type = Tok::kEof;
  int line = 1;
  std::string text;  // data, name, decoded string, operator
  int64_t integer = 0;
  double floating = 0;

  bool IsOperator(std::string_view op) const { return type == Tok::kOperator && text == op; }
  bool IsName(std::string_view name) const { return type == Tok::kName && text == name; }
};

std::vector<Token> Lex(std::string_view source);
std::string Describe(const Token& token);  // for messages

}  // namespace ridge::text::jinja
