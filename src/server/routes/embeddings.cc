// POST /v1/embeddings: the request is checked in full; a model that gives no embeddings says so.
#include "server/api_error.h"
#include "server/fields.h"
#include "server/generation.h"
#include "server/prompts.h"
#include "server/routes.h"

namespace ridge::server {
namespace {

constexpr size_t kMaxInputs = 2048;  // OpenAI's

Status Check(const Context& context, const Request& request) {
  RIDGE_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body));
  Fields fields(body);
  ReadModel(fields, context);
  std::vector<Prompt> inputs;
  ReadPrompts(fields, "input", context, kMaxInputs, inputs);
  std::string format = "float", user;
  fields.Text("encoding_format", format);
  if (format != "float" && format != "base64") fields.Refuse("encoding_format", format, "float or base64");
  int64_t dimensions = 0;
  fields.Integer("dimensions", dimensions, 1, context.service->runtime().model().config().width);
  fields.Text("user", user);
  return fields.Done();
}

}  // namespace

Reply Embeddings(const Context& context, const Request& request) {
  if (const Status checked = Check(context, request); !checked) return ErrorReply(ToApi(checked.error(), "input"));
  return ErrorReply(
      {.message = "the model '" + context.model_id + "' gives no embeddings here: it is served for text generation",
       .param = "model",
       .code = "unsupported"});
}

}  // namespace ridge::server
