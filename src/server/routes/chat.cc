// POST /v1/chat/completions: a conversation, rendered with the model's own template.
#include <fmt/format.h>

#include <utility>

#include "server/answer.h"
#include "server/api_error.h"
#include "server/fields.h"
#include "server/generation.h"
#include "server/routes.h"

namespace ridge::server {
namespace {

struct Asked {
  Generation generation;
  Json messages = Json::array(), kwargs;
};

// The text of a content that is a string or a list of text parts, which are joined with line breaks.
void ReadContent(Fields& message, Json& out) {
  const Json* content = message.Any("content");
  if (content == nullptr) return message.Refuse("content", "nothing", "a string or a list of parts");
  if (content->is_string()) {
    out = *content;
    return;
  }
  if (!content->is_array() || content->empty())
    return message.Refuse("content", Shown(*content), "a string or a list of parts");
  std::string text;
  for (size_t i = 0; i < content->size(); i++) {
    Fields part((*content)[i], fmt::format("{}[{}]", message.Path("content"), i));
    std::string type;
    std::optional<std::string> piece;
    part.Text("type", type);
    part.Text("text", piece);
    if (part.ok() && (type == "image_url" || type == "input_audio" || type == "file")) {
      part.Refuse(Error{
          .code = Code::kUnsupported, .what = "this model reads text only", .where = part.Path("type"), .found = type});
    }
    if (part.ok() && type != "text") part.Refuse("type", type.empty() ? "nothing" : Shown(Json(type)), "\"text\"");
    if (!piece) part.Refuse("text", "nothing", "a string");
    if (const Status done = part.Done(); !done) return message.Refuse(done.error());
    text += (i == 0 ? "" : "\n") + *piece;
  }
  out = std::move(text);
}

void ReadMessages(Fields& fields, Json& messages) {
  const Json* list = fields.Any("messages");
  if (list == nullptr) return fields.Refuse("messages", "nothing", "a list of messages");
  if (!list->is_array() || list->empty())
    return fields.Refuse("messages", Shown(*list), "a list of at least one message");
  for (size_t i = 0; i < list->size(); i++) {
    Fields fields_of((*list)[i], fmt::format("messages[{}]", i));
    std::optional<std::string> role, name, reasoning;
    fields_of.Text("role", role);
    if (fields_of.ok() && role && (*role == "tool" || *role == "function")) {
      fields_of.Refuse(Error{.code = Code::kUnsupported,
                             .what = "tools are not there yet",
                             .where = fields_of.Path("role"),
                             .found = *role});
    }
    if (!role || (*role != "system" && *role != "developer" && *role != "user" && *role != "assistant"))
      fields_of.Refuse("role", role ? Shown(Json(*role)) : "nothing", "system, developer, user or assistant");
    for (const std::string_view later : {"tool_calls", "function_call", "audio", "refusal", "annotations"})
      fields_of.NotYet(later, {"[]", "\"\""});
    Json content;
    ReadContent(fields_of, content);
    fields_of.Text("name", name);
    fields_of.Text("reasoning_content", reasoning);
    if (const Status done = fields_of.Done(); !done) return fields.Refuse(done.error());
    // "developer" is OpenAI's newer word for what templates call "system".
    Json message = {{"role", *role == "developer" ? "system" : *role}, {"content", std::move(content)}};
    if (name) message["name"] = *name;
    if (reasoning) message["reasoning_content"] = *reasoning;
    messages.push_back(std::move(message));
  }
}

void ReadLimit(Fields& fields, int64_t context_tokens, int64_t& max_tokens) {
  std::optional<int64_t> old_name, new_name;
  fields.Integer("max_tokens", old_name, 1, context_tokens);
  fields.Integer("max_completion_tokens", new_name, 1, context_tokens);
  if (old_name && new_name && *old_name != *new_name)
    fields.Refuse("max_tokens", fmt::format("{}, and max_completion_tokens {}", *old_name, *new_name), "one of them");
  max_tokens = new_name.value_or(old_name.value_or(-1));
}

void ReadLogprobs(Fields& fields, int32_t& target) {
  bool logprobs = false;
  int64_t top = 0;
  fields.Bool("logprobs", logprobs);
  fields.Integer("top_logprobs", top, 0, engine::kMaxLogprobs);
  if (top > 0 && !logprobs) fields.Refuse("top_logprobs", std::to_string(top), "logprobs: true beside it");
  target = logprobs ? static_cast<int32_t>(top) : -1;
}

Result<Asked> Read(const Context& context, const Request& request) {
  RIDGE_ASSIGN_OR_RETURN(const Json body, ParseJson(request.body));
  Fields fields(body);
  Asked asked;
  ReadGeneration(fields, context, asked.generation);
  service::TextRequest& text = asked.generation.text;
  ReadMessages(fields, asked.messages);
  ReadLimit(fields, context.runtime().context_tokens(), text.max_tokens);
  ReadLogprobs(fields, text.logprobs);
  if (const Json* kwargs = fields.Any("chat_template_kwargs")) {
    asked.kwargs = *kwargs;
    if (!kwargs->is_object()) fields.Refuse("chat_template_kwargs", Shown(*kwargs), "an object");
  }
  fields.NotYet("tools", {"[]"});
  fields.NotYet("tool_choice", {"\"none\"", "\"auto\""});
  fields.NotYet("parallel_tool_calls", {"true", "false"});  // of no tools
  fields.NotYet("functions", {"[]"});
  fields.NotYet("function_call", {"\"none\"", "\"auto\""});
  fields.NotYet("response_format", {R"({"type":"text"})"});
  fields.NotYet("modalities", {R"(["text"])"});
  for (const std::string_view later : {"audio", "prediction", "reasoning_effort", "verbosity", "web_search_options"})
    fields.NotYet(later);
  RIDGE_RETURN_IF_ERROR(fields.Done());
  return asked;
}

Result<Reply> Run(const Context& context, const Request& request) {
  RIDGE_ASSIGN_OR_RETURN(Asked asked, Read(context, request));
  Generation& generation = asked.generation;
  generation.text.messages = &asked.messages;
  generation.text.template_kwargs = asked.kwargs.is_object() ? &asked.kwargs : nullptr;
  generation.text.notify = request.wake;
  RIDGE_ASSIGN_OR_RETURN(auto streams, context.service->SubmitGroup(generation.text, generation.n));
  return NewAnswer(context,
                   {.chat = true,
                    .stream = generation.stream,
                    .include_usage = generation.include_usage,
                    .logprobs = generation.text.logprobs >= 0,
                    .n = generation.n,
                    .prompt_field = "messages",
                    .seed = generation.text.sampling.seed,
                    .arrived = request.arrived},
                   std::move(streams));
}

}  // namespace

Reply ChatCompletions(const Context& context, const Request& request) {
  Result<Reply> reply = Run(context, request);
  if (reply) return std::move(*reply);
  Error& error = reply.error();
  if (error.where == "template_kwargs") error.where = "chat_template_kwargs";  // the service's name, and the API's
  return ErrorReply(ToApi(error, "messages"));
}

}  // namespace ridge::server
