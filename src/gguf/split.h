// Names of the shards of a split model: PREFIX-00002-of-00003.gguf, numbered from 1.
//
//   std::optional<SplitName> split = ParseSplitName("a/model-00002-of-00003.gguf");   // {"a/model", 2, 3}
//   ShardPath("a/model", 1, 3);                                                       // "a/model-00001-of-00003.gguf"
//
// Guarantees: ShardPath(ParseSplitName(x)) is x. The naming is that of the ggml project's gguf-split.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ridge::gguf {

struct SplitName {
  std::string prefix;   // with the folder
  uint32_t number = 0;  // from 1
  uint32_t count = 0;
};

std::optional<SplitName> ParseSplitName(std::string_view path);
std::string ShardPath(std::string_view prefix, uint32_t number, uint32_t count);

// The one model in a folder: its only GGUF file, or the first shard found of its only split file.
// Errors: kNotFound (none), kInvalidArgument (several; they are listed), kPermissionDenied.
Result<std::string> FindModelInFolder(const std::string& folder);

}  // namespace ridge::gguf
