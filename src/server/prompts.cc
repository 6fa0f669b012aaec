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

Fail Wrong(std::string where, std::string found, std::string expected) {
  return Fail(Code::kInvalidArgument, "wrong value")
      .Where(std::move(where))
      .Found(std::move(found))
      .Expected(std::move(expected));
}

bool IsIds(const Json& value) { return value.is_array() && !value.empty() && value.front().is_number(); }

}  // namespace

Status ReadIds(const Json& list, const std::string& path, int64_t vocab, std::vector<TokenId>& ids) {
  if (!list.is_array()) return Wrong(path, Shown(list), fmt::format("a list of token ids, 0 to {}", vocab - 1));
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); i++) {
    const Json& item = list[i];
    // Unsigned: what is written without a sign and a point.
    if (!item.is_number_unsigned() || item.get<uint64_t>() >= static_cast<uint64_t>(vocab))
      return Wrong(fmt::format("{}[{}]", path, i), Shown(item), fmt::format("a token id, 0 to {}", vocab - 1));
    ids.push_back(static_cast<TokenId>(item.get<uint64_t>()));
  }
  return {};
}

void ReadPrompts(Fields& fields, std::string_view name, const Context& context, size_t most,
                 std::vector<Prompt>& prompts) {
  const Json* value = fields.Any(name);
  const std::string expected = fmt::format(
      "a string, a list of strings, a list of token ids, 0 to {}, or a list of such lists", Vocab(context) - 1);
  if (value == nullptr) return fields.Refuse(name, "nothing", expected);
  const auto add = [&](const Json& item, const std::string& path) -> Status {
    Prompt& prompt = prompts.emplace_back();
    if (item.is_string()) {
      prompt.text = item.get<std::string>();
      if (prompt.text.empty()) return Wrong(path, "an empty string", expected);
      return {};
    }
    RIDGE_RETURN_IF_ERROR(ReadIds(item, path, Vocab(context), prompt.ids));
    if (prompt.ids.empty()) return Wrong(path, Shown(item), expected);
    return {};
  };
  if (value->is_string() || IsIds(*value)) {
    if (const Status added = add(*value, fields.Path(name)); !added) fields.Refuse(added.error());
    return;
  }
  if (!value->is_array() || value->empty()) return fields.Refuse(name, Shown(*value), expected);
  if (value->size() > most) return fields.Refuse(name, Shown(*value), fmt::format("at most {} of them", most));
  for (size_t i = 0; i < value->size(); i++) {
    const Json& item = (*value)[i];
    const std::string path = fmt::format("{}[{}]", fields.Path(name), i);
    Status added;
    if (!(item.is_string() || item.is_array()) || item.is_string() != value->front().is_string()) {
      added = Wrong(path, Shown(item), expected);
    } else {
      added = add(item, path);
    }
    if (!added) return fields.Refuse(added.error());
  }
}

}  // namespace ridge::server
