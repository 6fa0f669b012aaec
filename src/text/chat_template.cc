#include "text/chat_template.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/quantity.h"
#include "text/jinja/interp.h"
#include "text/jinja/parser.h"
#include "text/template_variables.h"
#include "text/utf8.h"

namespace ridge::text {
namespace {

using Json = nlohmann::ordered_json;
using jinja::Err;
using jinja::JinjaError;
using jinja::Value;

Code CodeOf(Err kind, bool parsing) {
  switch (kind) {
    case Err::kLimit: return Code::kOutOfRange;
    case Err::kUnsupported: return Code::kUnsupported;
    case Err::kSyntax: return Code::kInvalidData;
    case Err::kType:
    case Err::kValue:
    case Err::kLookup:
    case Err::kOverflow:
    case Err::kUndefined:
    case Err::kRuntime: break;
  }
  return parsing ? Code::kInvalidData : Code::kInvalidArgument;
}

Fail ToFail(const JinjaError& e, int line, bool parsing) {
  std::string where = "chat template, line " + std::to_string(e.line > 0 ? e.line : line);
  return std::move(Fail(CodeOf(e.kind, parsing), e.message.empty() ? "the template raised an error" : e.message)
                       .Where(std::move(where)));
}

Value FromJson(jinja::Interp& in, const Json& json, int depth) {
  if (depth > jinja::kMaxNesting - 20) jinja::Throw(Err::kLimit, "the messages are nested too deep");
  switch (json.type()) {
    case Json::value_t::null:
    case Json::value_t::discarded: return Value::None();
    case Json::value_t::boolean: return Value::Bool(json.get<bool>());
    case Json::value_t::number_integer: return Value::Int(json.get<int64_t>());
    case Json::value_t::number_unsigned: {
      const auto u = json.get<uint64_t>();
      if (u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        jinja::Throw(Err::kUnsupported, "integer beyond 64 bits in the input");
      return Value::Int(static_cast<int64_t>(u));
    }
    case Json::value_t::number_float: return Value::Float(json.get<double>());
    case Json::value_t::string: {
      const auto& s = json.get_ref<const std::string&>();
      if (FirstInvalidUtf8(s)) jinja::Throw(Err::kValue, "the input holds text that is not UTF-8");
      return in.Str(s);
    }
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(FromJson(in, item, depth + 1));
      return in.MakeList(std::move(items));
    }
    case Json::value_t::object: {
      jinja::Table table;
      for (const auto& [key, item] : json.items()) {
        if (FirstInvalidUtf8(key)) jinja::Throw(Err::kValue, "the input holds text that is not UTF-8");
        table.Set(in.Str(key), FromJson(in, item, depth + 1), in.budget());
      }
      return in.heap().Dict(std::move(table));
    }
    case Json::value_t::binary: break;
  }
  jinja::Throw(Err::kType, "binary values cannot be given to a template");
}

// What MakeVariables sets beside kwargs, and jinja's own functions (jinja/globals.cc).
constexpr std::string_view kOwnVariables[] = {"messages",        "tools",       "documents", "add_generation_prompt",
                                              "bos_token",       "eos_token",   "range",     "dict",
                                              "namespace",       "cycler",      "joiner",    "lipsum",
                                              "raise_exception", "strftime_now"};

jinja::Table MakeVariables(jinja::Interp& in, const TemplateInput& input) {
  jinja::Table variables;
  jinja::AddGlobals(in, variables);
  const auto set = [&](const std::string& name, Value value) {
    variables.Set(in.Str(name), std::move(value), in.budget());
  };
  const auto text = [&](const std::string& s) {
    if (FirstInvalidUtf8(s)) jinja::Throw(Err::kValue, "a special token's text is not UTF-8");
    return in.Str(s);
  };
  if (input.messages != nullptr) set("messages", FromJson(in, *input.messages, 1));
  set("tools", input.tools != nullptr ? FromJson(in, *input.tools, 1) : Value::None());
  set("documents", Value::None());
  set("add_generation_prompt", Value::Bool(input.add_generation_prompt));
  if (input.bos_token) set("bos_token", text(*input.bos_token));
  if (input.eos_token) set("eos_token", text(*input.eos_token));
  if (input.kwargs == nullptr) return variables;
  if (!input.kwargs->is_object()) jinja::Throw(Err::kType, "template variables must be a JSON object");
  for (const auto& [name, value] : input.kwargs->items()) {
    if (FirstInvalidUtf8(name)) jinja::Throw(Err::kValue, "the input holds text that is not UTF-8");
    set(name, FromJson(in, value, 1));
  }
  return variables;
}

}  // namespace

struct ChatTemplate::Impl {
  std::string source;
  TemplateLimits limits;
  jinja::Template tree;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

bool IsOwnVariable(std::string_view name) { return std::ranges::find(kOwnVariables, name) != std::end(kOwnVariables); }

const std::string& ChatTemplate::source() const { return impl_->source; }

Result<ChatTemplate> ChatTemplate::Parse(std::string source, const TemplateLimits& limits) {
  if (source.size() > limits.source_bytes) {
    return Fail(Code::kOutOfRange, "the chat template is too long")
        .Found(Count(source.size(), "byte"))
        .Expected("at most " + std::to_string(limits.source_bytes));
  }
  if (const auto at = FirstInvalidUtf8(source)) {
    return Fail(Code::kInvalidData, "the chat template is not UTF-8").Where("byte " + std::to_string(*at));
  }
  try {
    auto impl = std::make_unique<Impl>();
    impl->tree = jinja::Parse(source, {limits.parse_depth, limits.stack_bytes});
    impl->source = std::move(source);
    impl->limits = limits;
    return ChatTemplate(std::move(impl));
  } catch (const JinjaError& e) {
    return ToFail(e, 1, true);
  } catch (const std::bad_alloc&) {
    return Fail(Code::kResourceExhausted, "no memory to parse the chat template");
  }
}

Result<std::string> ChatTemplate::Render(const TemplateInput& input) const {
  try {
    jinja::Interp in(impl_->tree, impl_->limits, input.now_unix_seconds);
    try {
      return in.Run(MakeVariables(in, input));
    } catch (const JinjaError& e) {
      return ToFail(e, in.line(), false);
    }
  } catch (const std::bad_alloc&) {
    return Fail(Code::kResourceExhausted, "no memory to render the chat template");
  }
}

}  // namespace ridge::text
