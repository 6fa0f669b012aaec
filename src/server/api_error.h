// Errors as OpenAI's clients read them: {"error": {"message", "type", "param", "code"}} with the right status.
//
//   return ErrorReply(ToApi(error, "messages"));
//   return ErrorReply({.status = 404, .message = "there is no such route", .type = "not_found_error"});
//
// Guarantees: message and type are never empty; param and code are a string or null. One table maps Code to status.
#pragma once

#include <string>

#include "base/result.h"
#include "server/http.h"

namespace ridge::server {

struct ApiError {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param = {};  // empty: null
  std::string code = {};   // empty: null
};

// `prompt_field`: what the request calls its prompt ("messages", "prompt", "input"), for errors about it.
ApiError ToApi(const Error& error, std::string_view prompt_field = {});
std::string ErrorBody(const ApiError& error);  // the JSON document
Reply ErrorReply(const ApiError& error);

}  // namespace ridge::server
