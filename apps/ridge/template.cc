// ridge template: a conversation rendered with a chat template, as the model will see it.
#include <memory>

#include "base/json_text.h"
#include "base/read_file.h"
#include "commands.h"
#include "gguf/gguf.h"
#include "hub/hub.h"
#include "option_names.h"
#include "text/chat_template.h"

namespace ridge::app {
namespace {

struct TemplateOptions {
  std::string model, file, messages, tools, kwargs, bos, eos;
  int64_t now = 0;
  bool add_generation_prompt = false;
  bool has_model = false, has_file = false, has_tools = false, has_kwargs = false, has_bos = false, has_eos = false,
       has_now = false;
};

// Wrong JSON is an error that names the place; so is a value of another type than the template needs.
Result<Json> ParseJson(const std::string& text, const std::string& where, Json::value_t type) {
  if (const auto nul = NulIn(text)) {
    return Fail(Code::kInvalidData, "not valid JSON")
        .Where(where + ", byte " + std::to_string(*nul + 1))
        .Found("a NUL byte");
  }
  try {
    Json value = Json::parse(text);
    if (value.type() == type) return value;
    return Fail(Code::kInvalidArgument, "not the JSON that is needed")
        .Where(where)
        .Found(value.type_name())
        .Expected(Json(type).type_name());
  } catch (const Json::parse_error& e) {
    return Fail(Code::kInvalidData, "not valid JSON").Where(where + ", byte " + std::to_string(e.byte)).Found(e.what());
  } catch (const Json::exception& e) {  // a number that no double holds
    return Fail(Code::kInvalidData, "JSON that cannot be represented").Where(where).Found(e.what());
  }
}

struct Source {
  std::string name, text;
  std::optional<std::string> bos, eos;
};

// The text of a special token as the vocabulary spells it; none where the model names no such token.
Result<std::optional<std::string>> SpecialToken(const gguf::Metadata& metadata, const char* key) {
  if (metadata.Find(key) == nullptr) return std::nullopt;
  RIDGE_ASSIGN_OR_RETURN(const uint64_t id, metadata.Get<uint64_t>(key));
  RIDGE_ASSIGN_OR_RETURN(const std::vector<std::string>* tokens, metadata.Strings("tokenizer.ggml.tokens"));
  if (id >= tokens->size()) {
    return Fail(Code::kInvalidData, "a special token lies outside the vocabulary")
        .Where(key)
        .Found(std::to_string(id))
        .Expected("below " + std::to_string(tokens->size()));
  }
  return (*tokens)[id];
}

Result<Source> ReadSource(const TemplateOptions& options) {
  Source source;
  if (options.has_file) {
    source.name = options.file;
    RIDGE_ASSIGN_OR_RETURN(source.text, ReadFile(options.file, {.what = "the template", .pipes = true}));
    return source;
  }
  RIDGE_ASSIGN_OR_RETURN(source.name, hub::ResolveModel(options.model));
  RIDGE_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::Open(source.name));
  const gguf::Metadata& metadata = file.metadata();
  if (metadata.Find("tokenizer.chat_template") == nullptr) {
    return Fail(Code::kNotFound, "the model has no chat template")
        .Where(source.name + ": tokenizer.chat_template")
        .Remedy("it is a base model; give a template with --template");
  }
  RIDGE_ASSIGN_OR_RETURN(source.text, metadata.Get<std::string>("tokenizer.chat_template"));
  RIDGE_ASSIGN_OR_RETURN(source.bos, SpecialToken(metadata, "tokenizer.ggml.bos_token_id"));
  RIDGE_ASSIGN_OR_RETURN(source.eos, SpecialToken(metadata, "tokenizer.ggml.eos_token_id"));
  return source;
}

template <class T>
Result<T> Named(Result<T> result, const std::string& name) {
  if (!result) result.error().where = name + (result.error().where.empty() ? "" : ": " + result.error().where);
  return result;
}

Status Template(const TemplateOptions& options, Output& out) {
  if (options.has_model == options.has_file) {
    return Fail(Code::kUsage, "give a model with -m or a template with --template, and not both")
        .Remedy("see ridge template --help");
  }
  RIDGE_ASSIGN_OR_RETURN(const Source source, ReadSource(options));
  RIDGE_ASSIGN_OR_RETURN(const text::ChatTemplate chat, Named(text::ChatTemplate::Parse(source.text), source.name));
  RIDGE_ASSIGN_OR_RETURN(const std::string messages_text,
                         ReadFile(options.messages, {.what = "the messages", .pipes = true}));
  RIDGE_ASSIGN_OR_RETURN(const Json messages, ParseJson(messages_text, options.messages, Json::value_t::array));
  Json tools, kwargs;
  text::TemplateInput input;
  input.messages = &messages;
  if (options.has_tools) {
    RIDGE_ASSIGN_OR_RETURN(const std::string text, ReadFile(options.tools, {.what = "the tools", .pipes = true}));
    RIDGE_ASSIGN_OR_RETURN(tools, ParseJson(text, options.tools, Json::value_t::array));
    input.tools = &tools;
  }
  if (options.has_kwargs) {
    RIDGE_ASSIGN_OR_RETURN(kwargs, ParseJson(options.kwargs, "--kwargs", Json::value_t::object));
    input.kwargs = &kwargs;
  }
  input.add_generation_prompt = options.add_generation_prompt;
  input.bos_token = options.has_bos ? std::optional(options.bos) : source.bos;
  input.eos_token = options.has_eos ? std::optional(options.eos) : source.eos;
  if (options.has_now) input.now_unix_seconds = options.now;
  RIDGE_ASSIGN_OR_RETURN(const std::string text, Named(chat.Render(input), source.name));
  return out.json ? out.Document({{"text", text}}) : out.Write(text);
}

}  // namespace

void AddTemplate(CLI::App& root, Invocation& invocation) {
  auto options = std::make_shared<TemplateOptions>();
  CLI::App* app = AddSubcommand(root, "template", "render a conversation with a chat template",
                                "ridge template -m model.gguf --messages chat.json --add-generation-prompt\n"
                                "  ridge template --template chat.jinja --messages chat.json --bos \"<s>\" --kwargs "
                                "'{\"enable_thinking\": false}'");
  CLI::Option* model = app->add_option("-m,--model", options->model,
                                       "a GGUF file or a name in the store: its own template and special tokens");
  CLI::Option* file = app->add_option("--template", options->file, "a file that holds the template");
  app->add_option("--messages", options->messages, "a JSON file: the array of messages")->required();
  CLI::Option* tools = app->add_option("--tools", options->tools, "a JSON file: the array of tool definitions");
  app->add_flag("--add-generation-prompt", options->add_generation_prompt,
                "end with the start of the assistant's answer");
  CLI::Option* kwargs = app->add_option("--kwargs", options->kwargs, "a JSON object: more variables for the template");
  CLI::Option* bos = app->add_option("--bos", options->bos, "the text of bos_token");
  CLI::Option* eos = app->add_option("--eos", options->eos, "the text of eos_token");
  AllowEmpty(bos);
  AllowEmpty(eos);
  CLI::Option* now =
      app->add_option("--now", options->now, "the time for strftime_now, in Unix seconds (UTC); default: the clock");
  invocation.Bind(app, [=](Output& out) {
    options->has_model = model->count() > 0;
    options->has_file = file->count() > 0;
    options->has_tools = tools->count() > 0;
    options->has_kwargs = kwargs->count() > 0;
    options->has_bos = bos->count() > 0;
    options->has_eos = eos->count() > 0;
    options->has_now = now->count() > 0;
    return Template(*options, out);
  });
}

}  // namespace ridge::app
