// POST /tokenize {"content", "add_special", "parse_special", "with_pieces"} -> {"tokens"}. Text is text: unless parse_special asks for it, what
// spells a control token gives no control token.
#include <fmt/format.h>

#include "base/quantity.h"
#include "server/api_error.h"
#include "server/fields.h"
#include "server/generation.h"
#include "server/routes.h"
#include "text/utf8.h"

namespace ridge::server {
namespace {

// Merging a text takes tens of times its bytes and seconds for each ten megabytes, and the pieces of a token take up to twelve times its bytes.
constexpr size_t kMostBytes = size_t{4} << 20;

Result<std::string> Run(const Context& context, const Request& request) {
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
  if (content && content->size() > kMostBytes)
    fields.Refuse("content", Count(content->size(), "byte"), fmt::format("at most {}", Count(kMostBytes, "byte")));
  RIDGE_RETURN_IF_ERROR(fields.Done());
  const text::Tokenizer& tokenizer = context.tokenizer();
  RIDGE_ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                         tokenizer.Encode(*content, {.add_special = add_special, .parse_special = parse_special}));
  // Written as it goes: a tree of values would take tens of times the text's bytes.
  std::string out = R"({"tokens":[)";
  for (const TokenId id : ids) {
    if (out.back() != '[') out += ',';
    if (!pieces) {
      out += std::to_string(id);
      continue;
    }
    const std::string_view piece = tokenizer.Piece(id);
    Json written = piece;
    if (text::FirstInvalidUtf8(piece)) {
      written = Json::array();
      for (const char c : piece) written.push_back(static_cast<unsigned char>(c));
    }
    out += R"({"id":)" + std::to_string(id) + R"(,"piece":)" + written.dump() + '}';
  }
  return out + "]}";
}

}  // namespace

Reply Tokenize(const Context& context, const Request& request) {
  Result<std::string> document = Run(context, request);
  if (!document) return ErrorReply(ToApi(document.error(), "content"));
  Reply reply;
  reply.response.body = std::move(*document);
  return reply;
}

}  // namespace ridge::server
