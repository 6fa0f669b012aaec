#include "server/json_reader.h"

#include <fmt/format.h>

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "base/quantity.h"
#include "server/fields.h"

namespace ridge::server {
namespace {

// Builds the document while the parser, which does not recurse, walks the text.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return Add(Json(nullptr)) != nullptr; }
  bool boolean(bool value) override { return Add(Json(value)) != nullptr; }
  bool number_integer(number_integer_t value) override { return Add(Json(value)) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return Add(Json(value)) != nullptr; }
  bool number_float(number_float_t value, const string_t&) override { return Add(Json(value)) != nullptr; }
  bool string(string_t& value) override { return Add(Json(std::move(value))) != nullptr; }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override {
    if (!Open(Json::object())) return false;
    keys_.emplace_back();
    return true;
  }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return end_array();
  }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second)
      return Refuse(fmt::format("the key {} stands twice in one object", Shown(Json(name))));
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 8: syntax error …"
    std::string text = error.what();
    if (const size_t colon = text.find(": "); colon != std::string::npos) text = text.substr(colon + 2);
    if (text.size() > 200) text = text.substr(0, 200) + "…";
    return Refuse(fmt::format("byte {}: {}", position, text));
  }

  Json root;
  std::string wrong;

 private:
  bool Refuse(std::string why) {
    wrong = std::move(why);
    return false;
  }

  // Where the value went, or null when there are too many.
  Json* Add(Json&& value) {
    if (++values_ > limits_.values) {
      Refuse(fmt::format("more than {}", Count(limits_.values, "value")));
      return nullptr;
    }
    if (open_.empty()) {
      root = std::move(value);
      return &root;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      auto& items = parent.get_ref<Json::array_t&>();
      items.push_back(std::move(value));
      return &items.back();
    }
    // The object's own insert looks through all keys first, which takes quadratic time; that they differ is known here.
    auto& members = static_cast<Json::object_t::Container&>(parent.get_ref<Json::object_t&>());
    members.emplace_back(std::move(key_), std::move(value));
    return &members.back().second;
  }

  bool Open(Json&& value) {
    if (open_.size() >= limits_.depth) return Refuse(fmt::format("nested deeper than {}", limits_.depth));
    Json* added = Add(std::move(value));
    if (added == nullptr) return false;
    open_.push_back(added);
    return true;
  }

  const JsonLimits& limits_;
  std::vector<Json*> open_;  // a parent does not grow while its last child is open, so these stay valid
  std::vector<std::unordered_set<std::string>> keys_;
  std::string key_;
  size_t values_ = 0;
};

}  // namespace

Result<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  const auto refuse = [](std::string found) {
    return Fail(Code::kInvalidArgument, "not valid JSON").Where(std::string(kWholeBody)).Found(std::move(found));
  };
  if (text.empty()) return refuse("nothing").Expected("a JSON object");
  if (const auto nul = NulIn(text)) return refuse(fmt::format("byte {}: a NUL byte", *nul + 1));
  Builder builder(limits);
  if (Json::sax_parse(text, &builder)) return std::move(builder.root);
  return refuse(std::move(builder.wrong));
}

}  // namespace ridge::server
