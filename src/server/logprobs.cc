#include "server/logprobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/stream_decoder.h"
#include "text/utf8.h"

namespace ridge::server {
namespace {

using Json = nlohmann::ordered_json;

// OpenAI's value for "next to impossible"; JSON has no minus infinity.
constexpr float kLeast = -9999.0f;

std::string Number(float value) { return fmt::format("{}", std::isfinite(value) ? std::min(value, 0.0f) : kLeast); }

std::string Quoted(std::string_view text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

void Append(std::string& list, std::string_view item) {
  if (!list.empty()) list += ",";
  list += item;
}

size_t CountCharacters(std::string_view utf8) {
  return static_cast<size_t>(
      std::ranges::count_if(utf8, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string ChatToken(std::string_view piece, float logprob) {
  std::string bytes;
  for (const char c : piece) Append(bytes, std::to_string(static_cast<unsigned char>(c)));
  return fmt::format(R"("token":{},"logprob":{},"bytes":[{}])", Quoted(text::ReplaceInvalidUtf8(piece)),
                     Number(logprob), bytes);
}

}  // namespace

std::string LogprobText::Name(TokenId token) const {
  const std::string_view piece = tokenizer_->Piece(token);
  if (!text::FirstInvalidUtf8(piece)) return Quoted(piece);
  std::string name = "bytes:";
  for (const char c : piece) fmt::format_to(std::back_inserter(name), "\\x{:02x}", static_cast<unsigned char>(c));
  return Quoted(name);
}

void LogprobText::Add(const service::ScoredToken& scored, std::string_view answer, std::string_view echo) {
  if (chat_) {
    std::string top;
    for (const auto& [token, logprob] : scored.top)
      Append(top, fmt::format("{{{}}}", ChatToken(tokenizer_->Piece(token), logprob)));
    Append(content_, fmt::format(R"({{{},"top_logprobs":[{}]}})",
                                 ChatToken(tokenizer_->Piece(scored.token), scored.logprob), top));
    return;
  }
  if (at_bytes_ == 0) at_chars_ = CountCharacters(echo);
  const size_t begin = std::min(scored.begin_bytes, answer.size());
  if (begin > at_bytes_) at_chars_ += CountCharacters(answer.substr(at_bytes_, begin - at_bytes_));
  at_bytes_ = std::max(at_bytes_, begin);
  Append(tokens_, Name(scored.token));
  Append(values_, Number(scored.logprob));
  Append(offsets_, std::to_string(at_chars_));
  AddTop(scored);
}

void LogprobText::AddPrompt(std::span<const TokenId> ids, std::span<const service::ScoredToken> scored,
                            std::string_view text, bool special) {
  text::StreamDecoder decoder(*tokenizer_, special);
  std::string decoded;
  std::vector<size_t> begins;
  for (const TokenId id : ids) {
    begins.push_back(decoded.size());
    decoded += decoder.Push(id);
  }
  decoded += decoder.Flush();
  // SentencePiece puts a space before a text.
  const size_t extra = decoded.starts_with(' ') && !text.starts_with(' ') ? 1 : 0;
  size_t at = 0, characters = 0;
  for (size_t i = 0; i < ids.size(); i++) {
    const size_t begin = std::min(begins[i] - std::min(begins[i], extra), text.size());
    characters += CountCharacters(text.substr(at, begin - at));
    at = begin;
    Append(tokens_, Name(ids[i]));
    Append(offsets_, std::to_string(characters));
    if (i == 0) {  // nothing stands before it that it could follow from
      Append(values_, "null");
      Append(top_, "null");
    } else if (i <= scored.size()) {
      Append(values_, Number(scored[i - 1].logprob));
      AddTop(scored[i - 1]);
    }
  }
}

void LogprobText::AddTop(const service::ScoredToken& scored) {
  if (scored.top.empty()) return;
  tops_ = true;
  std::string top;
  bool chosen = false;
  for (const auto& [token, logprob] : scored.top) {
    chosen = chosen || token == scored.token;
    Append(top, fmt::format("{}:{}", Name(token), Number(logprob)));
  }
  if (!chosen) Append(top, fmt::format("{}:{}", Name(scored.token), Number(scored.logprob)));
  Append(top_, fmt::format("{{{}}}", top));
}

std::string LogprobText::Object(std::string_view nothing) const {
  if (chat_) {
    return content_.empty() ? std::string(nothing) : fmt::format(R"({{"content":[{}],"refusal":null}})", content_);
  }
  if (tokens_.empty()) return std::string(nothing);
  return fmt::format(R"({{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":{},"text_offset":[{}]}})", tokens_,
                     values_, tops_ ? fmt::format("[{}]", top_) : "null", offsets_);
}

std::string LogprobText::Take() {
  std::string out = Object("null");
  for (std::string* list : {&content_, &tokens_, &values_, &top_, &offsets_}) list->clear();
  return out;
}

std::string LogprobText::Whole() const {
  return Object(chat_ ? R"({"content":[],"refusal":null})"
                      : R"({"tokens":[],"token_logprobs":[],"top_logprobs":null,"text_offset":[]})");
}

}  // namespace ridge::server
