// Log-probabilities of generated tokens as OpenAI's JSON: the chat form and the older form of completions.
//
//   LogprobText text(true, tokenizer);
//   text.Add(scored, answer_so_far, "");
//   out += text.Take();                 // {"content":[...],"refusal":null}: of the tokens since the last Take
//
// Guarantees: a token's bytes are exact in the chat form; where they are not UTF-8 its text has U+FFFD, or in the older form "bytes:\xe2\x80".
// Numbers are the shortest decimals that give the same float.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "service/service.h"
#include "text/tokenizer.h"

namespace ridge::server {

class LogprobText {
 public:
  LogprobText() = default;
  LogprobText(bool chat, const text::Tokenizer& tokenizer) : chat_(chat), tokenizer_(&tokenizer) {}

  // answer: the text up to now, this token's included; echo: what stands before it.
  void Add(const service::ScoredToken& scored, std::string_view answer, std::string_view echo);
  // Those of a prompt, before anything else: scored are its tokens but the first; text is what was asked, special: with control tokens spelled out.
  void AddPrompt(std::span<const TokenId> ids, std::span<const service::ScoredToken> scored, std::string_view text,
                 bool special);
  std::string Take();         // since the last Take; "null" when nothing came
  std::string Whole() const;  // an object, empty lists when nothing came

 private:
  std::string Object(std::string_view nothing) const;
  std::string Name(TokenId token) const;
  void AddTop(const service::ScoredToken& scored);

  bool chat_ = false;
  const text::Tokenizer* tokenizer_ = nullptr;
  std::string content_, tokens_, values_, top_, offsets_;  // inside of JSON lists
  bool tops_ = false;
  size_t at_bytes_ = 0, at_chars_ = 0;  // how far the answer's characters are counted
};

}  // namespace ridge::server
