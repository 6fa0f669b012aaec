// Names that ChatTemplate::Render gives a template itself.
//
//   if (IsOwnVariable(name)) return Fail(...);
//
// Kwargs replace any of them, which who serves others must not let them do: "messages" among them would put an unchecked conversation in the place
// of the checked one.
#pragma once

#include <string_view>

namespace ridge::text {

// A variable that TemplateInput has a field for, or one of jinja's own functions.
bool IsOwnVariable(std::string_view name);

}  // namespace ridge::text
