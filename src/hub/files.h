// Small file operations with errors in the house form: durable writes, locks between processes, free space.
//
//   RIDGE_ASSIGN_OR_RETURN(FileLock lock, FileLock::Acquire(path, [] { return true; }));
//   RIDGE_RETURN_IF_ERROR(WriteFileDurably(path, text));
//
// Guarantees: WriteFileDurably leaves either the old or the whole new file, also after a power cut. A lock ends with
// its process.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ridge::hub {

// An Error for errno: kNotFound, kPermissionDenied, kResourceExhausted (disk full, quota, descriptors) or kUnavailable.
Fail FailErrno(int error_number, std::string what, std::string where);

// Owner of a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_;
};

Result<Descriptor> OpenFile(const std::string& path, int flags, unsigned mode = 0644);
Status WriteAll(const Descriptor& file, const void* data, size_t size_bytes, const std::string& path);
Result<std::string> ReadFile(const std::string& path, size_t max_bytes);
Status WriteFileDurably(const std::string& path, std::string_view text);
Status SyncFile(const Descriptor& file, const std::string& path);
Status SyncFolder(const std::string& path);
Status CreateFolders(const std::string& path);
std::optional<uint64_t> FileSize(const std::string& path);  // nullopt: not a regular file

// kResourceExhausted, with both figures, when the disk that holds `folder` has less than `needed_bytes` free.
Status NeedSpace(const std::string& folder, uint64_t needed_bytes);

// Exclusive flock of a file that is made for it and stays.
class FileLock {
 public:
  // Waits while another process holds it, asking `keep_waiting` a few times a second (false: kCancelled).
  static Result<FileLock> Acquire(const std::string& path, const std::function<bool()>& keep_waiting);
  static Result<std::optional<FileLock>> TryAcquire(const std::string& path);  // nullopt: held by another

 private:
  explicit FileLock(Descriptor file) : file_(std::move(file)) {}
  Descriptor file_;
};

}  // namespace ridge::hub
