// Takes the fields of a JSON object one by one, with their types and ranges, and refuses what nobody took.
//
//   Fields fields(body);
//   fields.Number("temperature", params.temperature, 0, 2);
//   const Json* stop = fields.Any("stop");
//   RIDGE_RETURN_IF_ERROR(fields.Done());       // the first fault, or the first field that was not taken
//
// Guarantees: null counts as absent; a target is only written when the value is right; an error's `where` is the field's path, as OpenAI's `param`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/json_reader.h"

namespace ridge::server {

class Fields {
 public:
  // object is borrowed; it may be of any type, which Done then refuses. path: "" at the top, else "messages[2]".
  explicit Fields(const Json& object, std::string path = {});

  // The value, or null where it is absent or null.
  const Json* Any(std::string_view name);
  void Bool(std::string_view name, bool& target);
  void Integer(std::string_view name, int64_t& target, int64_t least, int64_t most);
  void Integer(std::string_view name, std::optional<int64_t>& target, int64_t least, int64_t most);
  void Number(std::string_view name, double& target, double least, double most);
  void Text(std::string_view name, std::string& target);
  void Text(std::string_view name, std::optional<std::string>& target);
  // Known to the API, not to this server: a value that would ask for something is refused. `neutral`: JSON of a value that asks for nothing.
  void NotYet(std::string_view name, std::initializer_list<std::string_view> neutral = {});

  void Refuse(std::string_view name, std::string found, std::string expected);
  void Refuse(Error error);
  std::string Path(std::string_view name) const;
  bool ok() const { return !error_; }
  Status Done();

 private:
  const Json* object_;
  std::string path_;
  std::vector<std::string_view> taken_;
  std::optional<Error> error_;
};

// A value in an error text: short, one line.
std::string Shown(const Json& value);

}  // namespace ridge::server
