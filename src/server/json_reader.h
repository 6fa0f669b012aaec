// Reads the JSON of a request: strict, and bounded in everything that a client could choose.
//
//   RIDGE_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body));
//
// Guarantees: RFC 8259 and nothing else (no NaN, no comments, no second document), valid UTF-8, no key twice in one object, depth and number of
// values within the limits, no NUL byte. Never recursive; memory is bounded by the text and the limits. Errors name the byte, counted from 1; their
// `where` is kWholeBody: no field is to blame.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.h"

namespace ridge::server {

using Json = nlohmann::ordered_json;

inline constexpr std::string_view kWholeBody = "the body";  // `where` of an error that no field is to blame for

struct JsonLimits {
  size_t depth = 64;
  size_t values = size_t{2} << 20;  // a prompt of two million token ids
};

Result<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

}  // namespace ridge::server
