// Reads fields of JSON that came from outside without exceptions.
//
//   const Json root = ParseJson(text);            // discarded() when it is not JSON
//   std::string name = TextField(root, "name");   // "" when missing or of another type
//
// Guarantees: never throws. Include it in .cc files only (nlohmann/json is heavy).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/json_text.h"

namespace ridge::hub {

using Json = nlohmann::ordered_json;

inline Json ParseJson(const std::string& text) { return ParseJsonText<Json>(text); }

// nullptr when `object` is no object or has no such member.
inline const Json* Field(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(key);
  return at == object.end() ? nullptr : &*at;
}

inline std::string TextField(const Json& object, const char* key) {
  const Json* value = Field(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

inline std::optional<uint64_t> SizeField(const Json& object, const char* key) {
  const Json* value = Field(object, key);
  if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
  return value->get<uint64_t>();
}

}  // namespace ridge::hub
