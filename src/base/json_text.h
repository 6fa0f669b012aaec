// JSON that came from outside, without exceptions and to its last byte.
//
//   const Json document = ParseJsonText<Json>(text);       // is_discarded() when it is not JSON
//   if (const auto nul = NulIn(text)) ...                  // for a reader of its own: what to refuse first
//
// Why: nlohmann/json takes a NUL byte for the end of its input, so whatever stands behind one would be read by nobody. Guarantees: a text with a NUL
// byte is not JSON; never throws. Include it in .cc files only (nlohmann/json is heavy).
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace ridge {

// The offset of the first NUL byte. JSON has none: in a string it is written \u0000.
inline std::optional<size_t> NulIn(std::string_view text) {
  const size_t at = text.find('\0');
  return at == std::string_view::npos ? std::nullopt : std::optional(at);
}

template <class Json = nlohmann::ordered_json>
Json ParseJsonText(std::string_view text) {
  if (NulIn(text)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace ridge
