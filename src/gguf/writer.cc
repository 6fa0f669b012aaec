#include "gguf/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "base/checked.h"
#include "base/quantity.h"
#include "gguf/parse.h"

namespace ridge::gguf {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint64_t kMaxNameBytes = 65535;

template <class T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void PutString(std::string& out, std::string_view text) {
  Put<uint64_t>(out, text.size());
  out += text;
}

// Appends one number, stored as From, with the width that the file gives it. False: it does not fit.
template <class From>
bool PutNumber(std::string& out, ValueType type, From from) {
  const auto integer = [&]<class To>(To) {
    if constexpr (std::is_integral_v<From> && !std::is_same_v<From, bool>) {
      if (!std::in_range<To>(from)) return false;
      Put(out, static_cast<To>(from));
      return true;
    } else {
      return false;
    }
  };
  switch (type) {
    case ValueType::kU8: return integer(uint8_t{});
    case ValueType::kI8: return integer(int8_t{});
    case ValueType::kU16: return integer(uint16_t{});
    case ValueType::kI16: return integer(int16_t{});
    case ValueType::kU32: return integer(uint32_t{});
    case ValueType::kI32: return integer(int32_t{});
    case ValueType::kU64: return integer(uint64_t{});
    case ValueType::kI64: return integer(int64_t{});
    case ValueType::kF32:
      if constexpr (std::is_floating_point_v<From>) Put(out, static_cast<float>(from));
      return std::is_floating_point_v<From>;
    case ValueType::kF64:
      if constexpr (std::is_floating_point_v<From>) Put(out, static_cast<double>(from));
      return std::is_floating_point_v<From>;
    case ValueType::kBool:
      if constexpr (std::is_same_v<From, bool> || std::is_same_v<From, uint8_t>) {
        Put(out, static_cast<uint8_t>(from));
        return static_cast<uint8_t>(from) <= 1;
      }
      return false;
    case ValueType::kString:
    case ValueType::kArray: return false;
  }
  return false;
}

// False: `data` is not what the declared type says, or a number does not fit it.
bool PutValue(std::string& out, const Value& value) {
  Put(out, static_cast<uint32_t>(value.type));
  return std::visit(
      [&](const auto& held) {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::string>) {
          if (value.type != ValueType::kString) return false;
          PutString(out, held);
          return true;
        } else if constexpr (std::is_arithmetic_v<Held>) {
          return PutNumber(out, value.type, held);
        } else {
          if (value.type != ValueType::kArray) return false;
          Put(out, static_cast<uint32_t>(value.item_type));
          Put<uint64_t>(out, held.size());
          if constexpr (std::is_same_v<Held, std::vector<std::string>>) {
            if (value.item_type != ValueType::kString) return false;
            for (const std::string& item : held) PutString(out, item);
            return true;
          } else {
            if (held.empty()) return value.item_type <= ValueType::kF64 && value.item_type != ValueType::kArray;
            return std::all_of(held.begin(), held.end(),
                               [&](auto item) { return PutNumber(out, value.item_type, item); });
          }
        }
      },
      value.data);
}

Status PutMetadata(std::string& out, const Metadata& metadata) {
  for (const auto& [key, value] : metadata.entries()) {
    if (key.empty() || key.size() > kMaxNameBytes) {
      return Fail(Code::kInvalidArgument, "metadata key has a bad length")
          .Where("key " + Quoted(key))
          .Found(Count(key.size(), "byte"))
          .Expected(fmt::format("1 to {}", kMaxNameBytes));
    }
    PutString(out, key);
    if (!PutValue(out, value)) {
      return Fail(Code::kInvalidArgument, "metadata value does not fit its type")
          .Where("key " + Quoted(key))
          .Expected(value.TypeName());
    }
  }
  return {};
}

Fail BadTensor(const TensorSpec& tensor, const char* what) {
  return Fail(Code::kInvalidArgument, what).Where("tensor " + Quoted(tensor.name));
}

Result<uint64_t> SizeOf(const TensorSpec& tensor) {
  const std::string shape = fmt::format("shape [{}]", fmt::join(tensor.shape, ", "));
  if (tensor.name.empty() || tensor.name.size() > kMaxNameBytes) {
    return BadTensor(tensor, "tensor name has a bad length")
        .Expected(fmt::format("1 to {}", Count(kMaxNameBytes, "byte")));
  }
  if (tensor.type == nullptr) return BadTensor(tensor, "tensor has no type");
  if (tensor.shape.empty() || tensor.shape.size() > 4 ||
      std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) {
    return BadTensor(tensor, "tensor has a bad shape").Found(shape).Expected("1 to 4 dimensions of at least 1");
  }
  if (tensor.shape[0] % tensor.type->block_elements != 0) {
    return BadTensor(tensor, "tensor rows are not a whole number of blocks")
        .Found(fmt::format("row length {} of type {}", tensor.shape[0], tensor.type->name))
        .Expected(fmt::format("a multiple of {}", tensor.type->block_elements));
  }
  std::optional<uint64_t> elements = 1;
  for (const uint64_t length : tensor.shape) {
    if (elements) elements = CheckedMul(*elements, length);
  }
  if (elements && *elements <= INT64_MAX) {
    const auto size = CheckedMul(*elements / tensor.type->block_elements, tensor.type->block_bytes);
    if (size) return *size;
  }
  return BadTensor(tensor, "tensor is too large").Found(shape).Expected("fewer than 2^63 elements and 2^64 bytes");
}

}  // namespace

