// Writes a file so that its name never shows half of it.
//
//   RIDGE_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create("out.gguf"));
//   RIDGE_RETURN_IF_ERROR(file.Write(bytes)); ... return file.Commit();
//
// Guarantees: before Commit returns without an error, the path holds what it held before; after it, all bytes, on the
// disk. Data goes to a file without a name where the file system can do that (a killed process then leaves nothing),
// else to a temporary name in the same folder, which the destructor removes. A path that is a device, pipe or folder is
// refused. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ridge {

class AtomicFile {
 public:
  // Errors: kInvalidArgument (not a regular file, too long a name), kNotFound (no such folder), kPermissionDenied, kResourceExhausted. What would
  // make Commit fail is found here where it can be known.
  // mode: who may read and write it, less the process's umask.
  static Result<AtomicFile> Create(const std::string& path, unsigned mode = 0666);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();  // without Commit: as if nothing had been written

  // Asks for the room of a file of this size, so that a full disk is an error before the work, with both figures.
  Status Reserve(uint64_t size_bytes);
  Status Write(std::span<const std::byte> bytes);
  Status Write(std::string_view text) { return Write(std::as_bytes(std::span(text))); }
  uint64_t size_bytes() const { return written_bytes_; }
  // Flushes to the disk and gives the file its name. Nothing may be written afterwards.
  Status Commit();

 private:
  AtomicFile() = default;
  Status Flush();
  Status WriteAll(std::span<const std::byte> bytes);
  void Discard();

  int fd_ = -1;
  std::string path_;    // as given, for errors
  std::string target_;  // path_ with symbolic links resolved
  std::string temp_;    // empty while the file has no name
  std::vector<std::byte> buffer_;
  uint64_t written_bytes_ = 0;
};

// The two paths lead to one file (through links of either kind, ./ and so on). False where either does not exist.
bool IsSameFile(const std::string& a, const std::string& b);

}  // namespace ridge
