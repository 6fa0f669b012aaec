// A roofline as a JSON document, as `ridge roofline --json` prints it and as the cache keeps it.
//
//   nlohmann::ordered_json document = ToJson(roofline);
//   Result<Roofline> same = FromJson(document);
//
// Guarantee: FromJson(ToJson(r)) has the same figures; a document that lacks a field, or has one of another kind, is an error, never a guess.
#pragma once

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "lab/roofline/roofline.h"

namespace ridge::lab {

nlohmann::ordered_json ToJson(const Roofline& roofline);
Result<Roofline> FromJson(const nlohmann::ordered_json& document);  // kInvalidData

}  // namespace ridge::lab
