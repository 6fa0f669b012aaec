#include "gguf/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/checked.h"
#include "base/quantity.h"

static_assert(std::endian::native == std::endian::little, "GGUF is read in place, little endian");

namespace ridge::gguf {

std::string Quoted(std::string_view name) {
  constexpr size_t kLongest = 120;
  if (name.size() <= kLongest) return fmt::format("\"{}\"", name);
  return fmt::format("\"{}...\" ({})", name.substr(0, kLongest), Count(name.size(), "byte"));
}

namespace {

constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxNameBytes = 65535;           // the specification's limit for keys; no tensor name comes near it
constexpr uint64_t kMaxElements = INT64_MAX;        // tools count elements in signed 64 bits
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;  // key length, key, value type, smallest value
constexpr uint64_t kMinTensorBytes =
    8 + 1 + 4 + 8 + 4 + 8;  // name length, name, dimension count, one dimension, type, offset
constexpr uint64_t kMemorySlackBytes = 64 << 10;

// Reads fixed-size values and strings in order; false, and nothing consumed, when the bytes end first.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  bool Read(T& out) {
    if (left() < sizeof(T)) return false;
    std::memcpy(&out, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }

  bool ReadString(std::string_view& out) {
    uint64_t size = 0;
    if (left() < sizeof(size)) return false;
    std::memcpy(&size, bytes_.data() + position_, sizeof(size));
    if (size > left() - sizeof(size)) return false;
    out = {reinterpret_cast<const char*>(bytes_.data()) + position_ + sizeof(size), static_cast<size_t>(size)};
    position_ += sizeof(size) + size;
    return true;
  }

  const std::byte* Take(uint64_t size) {  // the caller has checked left()
    const std::byte* at = bytes_.data() + position_;
    position_ += size;
    return at;
  }

  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }

 private:
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

// Width of a value in the file; 0 for strings, arrays and unknown types.
uint64_t ItemBytes(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool: return 1;
    case ValueType::kU16:
    case ValueType::kI16: return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32: return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64: return 8;
    case ValueType::kString:
    case ValueType::kArray: return 0;
  }
  return 0;
}

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes), name_(name), cursor_(bytes) {}

  Result<ParsedShard> Run() {
    RIDGE_RETURN_IF_ERROR(ReadHeader());
    RIDGE_RETURN_IF_ERROR(ReadMetadata());
    RIDGE_RETURN_IF_ERROR(ReadAlignment());
    RIDGE_RETURN_IF_ERROR(ReadTensors());
    RIDGE_RETURN_IF_ERROR(PlaceTensors());
    return std::move(shard_);
  }

 private:
  Status ReadHeader();
  Status ReadMetadata();
  Status ReadAlignment();
  Status ReadTensors();
  Status PlaceTensors();
  Result<Value> ReadValue(std::string_view key, uint32_t type);
  Result<Value> ReadArray(std::string_view key);
  Result<TensorInfo> ReadTensor(uint64_t index);
  Status SizeTensor(TensorInfo& tensor) const;
  Status CheckOverlaps() const;
  Status CheckCount(const char* what, uint64_t count, uint64_t min_file_bytes, uint64_t item_memory_bytes) const;

  std::string AtKey(std::string_view key) const { return fmt::format("{}: key {}", name_, Quoted(key)); }
  std::string AtTensor(std::string_view tensor) const { return fmt::format("{}: tensor {}", name_, Quoted(tensor)); }
  Error Truncated(std::string where, std::string expected) const {
    return Fail(Code::kInvalidData, "file ends too early")
        .Where(std::move(where))
        .Found(fmt::format("{} left at byte {}", Count(cursor_.left(), "byte"), cursor_.position()))
        .Expected(std::move(expected))
        .Remedy("the file is damaged or its download stopped early; fetch it again")
        .Take();
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  Cursor cursor_;
  uint64_t n_tensors_ = 0;
  uint64_t n_entries_ = 0;
  ParsedShard shard_;
};

