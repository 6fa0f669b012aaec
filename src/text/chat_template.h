// Chat templates: renders a conversation with the Jinja template of a model, exactly as Python's jinja2 does for
// transformers.
//
//   RIDGE_ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::Parse(source));
//   RIDGE_ASSIGN_OR_RETURN(std::string prompt, chat.Render({.messages = &messages, .add_generation_prompt = true}));
//
// Guarantees: the text equals that of jinja2's ImmutableSandboxedEnvironment(trim_blocks, lstrip_blocks, loopcontrols)
// with transformers' tojson, raise_exception, strftime_now and `generation` tags. Where jinja2 raises, the result is an
// Error whose `where` names the template line. A hostile template ends in an error within the limits: never a crash, a
// hang or unbounded memory. Immutable after Parse: one ChatTemplate may be rendered by many threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/result.h"

namespace ridge::text {

// What one rendering may cost before it ends with kOutOfRange.
struct TemplateLimits {
  size_t source_bytes = size_t{4} << 20;
  size_t output_bytes = size_t{64} << 20;
  size_t memory_bytes = size_t{512} << 20;  // all values made during one rendering, counted when made
  uint64_t steps = 50'000'000;              // evaluated nodes, plus the work inside filters
  int call_depth = 200;                     // nested macro calls and recursive loops
  int parse_depth = 200;                    // nested expressions; blocks may nest half as deep, as in Python
  size_t stack_bytes = size_t{2} << 20;     // native stack of the calling thread
};

// The variables of one rendering. Borrowed pointers must outlive Render. What is not given is undefined in the
// template, except `tools` and `documents`, which are none then. Later wins: kwargs replace any variable of the same
// name.
struct TemplateInput {
  const nlohmann::ordered_json* messages = nullptr;  // array of messages
  const nlohmann::ordered_json* tools = nullptr;     // array of tool definitions, or none
  bool add_generation_prompt = false;
  const nlohmann::ordered_json* kwargs = nullptr;   // object: each member becomes a variable
  std::optional<std::string> bos_token, eos_token;  // the pieces' text; without a value the variable is undefined
  std::optional<int64_t> now_unix_seconds;  // pins strftime_now (as UTC); without a value: the clock, local time
};

class ChatTemplate {
 public:
  // Errors: kInvalidData with the line (broken syntax, text that is not UTF-8), kUnsupported (include, import,
  // extends), kOutOfRange.
  static Result<ChatTemplate> Parse(std::string source, const TemplateLimits& limits = {});

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Errors: kInvalidArgument (what jinja2 raises, raise_exception included: `what` holds the message), kOutOfRange (a
  // limit).
  Result<std::string> Render(const TemplateInput& input) const;

  const std::string& source() const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ridge::text
