// The bytes of one GGUF file to typed metadata and tensor places. File::Open is the way in for everybody but tests and
// fuzzers.
//
//   RIDGE_ASSIGN_OR_RETURN(gguf::ParsedShard shard, gguf::Parse(file.bytes(), "model.gguf"));
//   shard.tensors[0].offset_bytes;
//
// Guarantees: any byte sequence gives a shard or an Error that names the key or tensor; no single allocation exceeds
// twice bytes.size() by more than 64 KiB. The result borrows nothing from `bytes`. Format: the GGUF specification of
// the ggml project.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/gguf.h"

namespace ridge::gguf {

struct ParsedShard {
  uint32_t version = 0;
  uint64_t alignment = 0;  // of tensor data, in bytes
  Metadata metadata;
  std::vector<TensorInfo> tensors;  // in file order, names unique
};

// `name` is what errors call the file. Errors: kInvalidData (breaks the format), kUnsupported (version, byte order,
// nested array), kOutOfRange (counts that would need memory out of proportion to the file).
Result<ParsedShard> Parse(std::span<const std::byte> bytes, const std::string& name);

// A name from a file, in quotes and short enough for an error line.
std::string Quoted(std::string_view name);

}  // namespace ridge::gguf
