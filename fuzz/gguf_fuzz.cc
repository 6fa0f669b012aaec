// Any bytes as a GGUF file: an error or a file whose guarantees hold, never more.
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "gguf/parse.h"
#include "gguf/test_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto shard = ridge::gguf::Parse(bytes, "fuzz.gguf");
  if (shard) {
    RIDGE_CHECK(ridge::gguf::test::WalkShard(*shard, bytes));
  } else {
    RIDGE_CHECK(!shard.error().Message().empty());
  }
  return 0;
}
