// Read-only memory map of a whole file.
//
//   RIDGE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
//   std::span<const std::byte> bytes = file.bytes();
//
// Owner: unmaps on destruction. Immutable after Open, so thread-safe. The file must not shrink while it is mapped: reading pages that are
// gone raises SIGBUS, which MappedPathAt can tell from others, and the rest of a page that is cut reads as zeroes, which CheckWhole finds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"

namespace ridge {

// Which file, in which state: the same values mean the same bytes, as far as the file system keeps its times.
struct FileIdentity {
  uint64_t device = 0, inode = 0, size_bytes = 0;
  int64_t modified_ns = 0, changed_ns = 0;  // changed_ns (ctime) cannot be set by a program
  bool operator==(const FileIdentity&) const = default;
};
// As the path stands now; all zero where there is no such file.
FileIdentity IdentityOf(const std::string& path);

// Pages wholly inside are not needed soon: they leave resident memory. Only for mappings of files.
void DropPages(std::span<const std::byte> bytes);

// Of the file whose mapping holds this address, cut off where it is long; null: of none of the first 64. Async-signal-safe.
const char* MappedPathAt(const void* address);

class MappedFile {
 public:
  // Errors: kNotFound, kPermissionDenied, kInvalidArgument (a directory or a device), kResourceExhausted.
  static Result<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }
  const std::string& path() const { return path_; }
  const FileIdentity& identity() const { return identity_; }  // when it was opened

  // That the file still has all that was mapped; what was read before this is what the file held. One system call. Errors: kInvalidData.
  Status CheckWhole() const;

  // Tells the kernel that the pages wholly inside [offset, offset + size) are not needed soon: they leave resident memory.
  void Release(size_t offset_bytes, size_t size_bytes) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
  int fd_ = -1;  // of the file itself, whatever the path names by now
  std::string path_;
  FileIdentity identity_;
};

}  // namespace ridge
