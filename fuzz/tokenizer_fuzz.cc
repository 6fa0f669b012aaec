// Any vocabulary and any text: an error, or ids that keep the tokenizer's promises.
//
// Input: options, pre-tokenizer, then tokens and merges, each with a length byte, until a zero; the rest is the text.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "text/pre_tokenizers.h"
#include "text/stream_decoder.h"
#include "text/test_vocabulary.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using ridge::gguf::Value;
using ridge::text::test::TestVocabulary;

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  uint8_t Next() {
    if (rest_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return byte;
  }
  std::string Take(size_t size) {
    std::string out(rest_.substr(0, size));
    rest_.remove_prefix(out.size());
    return out;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ridge;
  Bytes in(data, size);
  const uint8_t options = in.Next();
  const auto pres = text::PreTokenizers();
  const text::PreTokenizer& pre = pres[in.Next() % pres.size()];
  constexpr const char* kModels[] = {"gpt2", "llama", "bert", "gemma4"};
  const std::string model = kModels[options & 3];
  const bool bytes_known = (options & 4) != 0;  // every byte has its token: then the text comes back whole
  TestVocabulary vocabulary;
  if (bytes_known) {
    vocabulary = model == "gpt2" ? TestVocabulary::ByteLevel(std::string(pre.name)) : TestVocabulary::SentencePiece();
  }
  const size_t base = vocabulary.tokens.size();
  vocabulary.model = model;
  vocabulary.pre = pre.name;
  for (uint8_t head = in.Next(); head != 0; head = in.Next()) {
    std::string token = in.Take(head & 15);
    if ((head & 16) != 0) vocabulary.Merge(token);
    vocabulary.Token(std::move(token), 1 + (head >> 5) % 6, in.Next());
  }
  vocabulary.Token("[end]", text::test::kControlType);
  vocabulary.Key("bos_token_id", Value::U32(in.Next()));
  vocabulary.Key("add_space_prefix", Value::Bool((options & 8) != 0));
  const auto made = text::Tokenizer::FromMetadata(vocabulary.Metadata());
  if (!made) {
    RIDGE_CHECK(!made.error().Message().empty());
    return 0;
  }
  const text::Tokenizer& tokenizer = **made;
  const std::string clean = text::ReplaceInvalidUtf8(in.rest());
  for (const bool parse_special : {false, true}) {
    const auto ids = tokenizer.Encode(in.rest(), {.add_special = false, .parse_special = parse_special});
    // Too much work, or a byte that an incomplete vocabulary cannot say.
    RIDGE_CHECK(ids.has_value() || ids.error().code == Code::kResourceExhausted ||
                ids.error().found.starts_with("byte "));
    if (!ids) continue;
    text::StreamDecoder decoder(tokenizer, parse_special);
    std::string streamed;
    for (const text::TokenId id : *ids) {
      RIDGE_CHECK(id >= 0 && static_cast<size_t>(id) < tokenizer.vocab_size());
      RIDGE_CHECK(parse_special || !tokenizer.IsControl(id) || id == tokenizer.unk());
      const std::string chunk = decoder.Push(id);
      RIDGE_CHECK(!text::FirstInvalidUtf8(chunk));
      streamed += chunk;
    }
    streamed += decoder.Flush();
    const std::string decoded = tokenizer.Decode(*ids, parse_special);
    RIDGE_CHECK(text::ReplaceInvalidUtf8(decoded).size() <= streamed.size());
    // Byte-level vocabularies without further tokens that could print nothing give the text back.
    if (bytes_known && model == "gpt2" && pre.byte_level && vocabulary.tokens.size() == base + 1)
      RIDGE_CHECK(decoded == clean);
  }
  return 0;
}
