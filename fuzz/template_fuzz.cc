// Any bytes as a chat template, rendered with a conversation: text or an error within small limits, never more.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using Json = nlohmann::ordered_json;
  static const Json messages = Json::parse(R"([
    {"role": "system", "content": "Be terse."},
    {"role": "user", "content": [{"type": "text", "text": "Gr\u00fc\u00dfe \u4e16\u754c"}]},
    {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [{"id": "1", "type": "function",
      "function": {"name": "f", "arguments": {"a": 1.5, "b": [true, null, "x"]}}}]},
    {"role": "tool", "name": "f", "content": "{}"}])");
  static const Json tools = Json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}])");
  const ridge::text::TemplateLimits limits{.output_bytes = 1 << 20, .memory_bytes = 16 << 20, .steps = 200'000};
  const auto chat = ridge::text::ChatTemplate::Parse(std::string(reinterpret_cast<const char*>(data), size), limits);
  if (!chat) {
    RIDGE_CHECK(!chat.error().Message().empty());
    return 0;
  }
  const auto text = chat->Render({.messages = &messages,
                                  .tools = &tools,
                                  .add_generation_prompt = true,
                                  .bos_token = "<s>",
                                  .eos_token = "</s>",
                                  .now_unix_seconds = 0});
  RIDGE_CHECK(text ? text->size() <= limits.output_bytes : !text.error().Message().empty());
  return 0;
}
