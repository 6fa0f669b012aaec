// POST /tokenize {"content", "add_special", "parse_special", "with_pieces"} -> {"tokens"}. Text is text: unless parse_special asks for it, what
// spells a control token gives no control token.
#include "server/api_error.h"
#include "server/fields.h"
#include "server/generation.h"
#include "server/routes.h"
#include "text/utf8.h"

namespace ridge::server {
namespace {

Result<Json> Run(const Context& context, const Request& request) {
  RIDGE_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body));
  Fields fields(body);
  ReadModel(fields, context);
  std::optional<std::string> content;
  bool add_special = false, parse_special = false, pieces = false;
  fields.Text("content", content);
  fields.Bool("add_special", add_special);
  fields.Bool("parse_special", parse_special);
  fields.Bool("with_pieces", pieces);
  if (!content) fields.Refuse("content", "nothing", "a string");
  RIDGE_RETURN_IF_ERROR(fields.Done());
  const text::Tokenizer& tokenizer = context.tokenizer();
  RIDGE_ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                         tokenizer.Encode(*content, {.add_special = add_special, .parse_special = parse_special}));
  if (!pieces) return Json{{"tokens", ids}};
  Json tokens = Json::array();
  for (const TokenId id : ids) {
    const std::string_view piece = tokenizer.Piece(id);
    Json bytes = Json::array();
    for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
    tokens.push_back({{"id", id}, {"piece", text::FirstInvalidUtf8(piece) ? bytes : Json(piece)}});
  }
  return Json{{"tokens", tokens}};
}

}  // namespace

Reply Tokenize(const Context& context, const Request& request) {
  const Result<Json> document = Run(context, request);
  return document ? JsonReply(*document) : ErrorReply(ToApi(document.error(), "content"));
}

}  // namespace ridge::server
