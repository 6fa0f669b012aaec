// GGUF files built in memory for tests, good or bad: every field can be given any value.
//
//   Builder b;
//   b.Key("general.architecture", ValueType::kString, Str("llama")).Tensor("w", {32, 2}, 0, 0).Data(256);
//   auto shard = Parse(b.Bytes(), "test");
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"
#include "gguf/parse.h"

namespace ridge::gguf::test {

template <class T>
std::string Raw(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}

inline std::string Str(std::string_view text) { return Raw<uint64_t>(text.size()) + std::string(text); }

inline std::string Array(ValueType item_type, uint64_t count, const std::string& items) {
  return Raw(static_cast<uint32_t>(item_type)) + Raw(count) + items;
}

class Builder {
 public:
  std::string magic = "GGUF";
  uint32_t version = 3;
  int64_t extra_tensors = 0;  // added to the counts in the header
  int64_t extra_keys = 0;
  uint64_t alignment = 32;  // of the padding before the data; the key is separate

  Builder& Key(std::string_view key, ValueType type, const std::string& value) {
    return RawKey(key, static_cast<uint32_t>(type), value);
  }
  Builder& RawKey(std::string_view key, uint32_t type, const std::string& value) {
    keys_ += Str(key) + Raw(type) + value;
    ++n_keys_;
    return *this;
  }
  Builder& Tensor(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type, uint64_t offset) {
    tensors_ += Str(name) + Raw(static_cast<uint32_t>(shape.size()));
    for (const uint64_t length : shape) tensors_ += Raw(length);
    tensors_ += Raw(type) + Raw(offset);
    ++n_tensors_;
    return *this;
  }
  Builder& Data(size_t size_bytes) {
    for (size_t i = 0; i < size_bytes; ++i) data_ += static_cast<char>(i * 7 + 1);
    return *this;
  }
  std::string Text() const {
    std::string out = magic + Raw(version) + Raw(static_cast<uint64_t>(n_tensors_ + extra_tensors)) +
                      Raw(static_cast<uint64_t>(n_keys_ + extra_keys)) + keys_ + tensors_;
    if (!data_.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    return out + data_;
  }

 private:
  std::string keys_, tensors_, data_;
  int64_t n_keys_ = 0, n_tensors_ = 0;
};

inline std::span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

inline void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Reads everything that an accepted file offers, as its users do. False: a guarantee of the reader does not hold.
inline bool WalkShard(const ParsedShard& shard, std::span<const std::byte> bytes) {
  unsigned sum = 0;
  const Metadata& metadata = shard.metadata;
  for (const auto& [key, value] : metadata.entries()) {
    if (metadata.Find(key) != &value) return false;
    sum += static_cast<unsigned>(value.TypeName().size() + value.length());
    sum += metadata.Get<uint64_t>(key).has_value() + metadata.Get<double>(key).has_value();
    sum += metadata.Get<std::string>(key).has_value() + metadata.Strings(key).has_value();
    sum += metadata.Get<std::vector<int64_t>>(key).has_value() + metadata.Get<std::vector<uint8_t>>(key).has_value();
    sum += metadata.GetPerLayer<bool>(key, 3).has_value();
  }
  std::vector<float> decoded;
  for (const TensorInfo& tensor : shard.tensors) {
    if (tensor.shape.empty() || tensor.offset_bytes % shard.alignment != 0) return false;
    if (tensor.offset_bytes > bytes.size() || tensor.size_bytes > bytes.size() - tensor.offset_bytes) return false;
    sum += static_cast<unsigned>(tensor.rows());
    const auto data = bytes.subspan(tensor.offset_bytes, tensor.size_bytes);
    for (const std::byte byte : data) sum += std::to_integer<unsigned>(byte);
    if (tensor.type == nullptr) continue;
    const uint64_t n_blocks = tensor.size_bytes / tensor.type->block_bytes;
    if (n_blocks * tensor.type->block_elements != tensor.elements()) return false;
    if (tensor.type->decode == nullptr) continue;
    decoded.resize(tensor.elements());
    tensor.type->decode(data.data(), decoded.data(), n_blocks);
  }
  volatile unsigned keep = sum;  // the reads must not be optimized away
  (void)keep;
  return true;
}

}  // namespace ridge::gguf::test