// What a file without the magic probably is, so that the remedy fits.
std::string RemedyForMagic(std::string_view start) {
  if (start.starts_with("version https://git-lfs"))
    return "this is a Git LFS pointer, not the model; fetch the file itself";
  if (start.starts_with("<!") || start.starts_with("<htm"))
    return "this is a web page, not the model; fetch the file itself";
  if (start.starts_with("ggjt") || start.starts_with("tjgg") || start.starts_with("lmgg") ||
      start.starts_with("fmgg")) {
    return "this is an older ggml format; convert the model again to GGUF";
  }
  return "give the path of a GGUF model";
}

Status Parser::ReadHeader() {
  if (bytes_.empty())
    return Fail(Code::kInvalidData, "file is empty").Where(name_).Expected("a GGUF file").Remedy("fetch it again");
  const std::string_view start(reinterpret_cast<const char*>(bytes_.data()), std::min<size_t>(bytes_.size(), 64));
  if (!start.starts_with("GGUF")) {
    std::string hex;
    for (const char c : start.substr(0, 4)) hex += fmt::format("{:02x} ", static_cast<unsigned char>(c));
    return Fail(Code::kInvalidData, "not a GGUF file")
        .Where(name_)
        .Found("first bytes " + hex.substr(0, hex.size() - 1))
        .Expected("47 47 55 46 (\"GGUF\")")
        .Remedy(RemedyForMagic(start));
  }
  cursor_.Take(4);
  if (!cursor_.Read(shard_.version)) return std::unexpected(Truncated(name_, "the 4 bytes of the format version"));
  // A version never reaches 65536, so one whose low half is empty was written in the other byte order.
  if (shard_.version != 0 && (shard_.version & 0xffff) == 0) {
    return Fail(Code::kUnsupported, "GGUF file in the other byte order (big endian)")
        .Where(name_)
        .Found(fmt::format("version {} when its bytes are swapped", std::byteswap(shard_.version)))
        .Expected("a little-endian file")
        .Remedy("convert the model for little-endian machines");
  }
  if (shard_.version != 2 && shard_.version != 3) {
    return Fail(Code::kUnsupported, "GGUF version is not supported")
        .Where(name_)
        .Found(fmt::format("version {}", shard_.version))
        .Expected("2 or 3")
        .Remedy("convert the model again with a current tool");
  }
  if (!cursor_.Read(n_tensors_) || !cursor_.Read(n_entries_)) {
    return std::unexpected(Truncated(name_, "the tensor count and the metadata count, 16 bytes"));
  }
  RIDGE_RETURN_IF_ERROR(CheckCount("tensor count", n_tensors_, kMinTensorBytes, sizeof(TensorInfo)));
  return CheckCount("metadata count", n_entries_, kMinEntryBytes, sizeof(std::pair<std::string, Value>));
}

Status Parser::CheckCount(const char* what, uint64_t count, uint64_t min_file_bytes, uint64_t item_memory_bytes) const {
  const uint64_t most = cursor_.left() / min_file_bytes;
  if (count > most) {
    return Fail(Code::kInvalidData, fmt::format("{} is larger than the file can hold", what))
        .Where(name_)
        .Found(fmt::format("{}", count))
        .Expected(fmt::format("at most {} in {}", most, Count(cursor_.left(), "byte")))
        .Remedy("the file is damaged; fetch it again");
  }
  if (count * item_memory_bytes > 2 * bytes_.size() + kMemorySlackBytes) {  // no overflow: count <= bytes_.size() / 14
    return Fail(Code::kOutOfRange, fmt::format("{} needs memory out of proportion to the file", what))
        .Where(name_)
        .Found(fmt::format("{} in a file of {}", Count(count, "entry"), Count(bytes_.size(), "byte")))
        .Expected(fmt::format("at most {}", (2 * bytes_.size() + kMemorySlackBytes) / item_memory_bytes));
  }
  return {};
}

