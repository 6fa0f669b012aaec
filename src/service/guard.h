// Keeps a user's words from opening or closing a turn: a message that spells "<|im_end|>" must reach the model as those letters, never as the token.
//
//   RIDGE_ASSIGN_OR_RETURN(Guard guard, Guard::Create(messages, template_source, tokenizer));
//   rendered = chat.Render(guard.messages());
//   std::vector<size_t> plain = guard.TakeMarks(rendered);    // for EncodeOptions::plain_at
//
// How: before each place where a message spells a control token stands a mark, a Unicode noncharacter that occurs nowhere else; the template carries it
// along, and it is taken out of the rendered text, which says where no control token may begin. Without such places nothing is copied or changed.
// Guarantees: the text without the marks is what the template gives for the messages, unless the template itself looks for the spelled token.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace ridge::service {

class Guard {
 public:
  // messages is borrowed. Errors: kInvalidArgument when every noncharacter occurs already.
  static Result<Guard> Create(const nlohmann::ordered_json& messages, std::string_view template_source,
                              const text::Tokenizer& tokenizer);

  const nlohmann::ordered_json& messages() const { return mark_.empty() ? *original_ : marked_; }
  // Removes the marks; the offsets where they stood.
  std::vector<size_t> TakeMarks(std::string& rendered) const;

 private:
  const nlohmann::ordered_json* original_ = nullptr;
  nlohmann::ordered_json marked_;
  std::string mark_;  // empty: there was nothing to mark
};

}  // namespace ridge::service
