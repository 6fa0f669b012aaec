#include "text/stream_decoder.h"

#include "text/utf8.h"

namespace ridge::text {

std::string StreamDecoder::Push(TokenId id) {
  if (!special_ && tokenizer_->IsControl(id)) return {};
  held_ += tokenizer_->Piece(id);
  // Only the start of one code point can be waiting, so everything before it is final: whole, or broken for good.
  size_t ready = 0;
  while (ready < held_.size()) {
    const CodePoint c = DecodeUtf8(held_, ready);
    if (c.truncated) break;
    ready += c.length_bytes;
  }
  std::string out = ReplaceInvalidUtf8(std::string_view(held_).substr(0, ready));
  held_.erase(0, ready);
  return out;
}

std::string StreamDecoder::Flush() {
  std::string out = ReplaceInvalidUtf8(held_);
  held_.clear();
  return out;
}

}  // namespace ridge::text
