#include "server/routes.h"

#include <exception>
#include <new>

#include "server/api_error.h"

namespace ridge::server {
namespace {

enum class Needs { kNothing, kModel, kText };

struct Route {
  Method method;
  std::string_view path;
  Handler handler;
  Needs needs = Needs::kModel;
};

// One a line, so that two additions do not meet.
// clang-format off
constexpr Route kRoutes[] = {
    {Method::kGet, "/health", Health, Needs::kNothing},
    {Method::kGet, "/ready", Ready},
    {Method::kGet, "/metrics", Metrics},
    {Method::kGet, "/v1/models", Models},
    {Method::kPost, "/v1/chat/completions", ChatCompletions, Needs::kText},
    {Method::kPost, "/v1/completions", Completions, Needs::kText},
    {Method::kPost, "/v1/embeddings", Embeddings},
    {Method::kPost, "/tokenize", Tokenize},
    {Method::kPost, "/detokenize", Detokenize},
};
// clang-format on

Reply Find(const Context& context, const Request& request) {
  const Method method = request.method == Method::kHead ? Method::kGet : request.method;
  const Route* other = nullptr;
  for (const Route& route : kRoutes) {
    if (route.path != request.path) continue;
    other = &route;
    if (route.method != method) continue;
    if (route.needs != Needs::kNothing && !context.loaded())
      return ErrorReply({.status = 503, .message = "the model is being loaded", .type = "unavailable_error"});
    if (route.needs == Needs::kText && context.service == nullptr)
      return ErrorReply({.message = "the model '" + context.model_id + "' gives embeddings here, no text",
                         .param = "model",
                         .code = "unsupported"});
    return route.handler(context, request);
  }
  if (other == nullptr)
    return ErrorReply({.status = 404, .message = "there is no such route", .type = "not_found_error"});
  const bool get = other->method == Method::kGet;
  Reply reply = ErrorReply({.status = 405, .message = get ? "this route takes GET" : "this route takes POST"});
  reply.response.headers.emplace_back("Allow", get ? "GET, HEAD" : "POST");
  return reply;
}

}  // namespace

bool Computes(const Request& request) { return request.path == "/v1/embeddings" && request.method == Method::kPost; }

Reply Dispatch(const Context& context, const Request& request) {
  try {
    return Find(context, request);
  } catch (const std::bad_alloc&) {
    return ErrorReply({.status = 503, .message = "out of memory for this request", .type = "unavailable_error"});
  } catch (const std::exception& fault) {
    return ErrorReply(
        {.status = 500, .message = std::string("internal fault: ") + fault.what(), .type = "server_error"});
  }
}

Reply JsonReply(const Json& document) {
  Reply reply;
  reply.response.body = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  return reply;
}

}  // namespace ridge::server
