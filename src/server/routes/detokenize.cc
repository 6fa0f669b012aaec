// POST /detokenize {"tokens"} -> {"content"}.
#include <fmt/format.h>

#include "server/api_error.h"
#include "server/fields.h"
#include "server/generation.h"
#include "server/prompts.h"
#include "server/routes.h"
#include "text/utf8.h"

namespace ridge::server {
namespace {

Result<Json> Run(const Context& context, const Request& request) {
  RIDGE_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body));
  Fields fields(body);
  ReadModel(fields, context);
  std::vector<TokenId> ids;
  if (const Json* tokens = fields.Any("tokens")) {
    const Status read = ReadIds(*tokens, "tokens", static_cast<int64_t>(context.tokenizer().vocab_size()), ids);
    if (!read) fields.Refuse(read.error());
  } else {
    fields.Refuse("tokens", "nothing", "a list of token ids");
  }
  RIDGE_RETURN_IF_ERROR(fields.Done());
  return Json{{"content", text::ReplaceInvalidUtf8(context.tokenizer().Decode(ids, true))}};
}

}  // namespace

Reply Detokenize(const Context& context, const Request& request) {
  const Result<Json> document = Run(context, request);
  return document ? JsonReply(*document) : ErrorReply(ToApi(document.error(), "tokens"));
}

}  // namespace ridge::server
