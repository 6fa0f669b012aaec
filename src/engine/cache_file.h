// The prefix cache in a file: tokens, KV pages and checkpoints of recurrent state, for the next start.
//
//   RIDGE_RETURN_IF_ERROR(WriteCacheFile("chat.prefixes", key, tree, state));
//   RIDGE_ASSIGN_OR_RETURN(CacheFile file, CacheFile::Open("chat.prefixes", key, state));   // then file.ReadPage(i, bytes)
//
// Guarantees: a name never shows half a file (base/atomic_file.h); only its owner may read it, since it holds what was said. What a reader gives out
// is what was written: every byte is under a checksum (XXH3-64) that also knows its place, and the length is exact. A file of another key, layout
// or version is refused by the first thing that differs. Nothing is allocated from a count that the file cannot hold. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "cache/saved_tree.h"

namespace ridge::engine {

// All that pages depend on beside their tokens, as names and values for people: {{"model", "8d1f…"}, {"K type", "f16"}}.
using CacheKey = std::vector<std::pair<std::string, std::string>>;

// key: what the caller knows; what the state knows is added. Errors: those of AtomicFile. Returns the bytes written.
Result<uint64_t> WriteCacheFile(const std::string& path, const CacheKey& key, const cache::SavedTree& tree,
                                const backend::StateStore& state);

inline constexpr std::string_view kCacheFileBegins = "RIDGEPFX";

class CacheFile {
 public:
  // Errors: kNotFound, kInvalidData (damaged, cut short, no such file of Ridge), kUnsupported (another version or key), with what differs.
  static Result<CacheFile> Open(const std::string& path, const CacheKey& key, const backend::StateStore& state);
  CacheFile(CacheFile&& other) noexcept;
  CacheFile& operator=(CacheFile&&) = delete;
  ~CacheFile();

  const cache::SavedTree& tree() const { return tree_; }  // its pages and slots are places in the file
  uint64_t size_bytes() const { return size_bytes_; }

  // Errors: kInvalidData.
  Status ReadPage(size_t node, std::span<std::byte> bytes) const;                    // [page_bytes]
  Status ReadSlot(size_t state, std::span<std::byte> bytes, int64_t& tokens) const;  // [slot_bytes]

 private:
  CacheFile() = default;
  Status ReadIndex(const CacheKey& key);
  Status ParseIndex(std::string_view index, const CacheKey& key);
  Status ReadAt(uint64_t at, void* to, size_t n) const;
  Status ReadPiece(uint64_t at, uint64_t number, std::span<std::byte> bytes) const;

  int fd_ = -1;
  std::string path_;
  uint64_t size_bytes_ = 0, index_bytes_ = 0, page_bytes_ = 0, slot_bytes_ = 0;
  cache::SavedTree tree_;
  std::vector<int64_t> slot_tokens_;
};

}  // namespace ridge::engine
