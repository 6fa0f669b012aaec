// The forms in which a request may give texts: a string, a list of strings, token ids, a list of lists of token ids.
//
//   std::vector<Prompt> prompts;
//   ReadPrompts(fields, "prompt", context, 128, prompts);
//
// Guarantees: at least one prompt, each with text or with ids that the vocabulary has; else the field is refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/context.h"
#include "server/fields.h"

namespace ridge::server {

struct Prompt {
  std::string text;
  std::vector<TokenId> ids;  // instead of text, when not empty
};

void ReadPrompts(Fields& fields, std::string_view name, const Context& context, size_t most,
                 std::vector<Prompt>& prompts);

// False: not a list of whole numbers from 0 to vocab - 1.
bool ReadIds(const Json& list, int64_t vocab, std::vector<TokenId>& ids);
std::string IdsExpected(const Context& context);  // "a list of token ids, 0 to 49151"

}  // namespace ridge::server