Status Parser::ReadMetadata() {
  shard_.metadata.Reserve(n_entries_);
  for (uint64_t i = 0; i < n_entries_; ++i) {
    std::string_view key;
    uint32_t type = 0;
    const std::string where = fmt::format("{}: metadata key {} of {}", name_, i + 1, n_entries_);
    if (!cursor_.ReadString(key)) return std::unexpected(Truncated(where, "the key's length and bytes"));
    if (key.empty() || key.size() > kMaxNameBytes) {
      return Fail(Code::kInvalidData, "metadata key has a bad length")
          .Where(where)
          .Found(Count(key.size(), "byte"))
          .Expected(fmt::format("1 to {}", kMaxNameBytes));
    }
    if (!cursor_.Read(type)) return std::unexpected(Truncated(AtKey(key), "the 4 bytes of the value's type"));
    RIDGE_ASSIGN_OR_RETURN(Value value, ReadValue(key, type));
    if (Status added = shard_.metadata.Add(std::string(key), std::move(value)); !added) {
      Error error = std::move(added).error();
      error.code = Code::kInvalidData;
      error.where = AtKey(key);
      return std::unexpected(std::move(error));
    }
  }
  return {};
}

template <class T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

Result<Value> Parser::ReadValue(std::string_view key, uint32_t type) {
  if (type > static_cast<uint32_t>(ValueType::kF64)) {
    return Fail(Code::kInvalidData, "metadata value has an unknown type")
        .Where(AtKey(key))
        .Found(fmt::format("type {}", type))
        .Expected("0 to 12");
  }
  Value value;
  value.type = static_cast<ValueType>(type);
  if (value.type == ValueType::kArray) return ReadArray(key);
  if (value.type == ValueType::kString) {
    std::string_view text;
    if (!cursor_.ReadString(text)) return std::unexpected(Truncated(AtKey(key), "the string's length and bytes"));
    value.data = std::string(text);
    return value;
  }
  const uint64_t size = ItemBytes(value.type);
  if (cursor_.left() < size)
    return std::unexpected(Truncated(AtKey(key), fmt::format("a value of {}", Count(size, "byte"))));
  const std::byte* at = cursor_.Take(size);
  switch (value.type) {
    case ValueType::kU8: value.data = uint64_t{Load<uint8_t>(at)}; break;
    case ValueType::kU16: value.data = uint64_t{Load<uint16_t>(at)}; break;
    case ValueType::kU32: value.data = uint64_t{Load<uint32_t>(at)}; break;
    case ValueType::kU64: value.data = Load<uint64_t>(at); break;
    case ValueType::kI8: value.data = int64_t{Load<int8_t>(at)}; break;
    case ValueType::kI16: value.data = int64_t{Load<int16_t>(at)}; break;
    case ValueType::kI32: value.data = int64_t{Load<int32_t>(at)}; break;
    case ValueType::kI64: value.data = Load<int64_t>(at); break;
    case ValueType::kF32: value.data = double{Load<float>(at)}; break;
    case ValueType::kF64: value.data = Load<double>(at); break;
    case ValueType::kBool: {
      const auto byte = Load<uint8_t>(at);
      if (byte > 1) {
        return Fail(Code::kInvalidData, "metadata value is not a bool")
            .Where(AtKey(key))
            .Found(fmt::format("byte {}", byte))
            .Expected("0 or 1");
      }
      value.data = byte == 1;
      break;
    }
    case ValueType::kString:
    case ValueType::kArray: break;
  }
  return value;
}

template <class To, class From>
std::vector<To> Widen(const std::byte* at, uint64_t count) {
  std::vector<To> out(count);
  if constexpr (std::is_same_v<To, From>) {
    if (count > 0) std::memcpy(out.data(), at, count * sizeof(To));
  } else {
    for (uint64_t i = 0; i < count; ++i) out[i] = static_cast<To>(Load<From>(at + i * sizeof(From)));
  }
  return out;
}

