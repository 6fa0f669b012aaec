#include "server/prompts.h"

#include <fmt/format.h>

#include <utility>

namespace ridge::server {
namespace {

// What a row of logits has; where the model gives none, what the tokenizer knows.
int64_t Vocab(const Context& context) {
  return context.service != nullptr ? context.runtime().model().graph().vocab()
                                    : static_cast<int64_t>(context.tokenizer().vocab_size());
}

bool IsIds(const Json& value) { return value.is_array() && !value.empty() && value.front().is_number(); }

}  // namespace

bool ReadIds(const Json& list, int64_t vocab, std::vector<TokenId>& ids) {
  if (!list.is_array()) return false;
  ids.reserve(list.size());
  for (const Json& item : list) {
    if (!item.is_number_unsigned()) return false;  // what is written without a sign and a point
    const uint64_t id = item.get<uint64_t>();
    if (id >= static_cast<uint64_t>(vocab)) return false;
    ids.push_back(static_cast<TokenId>(id));
  }
  return true;
}

std::string IdsExpected(const Context& context) {
  return fmt::format("a list of token ids, 0 to {}", Vocab(context) - 1);
}

void ReadPrompts(Fields& fields, std::string_view name, const Context& context, size_t most,
                 std::vector<Prompt>& prompts) {
  const Json* value = fields.Any(name);
  const std::string expected = "a string, a list of strings, " + IdsExpected(context) + ", or a list of such lists";
  if (value == nullptr) return fields.Refuse(name, "nothing", expected);
  const auto add = [&](const Json& item) {
    Prompt& prompt = prompts.emplace_back();
    if (item.is_string()) {
      prompt.text = item.get<std::string>();
      return !prompt.text.empty();
    }
    return ReadIds(item, Vocab(context), prompt.ids) && !prompt.ids.empty();
  };
  if (value->is_string() || IsIds(*value)) {
    if (!add(*value))
      fields.Refuse(name, IsIds(*value) ? "a list with something else in it" : "an empty string", expected);
    return;
  }
  if (!value->is_array() || value->empty()) return fields.Refuse(name, Shown(*value), expected);
  if (value->size() > most) return fields.Refuse(name, Shown(*value), fmt::format("at most {} of them", most));
  for (size_t i = 0; i < value->size(); i++) {
    const Json& item = (*value)[i];
    if (!(item.is_string() || item.is_array()) || item.is_string() != value->front().is_string() || !add(item)) {
      return fields.Refuse(Error{.code = Code::kInvalidArgument,
                                 .what = "wrong value",
                                 .where = fmt::format("{}[{}]", fields.Path(name), i),
                                 .found = Shown(item),
                                 .expected = expected});
    }
  }
}

}  // namespace ridge::server