Result<Writer> Writer::Create(const std::string& path, const Metadata& metadata, std::vector<TensorSpec> tensors) {
  RIDGE_ASSIGN_OR_RETURN(const uint64_t alignment, metadata.GetOr<uint64_t>("general.alignment", 32));
  if (!std::has_single_bit(alignment) || alignment > UINT32_MAX) {
    return Fail(Code::kInvalidArgument, "alignment is not a power of two")
        .Where("key \"general.alignment\"")
        .Found(fmt::format("{}", alignment))
        .Expected("a power of two such as 32");
  }
  std::string header = "GGUF";
  Put(header, kVersion);
  Put<uint64_t>(header, tensors.size());
  Put<uint64_t>(header, metadata.entries().size());
  RIDGE_RETURN_IF_ERROR(PutMetadata(header, metadata));

  std::vector<uint64_t> sizes_bytes;
  std::set<std::string_view> names;
  std::optional<uint64_t> offset = 0;
  for (const TensorSpec& tensor : tensors) {
    RIDGE_ASSIGN_OR_RETURN(const uint64_t size, SizeOf(tensor));
    if (!names.insert(tensor.name).second)
      return BadTensor(tensor, "two tensors have the same name").Expected("unique names");
    PutString(header, tensor.name);
    Put<uint32_t>(header, static_cast<uint32_t>(tensor.shape.size()));
    for (const uint64_t length : tensor.shape) Put(header, length);
    Put(header, static_cast<uint32_t>(tensor.type->id));
    Put(header, *offset);
    sizes_bytes.push_back(size);
    offset = CheckedAdd(*offset, size);
    if (offset) offset = CheckedRoundUp(*offset, alignment);
    if (!offset) return BadTensor(tensor, "file would be too large").Expected("fewer than 2^64 bytes");
  }
  if (!tensors.empty()) header.resize((header.size() + alignment - 1) / alignment * alignment, '\0');
  const std::optional<uint64_t> file_size = CheckedAdd(*offset, header.size());
  if (!file_size)
    return Fail(Code::kInvalidArgument, "file would be too large").Where(path).Expected("fewer than 2^64 bytes");

  RIDGE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  RIDGE_RETURN_IF_ERROR(file.Reserve(*file_size));
  RIDGE_RETURN_IF_ERROR(file.Write(header));
  Writer writer(std::move(file));
  writer.tensors_ = std::move(tensors);
  writer.sizes_bytes_ = std::move(sizes_bytes);
  writer.alignment_ = alignment;
  writer.file_size_bytes_ = *file_size;
  return writer;
}

Status Writer::Append(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  const uint64_t left = next_ < tensors_.size() ? sizes_bytes_[next_] - tensor_written_ : 0;
  if (bytes.size() > left) {
    return Fail(Code::kInternal, "more tensor data than declared")
        .Where(next_ < tensors_.size() ? "tensor " + Quoted(tensors_[next_].name) : "after the last tensor")
        .Found(Count(bytes.size(), "byte"))
        .Expected(fmt::format("at most {}", left));
  }
  RIDGE_RETURN_IF_ERROR(file_.Write(bytes));
  tensor_written_ += bytes.size();
  if (tensor_written_ < sizes_bytes_[next_]) return {};
  ++next_;
  tensor_written_ = 0;
  std::string zeros(4096, '\0');
  for (uint64_t pad = (alignment_ - file_.size_bytes() % alignment_) % alignment_; pad > 0;) {
    const uint64_t piece = std::min<uint64_t>(pad, zeros.size());
    RIDGE_RETURN_IF_ERROR(file_.Write(std::string_view(zeros).substr(0, piece)));
    pad -= piece;
  }
  return {};
}

Status Writer::Commit() {
  if (next_ < tensors_.size()) {
    return Fail(Code::kInternal, "tensor data is missing")
        .Where("tensor " + Quoted(tensors_[next_].name))
        .Found(Count(tensor_written_, "byte"))
        .Expected(fmt::format("{}", sizes_bytes_[next_]));
  }
  return file_.Commit();
}

}  // namespace ridge::gguf
