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

// A list of whole numbers from 0 to vocab - 1. Errors: kInvalidArgument, which names `path`, or the item: "prompt[1][7]".
Status ReadIds(const Json& list, const std::string& path, int64_t vocab, std::vector<TokenId>& ids);

}  // namespace ridge::server