Result<Value> Parser::ReadArray(std::string_view key) {
  uint32_t item_type = 0;
  uint64_t count = 0;
  if (!cursor_.Read(item_type) || !cursor_.Read(count)) {
    return std::unexpected(Truncated(AtKey(key), "the array's item type and length, 12 bytes"));
  }
  Value value;
  value.type = ValueType::kArray;
  value.item_type = static_cast<ValueType>(item_type);
  if (value.item_type == ValueType::kArray) {
    return Fail(Code::kUnsupported, "metadata holds an array of arrays")
        .Where(AtKey(key))
        .Found("array[array]")
        .Expected("an array of scalars or strings");
  }
  if (item_type > static_cast<uint32_t>(ValueType::kF64)) {
    return Fail(Code::kInvalidData, "metadata array has an unknown item type")
        .Where(AtKey(key))
        .Found(fmt::format("type {}", item_type))
        .Expected("0 to 12");
  }
  const bool strings = value.item_type == ValueType::kString;
  const uint64_t item_bytes = strings ? 8 : ItemBytes(value.item_type);  // of a string: at least its length
  if (count > cursor_.left() / item_bytes) {
    return std::unexpected(Truncated(AtKey(key), fmt::format("{} of {}{}", Count(count, "item"),
                                                             strings ? "at least " : "", Count(item_bytes, "byte"))));
  }
  if (strings) {
    if (count * sizeof(std::string) > 2 * bytes_.size() + kMemorySlackBytes) {
      return Fail(Code::kOutOfRange, "metadata array needs memory out of proportion to the file")
          .Where(AtKey(key))
          .Found(fmt::format("{} in a file of {}", Count(count, "string"), Count(bytes_.size(), "byte")))
          .Expected(fmt::format("at most {}", (2 * bytes_.size() + kMemorySlackBytes) / sizeof(std::string)));
    }
    std::vector<std::string> items;
    items.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      std::string_view text;
      if (!cursor_.ReadString(text)) {
        return std::unexpected(Truncated(AtKey(key), fmt::format("string {} of {}", i, count)));
      }
      items.emplace_back(text);
    }
    value.data = std::move(items);
    return value;
  }
  const std::byte* at = cursor_.Take(count * item_bytes);
  switch (value.item_type) {
    case ValueType::kU8: value.data = Widen<uint8_t, uint8_t>(at, count); break;
    case ValueType::kI8: value.data = Widen<int8_t, int8_t>(at, count); break;
    case ValueType::kU16: value.data = Widen<uint16_t, uint16_t>(at, count); break;
    case ValueType::kI16: value.data = Widen<int16_t, int16_t>(at, count); break;
    case ValueType::kU32: value.data = Widen<uint64_t, uint32_t>(at, count); break;
    case ValueType::kI32: value.data = Widen<int64_t, int32_t>(at, count); break;
    case ValueType::kU64: value.data = Widen<uint64_t, uint64_t>(at, count); break;
    case ValueType::kI64: value.data = Widen<int64_t, int64_t>(at, count); break;
    case ValueType::kF32: value.data = Widen<double, float>(at, count); break;
    case ValueType::kF64: value.data = Widen<double, double>(at, count); break;
    case ValueType::kBool: {
      std::vector<uint8_t> items = Widen<uint8_t, uint8_t>(at, count);
      const auto bad = std::find_if(items.begin(), items.end(), [](uint8_t byte) { return byte > 1; });
      if (bad != items.end()) {
        return Fail(Code::kInvalidData, "metadata array holds what is not a bool")
            .Where(fmt::format("{}, item {}", AtKey(key), bad - items.begin()))
            .Found(fmt::format("byte {}", *bad))
            .Expected("0 or 1");
      }
      value.data = std::move(items);
      break;
    }
    case ValueType::kString:
    case ValueType::kArray: break;
  }
  return value;
}

