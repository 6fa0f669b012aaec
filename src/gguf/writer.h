// Writes GGUF files (version 3, little endian): the header first, then the data of each tensor in order, in pieces of
// any size.
//
//   RIDGE_ASSIGN_OR_RETURN(gguf::Writer out, gguf::Writer::Create("out.gguf", metadata, {{"w", {256, 4}, type}}));
//   RIDGE_RETURN_IF_ERROR(out.Append(blocks)); ... return out.Commit();
//
// Guarantees: what is written can be read back by File::Open with equal metadata, names, shapes and bytes; what could
// not is refused by Create, which names the key or tensor. Until Commit succeeds the path holds what it held before; no
// half-written file stays behind. Memory: the header and 256 KiB. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/result.h"
#include "gguf/gguf.h"

namespace ridge::gguf {

struct TensorSpec {
  std::string name;
  std::vector<uint64_t> shape;  // fastest dimension first, 1 to 4 of them
  const quant::Type* type = nullptr;
};

class Writer {
 public:
  // Alignment is metadata's general.alignment, else 32. Room for the whole file is asked of the disk at once.
  // Errors: kInvalidArgument (key or tensor that the format cannot hold), those of AtomicFile::Create and Reserve.
  static Result<Writer> Create(const std::string& path, const Metadata& metadata, std::vector<TensorSpec> tensors);

  // The next bytes of tensor data. A piece ends with its tensor: it may not reach into the next one.
  Status Append(std::span<const std::byte> bytes);
  // The tensor that Append continues; nullptr when all are complete.
  const TensorSpec* current() const { return next_ < tensors_.size() ? &tensors_[next_] : nullptr; }
  uint64_t file_size_bytes() const { return file_size_bytes_; }  // of the complete file
  // Errors: kInternal when tensor data is missing.
  Status Commit();

 private:
  explicit Writer(AtomicFile file) : file_(std::move(file)) {}

  AtomicFile file_;
  std::vector<TensorSpec> tensors_;
  std::vector<uint64_t> sizes_bytes_;  // of tensors_
  uint64_t alignment_ = 32;
  uint64_t file_size_bytes_ = 0;
  size_t next_ = 0;              // index of the tensor being written
  uint64_t tensor_written_ = 0;  // bytes of it
};

}  // namespace ridge::gguf
