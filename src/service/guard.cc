#include "service/guard.h"

#include <functional>
#include <utility>

#include "text/utf8.h"

namespace ridge::service {
namespace {

using Json = nlohmann::ordered_json;

// Every string that a person or a tool wrote; a role is one of the template's own words.
void ForEachText(Json& value, const std::function<void(std::string&)>& visit) {
  if (value.is_string()) {
    visit(value.get_ref<std::string&>());
  } else if (value.is_object()) {
    for (auto& [key, item] : value.items()) {
      if (key != "role") ForEachText(item, visit);
    }
  } else if (value.is_array()) {
    for (auto& item : value) ForEachText(item, visit);
  }
}

}  // namespace

Result<Guard> Guard::Create(const Json& messages, std::string_view template_source, const text::Tokenizer& tokenizer) {
  Guard guard;
  guard.original_ = &messages;
  guard.marked_ = messages;
  bool spelled = false;
  std::string all(template_source);
  ForEachText(guard.marked_, [&](std::string& text) {
    spelled = spelled || !tokenizer.FindControl(text).empty();
    all += text;
  });
  if (!spelled) return guard;
  for (char32_t c = 0xFDD0; c <= 0xFDEF && guard.mark_.empty(); c++) {
    std::string candidate;
    text::AppendUtf8(c, candidate);
    if (all.find(candidate) == std::string::npos) guard.mark_ = candidate;
  }
  if (guard.mark_.empty()) {
    return Fail(Code::kInvalidArgument, "the messages spell a control token and hold every Unicode noncharacter")
        .Where("messages")
        .Remedy("remove the characters U+FDD0 to U+FDEF");
  }
  ForEachText(guard.marked_, [&](std::string& text) {
    const std::vector<size_t> offsets = tokenizer.FindControl(text);
    if (offsets.empty()) return;
    std::string marked;  // in one go: a text may spell millions of them
    marked.reserve(text.size() + offsets.size() * guard.mark_.size());
    size_t from = 0;
    for (const size_t offset : offsets) {
      marked.append(text, from, offset - from) += guard.mark_;
      from = offset;
    }
    text = std::move(marked.append(text, from));
  });
  return guard;
}

std::vector<size_t> Guard::TakeMarks(std::string& rendered) const {
  std::vector<size_t> offsets;
  if (mark_.empty()) return offsets;
  std::string clean;
  for (size_t at = 0;;) {
    const size_t next = rendered.find(mark_, at);
    clean.append(rendered, at, next - at);
    if (next == std::string::npos) break;
    offsets.push_back(clean.size());
    at = next + mark_.size();
  }
  rendered.swap(clean);
  return offsets;
}

}  // namespace ridge::service
