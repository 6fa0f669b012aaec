// Any bytes as the JSON of a request: a document within the limits or an error, and then each kind of field read from it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "server/api_error.h"
#include "server/fields.h"
#include "server/json_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using ridge::server::Fields;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto body = ridge::server::ParseJson(text, {.depth = 16, .values = 10000});
  if (!body) {
    RIDGE_CHECK(!body.error().Message().empty());
    return 0;
  }
  Fields fields(*body);
  bool flag = false;
  int64_t integer = 1;
  double number = 1;
  std::string string;
  fields.Bool("stream", flag);
  fields.Integer("max_tokens", integer, 1, 100);
  fields.Number("temperature", number, 0, 2);
  fields.Text("model", string);
  fields.NotYet("tools", {"[]"});
  if (const ridge::server::Json* messages = fields.Any("messages"); messages != nullptr && messages->is_array()) {
    for (size_t i = 0; i < messages->size(); i++) {
      Fields message((*messages)[i], "messages[" + std::to_string(i) + "]");
      message.Text("role", string);
      message.Any("content");
      if (const ridge::Status done = message.Done(); !done) fields.Refuse(done.error());
    }
  }
  RIDGE_CHECK(integer >= 1 && integer <= 100 && number >= 0 && number <= 2);
  if (const ridge::Status done = fields.Done(); !done) {
    const std::string error = ridge::server::ErrorBody(ridge::server::ToApi(done.error(), "messages"));
    RIDGE_CHECK(ridge::server::ParseJson(error).has_value());
  }
  return 0;
}
