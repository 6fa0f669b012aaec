#include "server/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "text/utf8.h"

namespace ridge::server {
namespace {

constexpr size_t kShownBytes = 60;

std::string RangeText(double least, double most) { return fmt::format("{} to {}", least, most); }

std::optional<int64_t> WholeNumber(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t u = value.get<uint64_t>();
    return u <= static_cast<uint64_t>(INT64_MAX) ? std::optional<int64_t>(static_cast<int64_t>(u)) : std::nullopt;
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  return std::nullopt;
}

// A name that can stand in a path as it is; others are quoted, and cut off where they are long.
bool IsPlain(std::string_view name) {
  return !name.empty() && name.size() <= kShownBytes && std::ranges::all_of(name, [](unsigned char c) {
    return c >= 0x80 || std::isalnum(c) || c == '_' || c == '-' || c == '.';
  });
}

}  // namespace

std::string Shown(const Json& value) {
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return value.empty() ? "an empty object" : "an object";
  std::string text;
  if (value.is_string()) {
    const std::string& whole = value.get_ref<const std::string&>();
    text = Json(text::ReplaceInvalidUtf8(std::string_view(whole).substr(0, kShownBytes))).dump();
    if (whole.size() > kShownBytes) text += "…";
  } else {
    text = value.dump();
  }
  return text;
}

Fields::Fields(const Json& object, std::string path) : object_(&object), path_(std::move(path)) {
  if (object.is_object()) return;
  Error error{.code = Code::kInvalidArgument,
              .what = path_.empty() ? "not a JSON object" : "wrong type",
              .where = path_.empty() ? std::string(kWholeBody) : path_,
              .found = Shown(object),
              .expected = "an object"};
  Refuse(std::move(error));
}

std::string Fields::Path(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

const Json* Fields::Any(std::string_view name) {
  taken_.push_back(name);
  if (!object_->is_object()) return nullptr;
  const auto at = object_->find(name);
  return at == object_->end() || at->is_null() ? nullptr : &*at;
}

void Fields::Refuse(Error error) {
  if (!error_) error_ = std::move(error);
}

void Fields::Refuse(std::string_view name, std::string found, std::string expected) {
  Refuse(Error{.code = Code::kInvalidArgument,
               .what = "wrong value",
               .where = Path(name),
               .found = std::move(found),
               .expected = std::move(expected)});
}

void Fields::Bool(std::string_view name, bool& target) {
  const Json* value = Any(name);
  if (value == nullptr) return;
  if (!value->is_boolean()) return Refuse(name, Shown(*value), "true or false");
  target = value->get<bool>();
}

void Fields::Integer(std::string_view name, int64_t& target, int64_t least, int64_t most) {
  std::optional<int64_t> number;
  Integer(name, number, least, most);
  if (number) target = *number;
}

void Fields::Integer(std::string_view name, std::optional<int64_t>& target, int64_t least, int64_t most) {
  const Json* value = Any(name);
  if (value == nullptr) return;
  const std::optional<int64_t> number = WholeNumber(*value);
  if (!number || *number < least || *number > most)
    return Refuse(name, Shown(*value), fmt::format("a whole number, {} to {}", least, most));
  target = *number;
}

void Fields::Number(std::string_view name, double& target, double least, double most) {
  const Json* value = Any(name);
  if (value == nullptr) return;
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= least && number <= most)) return Refuse(name, Shown(*value), "a number, " + RangeText(least, most));
  target = number;
}

void Fields::Text(std::string_view name, std::string& target) {
  std::optional<std::string> text;
  Text(name, text);
  if (text) target = std::move(*text);
}

void Fields::Text(std::string_view name, std::optional<std::string>& target) {
  const Json* value = Any(name);
  if (value == nullptr) return;
  if (!value->is_string()) return Refuse(name, Shown(*value), "a string");
  target = value->get<std::string>();
}

void Fields::NotYet(std::string_view name, std::initializer_list<std::string_view> neutral) {
  const Json* value = Any(name);
  if (value == nullptr) return;
  const std::string text = value->size() <= 8 ? value->dump(-1, ' ', false, Json::error_handler_t::replace) : "";
  if (std::ranges::find(neutral, text) != neutral.end()) return;
  Refuse(Error{.code = Code::kUnsupported,
               .what = fmt::format("'{}' is not there yet", Path(name)),
               .where = Path(name),
               .remedy = "leave it out"});
}

Status Fields::Done() {
  if (!error_ && object_->is_object()) {
    for (const auto& [key, value] : object_->items()) {
      if (value.is_null() || std::ranges::find(taken_, key) != taken_.end()) continue;
      return Fail(Code::kInvalidArgument, "unknown field").Where(Path(IsPlain(key) ? key : Shown(Json(key))));
    }
  }
  if (error_) return std::unexpected(*error_);
  return {};
}

}  // namespace ridge::server
