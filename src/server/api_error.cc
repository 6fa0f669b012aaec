#include "server/api_error.h"

#include <nlohmann/json.hpp>

#include "server/json_reader.h"

namespace ridge::server {
namespace {

struct Kind {
  int status;
  const char* type;
};

Kind KindOf(Code code) {
  switch (code) {
    case Code::kUsage:
    case Code::kInvalidArgument:
    case Code::kInvalidData:
    case Code::kOutOfRange:
    case Code::kUnsupported: return {400, "invalid_request_error"};
    case Code::kPermissionDenied: return {401, "authentication_error"};
    case Code::kNotFound: return {404, "not_found_error"};
    case Code::kAlreadyExists: return {409, "invalid_request_error"};
    case Code::kResourceExhausted: return {429, "rate_limit_error"};
    case Code::kUnavailable: return {503, "unavailable_error"};
    case Code::kCancelled: return {503, "cancelled_error"};
    case Code::kInternal: return {500, "server_error"};
  }
  return {500, "server_error"};
}

// Fields are words with brackets and dots, or end in a name that had to be quoted; other places (a line of a template, a message that is to blame)
// are prose.
bool IsField(const std::string& where) {
  if (where.empty()) return false;
  return where.find_first_of(" ,:/") == std::string::npos || where.ends_with('"') || where.ends_with("\"…");
}

}  // namespace

ApiError ToApi(const Error& error, std::string_view prompt_field) {
  const Kind kind = KindOf(error.code);
  ApiError out{.status = kind.status, .message = error.Message(), .type = kind.type};
  if (IsField(error.where)) {
    out.param = error.where;
  } else if (kind.status == 400 && error.where != kWholeBody) {
    out.param = prompt_field;
  }
  if (error.code == Code::kOutOfRange && (out.param == prompt_field || out.param == "prompt")) {
    out.code = "context_length_exceeded";
    out.param = prompt_field;
  }
  if (error.code == Code::kUnsupported) out.code = "unsupported";
  if (error.code == Code::kResourceExhausted) out.code = "too_many_requests";
  return out;
}

std::string ErrorBody(const ApiError& error) {
  using Json = nlohmann::ordered_json;
  const auto text = [](const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); };
  const Json body = {
      {"error",
       {{"message", error.message}, {"type", error.type}, {"param", text(error.param)}, {"code", text(error.code)}}}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Reply ErrorReply(const ApiError& error) {
  Reply reply;
  reply.response.status = error.status;
  reply.response.body = ErrorBody(error);
  if (error.status == 429 || error.status == 503) reply.response.headers.emplace_back("Retry-After", "1");
  if (error.status == 401) reply.response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

}  // namespace ridge::server