Status Parser::ReadAlignment() {
  static const std::string kKey = "general.alignment";
  Result<uint64_t> alignment = shard_.metadata.GetOr<uint64_t>(kKey, kDefaultAlignment);
  if (!alignment) {
    alignment.error().where = AtKey(kKey);
    return std::unexpected(std::move(alignment).error());
  }
  shard_.alignment = *alignment;
  if (!std::has_single_bit(shard_.alignment)) {
    return Fail(Code::kInvalidData, "alignment is not a power of two")
        .Where(AtKey(kKey))
        .Found(fmt::format("{}", shard_.alignment))
        .Expected("a power of two such as 32");
  }
  return {};
}

Status Parser::ReadTensors() {
  shard_.tensors.reserve(n_tensors_);
  for (uint64_t i = 0; i < n_tensors_; ++i) {
    RIDGE_ASSIGN_OR_RETURN(TensorInfo tensor, ReadTensor(i));
    shard_.tensors.push_back(std::move(tensor));
  }
  std::vector<uint32_t> order(shard_.tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [this](uint32_t a, uint32_t b) { return shard_.tensors[a].name < shard_.tensors[b].name; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (shard_.tensors[order[i - 1]].name == shard_.tensors[order[i]].name) {
      return Fail(Code::kInvalidData, "two tensors have the same name")
          .Where(AtTensor(shard_.tensors[order[i]].name))
          .Found(fmt::format("tensors {} and {} of {}", std::min(order[i - 1], order[i]) + 1,
                             std::max(order[i - 1], order[i]) + 1, order.size()))
          .Expected("unique names");
    }
  }
  return {};
}

Result<TensorInfo> Parser::ReadTensor(uint64_t index) {
  const std::string where = fmt::format("{}: tensor {} of {}", name_, index + 1, n_tensors_);
  std::string_view name;
  if (!cursor_.ReadString(name)) return std::unexpected(Truncated(where, "the tensor's name"));
  if (name.empty() || name.size() > kMaxNameBytes) {
    return Fail(Code::kInvalidData, "tensor name has a bad length")
        .Where(where)
        .Found(Count(name.size(), "byte"))
        .Expected(fmt::format("1 to {}", kMaxNameBytes));
  }
  TensorInfo tensor;
  tensor.name = std::string(name);
  uint32_t n_dims = 0;
  if (!cursor_.Read(n_dims)) return std::unexpected(Truncated(AtTensor(name), "the number of dimensions"));
  if (n_dims < 1 || n_dims > 4) {
    return Fail(Code::kInvalidData, "tensor has a bad number of dimensions")
        .Where(AtTensor(name))
        .Found(fmt::format("{}", n_dims))
        .Expected("1 to 4");
  }
  tensor.shape.resize(n_dims);
  for (uint64_t& length : tensor.shape) {
    if (!cursor_.Read(length)) return std::unexpected(Truncated(AtTensor(name), "the tensor's shape"));
  }
  if (!cursor_.Read(tensor.type_id) || !cursor_.Read(tensor.offset_bytes)) {
    return std::unexpected(Truncated(AtTensor(name), "the tensor's type and offset, 12 bytes"));
  }
  tensor.type = quant::Find(tensor.type_id);
  RIDGE_RETURN_IF_ERROR(SizeTensor(tensor));
  return tensor;
}

std::string ShapeText(const std::vector<uint64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// size_bytes from shape and type. An unknown type has no size: the tensor is kept so that the file can be listed.
Status Parser::SizeTensor(TensorInfo& tensor) const {
  std::optional<uint64_t> elements = 1;
  for (const uint64_t length : tensor.shape) {
    if (length == 0) {
      return Fail(Code::kInvalidData, "tensor has a dimension of zero")
          .Where(AtTensor(tensor.name))
          .Found("shape " + ShapeText(tensor.shape))
          .Expected("at least 1 in each dimension");
    }
    if (elements) elements = CheckedMul(*elements, length);
  }
  if (!elements || *elements > kMaxElements) {
    return Fail(Code::kInvalidData, "tensor has too many elements")
        .Where(AtTensor(tensor.name))
        .Found("shape " + ShapeText(tensor.shape))
        .Expected("fewer than 2^63 elements");
  }
  if (tensor.type == nullptr) return {};
  const quant::Type& type = *tensor.type;
  if (tensor.shape[0] % type.block_elements != 0) {
    return Fail(Code::kInvalidData, "tensor rows are not a whole number of blocks")
        .Where(AtTensor(tensor.name))
        .Found(fmt::format("row length {} of type {}", tensor.shape[0], type.name))
        .Expected(fmt::format("a multiple of {}", type.block_elements));
  }
  const std::optional<uint64_t> size = CheckedMul(*elements / type.block_elements, type.block_bytes);
  if (!size) {
    return Fail(Code::kInvalidData, "tensor is too large")
        .Where(AtTensor(tensor.name))
        .Found(fmt::format("shape {} of type {}", ShapeText(tensor.shape), type.name))
        .Expected("fewer than 2^64 bytes");
  }
  tensor.size_bytes = *size;
  return {};
}

// Turns offsets from the data section's start into offsets from the file's, each proved to lie inside the file.
Status Parser::PlaceTensors() {
  if (shard_.tensors.empty()) return {};
  const std::optional<uint64_t> data_start = CheckedRoundUp(cursor_.position(), shard_.alignment);
  for (TensorInfo& tensor : shard_.tensors) {
    if (tensor.offset_bytes % shard_.alignment != 0) {
      return Fail(Code::kInvalidData, "tensor data is not aligned")
          .Where(AtTensor(tensor.name))
          .Found(fmt::format("offset {}", tensor.offset_bytes))
          .Expected(fmt::format("a multiple of {}", shard_.alignment));
    }
    const std::optional<uint64_t> begin = data_start ? CheckedAdd(*data_start, tensor.offset_bytes) : std::nullopt;
    const std::optional<uint64_t> end =
        begin ? CheckedAdd(*begin, std::max<uint64_t>(tensor.size_bytes, 1)) : std::nullopt;
    if (!end || *end > bytes_.size()) {
      return Fail(Code::kInvalidData, "tensor data lies outside the file")
          .Where(AtTensor(tensor.name))
          .Found(fmt::format("a file of {}", Count(bytes_.size(), "byte")))
          .Expected(end ? fmt::format("at least {}", Count(*end, "byte"))
                        : fmt::format("offset {} to lie in it", tensor.offset_bytes))
          .Remedy("the file is damaged or its download stopped early; fetch it again");
    }
    tensor.offset_bytes = *begin;
  }
  return CheckOverlaps();
}

Status Parser::CheckOverlaps() const {
  std::vector<uint32_t> order(shard_.tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [this](uint32_t a, uint32_t b) { return shard_.tensors[a].offset_bytes < shard_.tensors[b].offset_bytes; });
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& before = shard_.tensors[order[i - 1]];
    const TensorInfo& after = shard_.tensors[order[i]];
    // A tensor of unknown type holds at least the byte that it begins with.
    const uint64_t end = before.offset_bytes + std::max<uint64_t>(before.size_bytes, 1);
    if (after.offset_bytes < end) {
      return Fail(Code::kInvalidData, "data of two tensors overlaps")
          .Where(AtTensor(after.name))
          .Found(fmt::format("offset {}", after.offset_bytes))
          .Expected(fmt::format("{} or more, where tensor {} ends", end, Quoted(before.name)));
    }
  }
  return {};
}

}  // namespace

Result<ParsedShard> Parse(std::span<const std::byte> bytes, const std::string& name) {
  return Parser(bytes, name).Run();
}

}  // namespace ridge::gguf
