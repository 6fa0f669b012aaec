#include "hub/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/quantity.h"

namespace ridge::hub {
namespace {

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

Fail FailErrno(int error_number, std::string what, std::string where) {
  const std::string found = std::strerror(error_number);
  switch (error_number) {
    case ENOENT:
    case ENOTDIR: return Fail(Code::kNotFound, std::move(what)).Where(std::move(where)).Found(found);
    case EACCES:
    case EPERM:
    case EROFS:
      return Fail(Code::kPermissionDenied, std::move(what))
          .Where(std::move(where))
          .Found(found)
          .Remedy("check the owner and mode, or set RIDGE_HOME to a folder that you may write");
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return Fail(Code::kResourceExhausted, std::move(what))
          .Where(std::move(where))
          .Found(found)
          .Remedy("free some space, or set RIDGE_HOME to a folder on a larger disk");
    case EMFILE:
    case ENFILE:
    case ENOMEM: return Fail(Code::kResourceExhausted, std::move(what)).Where(std::move(where)).Found(found);
    default: return Fail(Code::kUnavailable, std::move(what)).Where(std::move(where)).Found(found);
  }
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    Close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

Descriptor::~Descriptor() { Close(); }

void Descriptor::Close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<Descriptor> OpenFile(const std::string& path, int flags, unsigned mode) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0) return FailErrno(errno, "cannot open file", path);
  return Descriptor(fd);
}

Status WriteAll(const Descriptor& file, const void* data, size_t size_bytes, const std::string& path) {
  const char* at = static_cast<const char*>(data);
  while (size_bytes > 0) {
    const ssize_t written = ::write(file.get(), at, size_bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return FailErrno(written < 0 ? errno : ENOSPC, "cannot write file", path);
    at += written;
    size_bytes -= static_cast<size_t>(written);
  }
  return {};
}

Result<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  RIDGE_ASSIGN_OR_RETURN(Descriptor file, OpenFile(path, O_RDONLY));
  std::string text;
  char buffer[16384];
  while (true) {
    const ssize_t count = ::read(file.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FailErrno(errno, "cannot read file", path);
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > max_bytes) {
      return Fail(Code::kInvalidData, "file is too large")
          .Where(path)
          .Expected(fmt::format("at most {}", Count(max_bytes, "byte")));
    }
  }
}

Status SyncFile(const Descriptor& file, const std::string& path) {
  if (::fsync(file.get()) != 0) return FailErrno(errno, "cannot write file to disk", path);
  return {};
}

Status SyncFolder(const std::string& path) {
  RIDGE_ASSIGN_OR_RETURN(Descriptor folder, OpenFile(path, O_RDONLY | O_DIRECTORY));
  // Some file systems cannot sync a folder (EINVAL): there the rename is as durable as it gets.
  if (::fsync(folder.get()) != 0 && errno != EINVAL) return FailErrno(errno, "cannot write folder to disk", path);
  return {};
}

Status WriteFileDurably(const std::string& path, std::string_view text) {
  const std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  const auto write = [&]() -> Status {
    RIDGE_ASSIGN_OR_RETURN(Descriptor file, OpenFile(temporary, O_WRONLY | O_CREAT | O_TRUNC));
    RIDGE_RETURN_IF_ERROR(WriteAll(file, text.data(), text.size(), temporary));
    RIDGE_RETURN_IF_ERROR(SyncFile(file, temporary));
    if (::rename(temporary.c_str(), path.c_str()) != 0) return FailErrno(errno, "cannot rename file", temporary);
    return SyncFolder(FolderOf(path));
  };
  Status done = write();
  if (!done) ::unlink(temporary.c_str());
  return done;
}

Status CreateFolders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return FailErrno(error.value(), "cannot create folder", path);
  return {};
}

std::optional<uint64_t> FileSize(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return static_cast<uint64_t>(info.st_size);
}

Status NeedSpace(const std::string& folder, uint64_t needed_bytes) {
  struct statvfs disk{};
  if (::statvfs(folder.c_str(), &disk) != 0) return {};  // unknown: the write itself will tell
  const uint64_t free_bytes = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (free_bytes >= needed_bytes) return {};
  return Fail(Code::kResourceExhausted, "not enough space on the disk")
      .Where(folder)
      .Found(fmt::format("{} free", Count(free_bytes, "byte")))
      .Expected(Count(needed_bytes, "byte"))
      .Remedy("free some space (ridge list, ridge rm), or set RIDGE_HOME to a folder on a larger disk");
}

Result<std::optional<FileLock>> FileLock::TryAcquire(const std::string& path) {
  RIDGE_ASSIGN_OR_RETURN(Descriptor file, OpenFile(path, O_RDWR | O_CREAT));
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return std::optional<FileLock>();
    if (errno != EINTR) return FailErrno(errno, "cannot lock file", path);
  }
  return std::optional<FileLock>(FileLock(std::move(file)));
}

Result<FileLock> FileLock::Acquire(const std::string& path, const std::function<bool()>& keep_waiting) {
  while (true) {
    RIDGE_ASSIGN_OR_RETURN(std::optional<FileLock> lock, TryAcquire(path));
    if (lock) return std::move(*lock);
    if (!keep_waiting()) return Fail(Code::kCancelled, "stopped while waiting for another process").Where(path);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace ridge::hub
