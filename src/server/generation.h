// The fields that chat and text completions share, from JSON to a request of the service.
//
//   Generation generation;
//   ReadGeneration(fields, context, generation);    // then the route's own fields, and fields.Done()
//
// Guarantees: every field that OpenAI's API knows is either honoured or refused by name; a value that asks for nothing (null, an empty list of
// tools) passes. Defaults are OpenAI's: temperature 1, nothing cut off.
#pragma once

#include <cstdint>

#include "server/context.h"
#include "server/fields.h"
#include "service/service.h"

namespace ridge::server {

inline constexpr int64_t kMaxChoices = 128;

struct Generation {
  service::TextRequest text;
  int64_t n = 1;
  bool stream = false, include_usage = false;
};

// The name of a model that is served here, or absent. Errors: kNotFound.
void ReadModel(Fields& fields, const Context& context);
void ReadGeneration(Fields& fields, const Context& context, Generation& out);

}  // namespace ridge::server
