#include "load_tokens.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "gguf/gguf.h"
#include "hub/hub.h"

namespace ridge::app {

Result<LoadTokens> LoadTokens::Open(const std::string& model, bool chat) {
  LoadTokens own;
  own.model_ = model;
  RIDGE_ASSIGN_OR_RETURN(const std::string path, hub::ResolveModel(model));
  RIDGE_ASSIGN_OR_RETURN(const gguf::File file, gguf::File::Open(path));
  RIDGE_ASSIGN_OR_RETURN(own.tokenizer_, text::Tokenizer::FromMetadata(file.metadata()));
  const auto piece = [&](std::optional<TokenId> id) -> std::optional<std::string> {
    return id ? std::optional(std::string(own.tokenizer_->Piece(*id))) : std::nullopt;
  };
  own.bos_ = piece(own.tokenizer_->bos()), own.eos_ = piece(own.tokenizer_->eos());
  if (!chat) return own;
  if (file.metadata().Find("tokenizer.chat_template") == nullptr)
    return Fail(Code::kNotFound, "the model has no chat template, so a chat's tokens cannot be counted")
        .Where(path)
        .Remedy("add --completions, which sends texts as they are");
  RIDGE_ASSIGN_OR_RETURN(const std::string source, file.metadata().Get<std::string>("tokenizer.chat_template"));
  RIDGE_ASSIGN_OR_RETURN(text::ChatTemplate parsed, text::ChatTemplate::Parse(source));
  own.chat_.emplace(std::move(parsed));
  return own;
}

Result<int64_t> LoadTokens::OfPrompt(const std::string& prompt) const {
  std::string text = prompt;
  bool special = true;
  if (chat_) {
    const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", prompt}}};
    RIDGE_ASSIGN_OR_RETURN(
        text,
        chat_->Render({.messages = &messages, .add_generation_prompt = true, .bos_token = bos_, .eos_token = eos_}));
    special = !bos_ || bos_->empty() || !text.starts_with(*bos_);  // one BOS, of the template or of the tokenizer
  }
  RIDGE_ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                         tokenizer_->Encode(text, {.add_special = special, .parse_special = chat_.has_value()}));
  return static_cast<int64_t>(ids.size()) - (special && tokenizer_->add_eos() && !ids.empty() ? 1 : 0);
}

Result<int64_t> LoadTokens::OfText(const std::string& text) const {
  RIDGE_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, tokenizer_->Encode(text, {.add_special = false}));
  return static_cast<int64_t>(ids.size());
}

Result<std::string> LoadTokens::Synthetic(const lab::LoadOptions& options, int64_t index, int64_t tokens) const {
  int64_t low = 0, high = tokens;  // each word has a token at least
  RIDGE_ASSIGN_OR_RETURN(const int64_t least, OfPrompt(lab::SyntheticPrompt(options, index, 0)));
  if (least > tokens)
    return Fail(Code::kInvalidArgument, "a prompt cannot be that short")
        .Where("--prompt-tokens")
        .Found(std::to_string(tokens))
        .Expected(fmt::format("{} at least: the beginning that tells prompts apart{}", least,
                              chat_ ? ", and the chat template" : ""));
  while (low < high) {
    const int64_t words = (low + high + 1) / 2;
    RIDGE_ASSIGN_OR_RETURN(const int64_t n, OfPrompt(lab::SyntheticPrompt(options, index, words)));
    if (n <= tokens)
      low = words;
    else
      high = words - 1;
  }
  std::string prompt = lab::SyntheticPrompt(options, index, low);
  // What is left is less than a word has: letters, as long as the sum stays within what was asked for.
  RIDGE_ASSIGN_OR_RETURN(int64_t n, OfPrompt(prompt));
  for (bool more = true; more && n < tokens;) {
    more = false;
    for (const char* filler : {" a", "a", ".", "!"}) {
      RIDGE_ASSIGN_OR_RETURN(const int64_t with, OfPrompt(prompt + filler));
      if (with <= n || with > tokens) continue;
      prompt += filler, n = with, more = true;
      break;
    }
  }
  return prompt;
}

Result<std::vector<std::string>> LoadTokens::Prompts(const lab::LoadOptions& options,
                                                     std::optional<int64_t> tokens) const {
  std::vector<std::string> out;
  for (int64_t i = 0; i < options.requests; i++) {
    const bool traced = options.arrivals == lab::Arrivals::kTrace;
    const lab::TracedRequest* t = traced ? &options.trace[static_cast<size_t>(i)] : nullptr;
    if (t != nullptr && !t->prompt.empty()) {
      out.push_back(t->prompt);
      continue;
    }
    const auto asked = t != nullptr && t->prompt_tokens ? t->prompt_tokens : tokens;
    if (!asked) {
      out.push_back(lab::SyntheticPrompt(options, i, options.prompt_words));
      continue;
    }
    RIDGE_ASSIGN_OR_RETURN(std::string prompt, Synthetic(options, i, *asked));
    out.push_back(std::move(prompt));
  }
  return out;
}

Result<TokenCounts> LoadTokens::Count(lab::LoadRun& run, const std::vector<int64_t>& asked) const {
  TokenCounts c;
  for (size_t i = 0; i < run.records.size(); i++) {
    lab::RequestRecord& r = run.records[i];
    if (!r.error.empty()) continue;
    RIDGE_ASSIGN_OR_RETURN(const int64_t prompt, OfPrompt(r.prompt));
    if (r.prompt_tokens) {
      c.prompts++, c.prompt_own += prompt, c.prompt_usage += *r.prompt_tokens;
      c.prompts_differ += std::abs(prompt - *r.prompt_tokens) > 1;
      if (i < asked.size() && asked[i] > 0) c.prompts_off += std::abs(asked[i] - *r.prompt_tokens) > 1;
    }
    if (r.other_chunks > 0) continue;
    RIDGE_ASSIGN_OR_RETURN(const int64_t first, OfText(r.first_chunk));
    r.first_chunk_tokens = std::max<int64_t>(1, first);
    if (!r.output_tokens) continue;
    RIDGE_ASSIGN_OR_RETURN(const int64_t output, OfText(r.text));
    c.outputs++, c.output_own += output, c.output_usage += *r.output_tokens;
    c.outputs_differ += std::abs(output - *r.output_tokens) > 1;
  }
  return c;
}

}  // namespace ridge::app
