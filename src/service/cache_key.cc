#include "service/cache_key.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "gguf/gguf.h"

namespace ridge::service {

engine::CacheKey CacheKeyOf(const Runtime& runtime) {
  constexpr size_t kChunk = size_t{4} << 20;
  uint64_t hash = 0;
  for (const MappedFile& shard : runtime.model().file().shards()) {
    const std::span<const std::byte> bytes = shard.bytes();
    for (size_t at = 0; at < bytes.size(); at += kChunk) {
      const std::span<const std::byte> chunk = bytes.subspan(at, std::min(kChunk, bytes.size() - at));
      hash = XXH3_64bits_withSeed(chunk.data(), chunk.size(), hash + 1);
      DropPages(chunk);  // the packed weights are what is needed
    }
  }
  return {{"model (hash of its file)", fmt::format("{:016x}", hash)}, {"--matmul", runtime.blas() ? "blas" : "own"}};
}

}  // namespace ridge::service
