// Small vocabularies built in memory, for tests and fuzzing.
//
//   TestVocabulary v = TestVocabulary::ByteLevel("qwen2");     // the 256 bytes, ids 0 to 255
//   v.Token("he").Token("<|im_end|>", kControlType).Merge("h e");
//   auto tokenizer = Tokenizer::FromMetadata(v.Metadata());
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gguf/gguf.h"
#include "text/utf8.h"

namespace ridge::text::test {

inline constexpr int kNormalType = 1;
inline constexpr int kUnknownType = 2;
inline constexpr int kControlType = 3;
inline constexpr int kUserDefinedType = 4;
inline constexpr int kUnusedType = 5;
inline constexpr int kByteType = 6;

struct TestVocabulary {
  std::string model = "gpt2";
  std::string pre;
  std::vector<std::string> tokens;
  std::vector<int64_t> types;
  std::vector<double> scores;
  std::vector<std::string> merges;
  std::vector<std::pair<std::string, gguf::Value>>
      more;  // further keys, after "tokenizer.ggml." unless they hold a dot

  static TestVocabulary ByteLevel(std::string pre) {
    TestVocabulary v;
    v.pre = std::move(pre);
    for (int byte = 0; byte < 256; ++byte) {
      std::string text;
      AppendUtf8(ByteToPrintable(static_cast<uint8_t>(byte)), text);
      v.Token(text);
    }
    return v;
  }

  // <unk> <s> </s>, then the 256 bytes: ids 3 to 258.
  static TestVocabulary SentencePiece() {
    TestVocabulary v;
    v.model = "llama";
    v.Token("<unk>", kUnknownType).Token("<s>", kControlType).Token("</s>", kControlType);
    for (int byte = 0; byte < 256; ++byte) {
      static constexpr char kHex[] = "0123456789ABCDEF";
      v.Token(std::string("<0x") + kHex[byte >> 4] + kHex[byte & 15] + ">", kByteType);
    }
    return v;
  }

  TestVocabulary& Token(std::string text, int type = kNormalType, double score = 0) {
    tokens.push_back(std::move(text));
    types.push_back(type);
    scores.push_back(score);
    return *this;
  }
  TestVocabulary& Merge(std::string line) {
    merges.push_back(std::move(line));
    return *this;
  }
  TestVocabulary& Key(std::string name, gguf::Value value) {
    more.emplace_back(std::move(name), std::move(value));
    return *this;
  }

  gguf::Metadata Metadata() const {
    gguf::Metadata metadata;
    const auto add = [&](const std::string& key, gguf::Value value) {
      (void)metadata.Add(key.find('.') == key.npos ? "tokenizer.ggml." + key : key, std::move(value));
    };
    for (const auto& [key, value] : more) add(key, value);  // first, so that they win over the defaults below
    add("model", gguf::Value::String(model));
    if (!pre.empty()) add("pre", gguf::Value::String(pre));
    add("tokens", gguf::Value::Strings(tokens));
    add("token_type", gguf::Value::I32s(types));
    add("scores", gguf::Value::F32s(scores));
    add("merges", gguf::Value::Strings(merges));
    return metadata;
  }
};

}  // namespace ridge::text::test
