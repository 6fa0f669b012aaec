#include "server/routes.h"

#include <exception>
#include <new>

#include "server/api_error.h"

namespace ridge::server {
namespace {

struct Route {
  Method method;
  std::string_view path;
  Handler handler;
};

// One a line, so that two additions do not meet.
// clang-format off
constexpr Route kRoutes[] = {
    {Method::kGet, "/health", Health},
    {Method::kGet, "/ready", Ready},
    {Method::kGet, "/metrics", Metrics},
    {Method::kGet, "/v1/models", Models},
    {Method::kPost, "/v1/chat/completions", ChatCompletions},
    {Method::kPost, "/v1/completions", Completions},
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
    if (route.method == method && context.service == nullptr && route.handler != Health)
      return ErrorReply({.status = 503, .message = "the model is being loaded", .type = "unavailable_error"});
    if (route.method == method) return route.handler(context, request);
    other = &route;
  }
  if (other == nullptr)
    return ErrorReply({.status = 404, .message = "there is no such route", .type = "not_found_error"});
  const bool get = other->method == Method::kGet;
  Reply reply = ErrorReply({.status = 405, .message = get ? "this route takes GET" : "this route takes POST"});
  reply.response.headers.emplace_back("Allow", get ? "GET, HEAD" : "POST");
  return reply;
}

}  // namespace

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
