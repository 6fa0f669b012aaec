// Reads and validates GGUF files (versions 2 and 3, split files): typed metadata and the place of every tensor.
//
//   RIDGE_ASSIGN_OR_RETURN(gguf::File file, gguf::File::Open("model.gguf"));
//   RIDGE_ASSIGN_OR_RETURN(uint64_t layers, file.metadata().Get<uint64_t>("llama.block_count"));
//   std::span<const std::byte> data = file.Data(*file.FindTensor("output.weight"));
//
// Guarantees: after Open every tensor lies inside its file, aligned, with a size that follows from shape and type by
// checked arithmetic; names are unique over all shards. Nothing is allocated from a count that the file cannot hold.
// Immutable after Open, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/mmap.h"
#include "base/result.h"
#include "quant/quant.h"

namespace ridge::gguf {

enum class ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

std::string_view Name(ValueType type);  // "u32", "string", "array"; "unknown" for a number that is no type

// One metadata value. Integers widen to 64 bits, floats to double; `type` remembers what the file said.
// Items of arrays widen too, except 8- and 16-bit ones, which keep their width (memory stays in proportion to the
// file); arrays of bool are vector<uint8_t>. Metadata::Get converts all of them.
struct Value {
  ValueType type = ValueType::kU32;
  ValueType item_type = {};  // of an array
  std::variant<uint64_t, int64_t, double, bool, std::string, std::vector<uint64_t>, std::vector<int64_t>,
               std::vector<double>, std::vector<uint8_t>, std::vector<std::string>, std::vector<int8_t>,
               std::vector<uint16_t>, std::vector<int16_t>>
      data;

  // Values as other tools write them, for Metadata::Add.
  static Value U32(uint32_t value) { return {ValueType::kU32, {}, uint64_t{value}}; }
  static Value I32(int32_t value) { return {ValueType::kI32, {}, int64_t{value}}; }
  static Value F32(float value) { return {ValueType::kF32, {}, double{value}}; }
  static Value Bool(bool value) { return {ValueType::kBool, {}, value}; }
  static Value String(std::string value) { return {ValueType::kString, {}, std::move(value)}; }
  static Value Strings(std::vector<std::string> v) { return {ValueType::kArray, ValueType::kString, std::move(v)}; }
  static Value I32s(std::vector<int64_t> items) { return {ValueType::kArray, ValueType::kI32, std::move(items)}; }
  static Value F32s(std::vector<double> items) { return {ValueType::kArray, ValueType::kF32, std::move(items)}; }

  size_t length() const;         // items of an array; 1 for a scalar
  std::string TypeName() const;  // "u32", "array[string]"
  bool operator==(const Value&) const = default;
};

class Metadata {
 public:
  const Value* Find(const std::string& key) const;
  // T: uint64_t, int64_t, double, bool, std::string, and std::vector of uint64_t, int64_t, double, uint8_t (bool),
  // std::string. Integers of either sign convert when the value fits; an integer converts to double. Errors: kNotFound
  // (missing), kInvalidData (other type), both naming the key, the type found and the type expected.
  template <class T>
  Result<T> Get(const std::string& key) const;
  // As Get, but `fallback` when the key is missing; a wrong type is still an error.
  template <class T>
  Result<T> GetOr(const std::string& key, T fallback) const;
  // A value that may be one scalar or an array with one item per layer: always n items. A wrong length is an error.
  template <class T>
  Result<std::vector<T>> GetPerLayer(const std::string& key, size_t n, std::optional<T> fallback = std::nullopt) const;
  // Borrowed view of a string array without a copy (the vocabulary). Errors as Get.
  Result<const std::vector<std::string>*> Strings(const std::string& key) const;

  const std::vector<std::pair<std::string, Value>>& entries() const { return entries_; }  // in file order
  Status Add(std::string key, Value value);  // kAlreadyExists for a duplicate
  void Reserve(size_t n_entries) { entries_.reserve(n_entries); }

 private:
  std::vector<std::pair<std::string, Value>> entries_;
  std::map<std::string, size_t, std::less<>> index_;
};

struct TensorInfo {
  std::string name;
  uint32_t type_id = 0;
  const quant::Type* type =
      nullptr;                  // nullptr: a type id that this build does not know; such a file can be listed, not run
  std::vector<uint64_t> shape;  // fastest dimension first, 1 to 4 of them
  uint64_t offset_bytes = 0;    // from the start of its file
  uint64_t size_bytes = 0;      // 0 when the type is unknown
  size_t shard = 0;

  uint64_t elements() const;
  uint64_t row_elements() const { return shape[0]; }
  uint64_t rows() const;  // elements / row_elements
};

struct ParsedShard;  // parse.h

class File {
 public:
  // PATH: a file, any shard of a split file, or a folder that holds one. Errors name the key or tensor, found and
  // expected. A missing shard is an error before anything is mapped. Errors: those of MappedFile::Open, kInvalidData,
  // kUnsupported.
  static Result<File> Open(const std::string& path);
  // The shards of one model in order, under any names (a content-addressed store has its own).
  static Result<File> OpenShards(const std::vector<std::string>& paths);

  const Metadata& metadata() const { return metadata_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* FindTensor(const std::string& name) const;
  std::span<const std::byte> Data(const TensorInfo& tensor) const;
  // The tensor's pages leave resident memory (they can be read again).
  void Release(const TensorInfo& tensor) const;
  // That no file was cut short since it was opened: see MappedFile. Thread-safe.
  Status CheckWhole() const;
  uint32_t version() const { return version_; }
  uint64_t size_bytes() const;  // over all shards
  const std::string& path() const { return shards_.front().path(); }
  std::vector<std::string> shard_paths() const;
  const std::vector<MappedFile>& shards() const { return shards_; }
  uint64_t alignment() const { return alignment_; }  // of tensor data, in bytes (of the first shard)

 private:
  // Joins parsed shards in order; files[i] holds shard i.
  static Result<File> Join(std::vector<MappedFile> files, std::vector<ParsedShard> shards);

  uint32_t version_ = 0;
  uint64_t alignment_ = 0;
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t, std::less<>> tensor_index_;
  std::vector<MappedFile> shards_;
};

}  // namespace ridge::gguf
