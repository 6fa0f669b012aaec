#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/quantity.h"

namespace ridge {
namespace {

constexpr size_t kBufferBytes = 256 << 10;
constexpr size_t kMostBytesPerCall = 1 << 30;  // Linux writes at most 2 GiB per call

Error FromErrno(int reason, const char* what, const std::string& path) {
  Code code = Code::kUnavailable;
  std::string remedy;
  switch (reason) {
    case ENOSPC:
    case EDQUOT:
      code = Code::kResourceExhausted;
      remedy = "free space on the disk or choose another folder";
      break;
    case EFBIG:
      code = Code::kResourceExhausted;
      remedy = "raise the limit on file size (ulimit -f)";
      break;
    case EMFILE:
    case ENFILE:
      code = Code::kResourceExhausted;
      remedy = "raise the limit on open files (ulimit -n)";
      break;
    case ENOENT:
    case ENOTDIR:
      code = Code::kNotFound;
      remedy = "create the folder first";
      break;
    case ENAMETOOLONG:
      code = Code::kInvalidArgument;
      remedy = "choose a shorter name";
      break;
    case EACCES:
    case EPERM:
    case EROFS:
      code = Code::kPermissionDenied;
      remedy = "choose a folder that you may write to";
      break;
    default: break;
  }
  return Fail(code, what).Where(path).Found(std::strerror(reason)).Remedy(std::move(remedy)).Take();
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string Unnamed(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

// Beside the target, so that the rename stays on one file system; unique over processes and calls. A name as long as the file system allows
// leaves no room for more, so its end gives way.
std::string TempName(const std::string& target) {
  static std::atomic<unsigned> counter{0};
  const std::string ending = ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
  const std::string folder = FolderOf(target);
  const long most = ::pathconf(folder.c_str(), _PC_NAME_MAX);
  const size_t begin = target.rfind('/') + 1;  // npos + 1 is 0
  size_t keep = target.size() - begin;
  if (most > 0 && keep + ending.size() > static_cast<size_t>(most)) {
    keep = static_cast<size_t>(most) - std::min(ending.size(), static_cast<size_t>(most));
    while (keep > 0 && (static_cast<unsigned char>(target[begin + keep]) & 0xC0) == 0x80) keep--;  // no half character
  }
  return target.substr(0, begin + keep) + ending;
}

// In a folder like /tmp only the owner of a file, or of the folder, may put another in its place.
bool IsOthers(const struct stat& file, const std::string& folder) {
  struct stat info{};
  const uid_t self = ::geteuid();
  return self != 0 && ::stat(folder.c_str(), &info) == 0 && (info.st_mode & S_ISVTX) != 0 && info.st_uid != self &&
         file.st_uid != self;
}

}  // namespace

Result<AtomicFile> AtomicFile::Create(const std::string& path, unsigned mode) {
  AtomicFile file;
  file.path_ = path;
  file.target_ = path;
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode)) {
      return Fail(Code::kInvalidArgument, "output is not a regular file")
          .Where(path)
          .Found(S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe")
          .Expected("the path of a file");
    }
    char resolved[PATH_MAX];
    if (::realpath(path.c_str(), resolved) != nullptr) file.target_ = resolved;
    if (IsOthers(info, FolderOf(file.target_)))
      return std::unexpected(FromErrno(EPERM, "cannot replace the file of another user", path));
  } else if (errno != ENOENT) {  // such a path can never be opened
    return std::unexpected(FromErrno(errno, "cannot create file", path));
  }
  if (path.empty() || path.back() == '/') {
    return Fail(Code::kInvalidArgument, "output has no file name").Where(path).Expected("the path of a file");
  }
  // What Commit needs is tried now: hours may lie between.
  if (TempName(file.target_).size() >= PATH_MAX)
    return std::unexpected(FromErrno(ENAMETOOLONG, "cannot create file", path));
  const std::string folder = FolderOf(file.target_);
  file.fd_ = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  if (file.fd_ >= 0 && ::access(Unnamed(file.fd_).c_str(), F_OK) != 0) {  // no /proc, so it could never get its name
    ::close(std::exchange(file.fd_, -1));
    errno = EOPNOTSUPP;
  }
  if (file.fd_ < 0 && errno != ENOENT && errno != EACCES && errno != EROFS && errno != EMFILE && errno != ENFILE) {
    file.temp_ = TempName(file.target_);
    file.fd_ = ::open(file.temp_.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode);
    if (file.fd_ < 0) file.temp_.clear();
  }
  if (file.fd_ < 0) return std::unexpected(FromErrno(errno, "cannot create file", path));
  file.buffer_.reserve(kBufferBytes);
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept { *this = std::move(other); }

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(target_, other.target_);
  std::swap(temp_, other.temp_);
  std::swap(buffer_, other.buffer_);
  std::swap(written_bytes_, other.written_bytes_);
  return *this;
}

AtomicFile::~AtomicFile() { Discard(); }

void AtomicFile::Discard() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  if (!temp_.empty()) ::unlink(temp_.c_str());
  temp_.clear();
}

Status AtomicFile::Reserve(uint64_t size_bytes) {
  if (size_bytes == 0 || size_bytes > INT64_MAX) return {};
  int done = 0;
  do {
    done = ::fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(size_bytes));
  } while (done != 0 && errno == EINTR);
  if (done == 0) return {};
  const int reason = errno;
  if (reason != ENOSPC && reason != EDQUOT && reason != EFBIG) return {};  // not supported here: Write will tell
  Error error = FromErrno(reason, "no room for the file", path_);
  struct statvfs disk{};
  if (reason == ENOSPC && ::fstatvfs(fd_, &disk) == 0) {
    error.found = Count(uint64_t{disk.f_bavail} * disk.f_frsize, "byte") + " free";
  }
  error.expected = Count(size_bytes, "byte");
  return std::unexpected(std::move(error));
}

Status AtomicFile::WriteAll(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd_, bytes.data(), std::min(bytes.size(), kMostBytesPerCall));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return std::unexpected(FromErrno(errno, "cannot write file", path_));
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
  return {};
}

Status AtomicFile::Flush() {
  RIDGE_RETURN_IF_ERROR(WriteAll(buffer_));
  buffer_.clear();
  return {};
}

Status AtomicFile::Write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) RIDGE_RETURN_IF_ERROR(Flush());
  if (bytes.size() > kBufferBytes) {
    RIDGE_RETURN_IF_ERROR(WriteAll(bytes));
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
  written_bytes_ += bytes.size();
  return {};
}

Status AtomicFile::Commit() {
  RIDGE_RETURN_IF_ERROR(Flush());
  if (::fsync(fd_) != 0) return std::unexpected(FromErrno(errno, "cannot write file to the disk", path_));
  if (temp_.empty()) {
    const std::string unnamed = Unnamed(fd_);
    const std::string temp = TempName(target_);
    if (::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, temp.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return std::unexpected(FromErrno(errno, "cannot name file", path_));
    }
    temp_ = temp;
  }
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) return std::unexpected(FromErrno(errno, "cannot close file", path_));
  if (::rename(temp_.c_str(), target_.c_str()) != 0)
    return std::unexpected(FromErrno(errno, "cannot name file", path_));
  temp_.clear();
  const int folder = ::open(FolderOf(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);  // some file systems cannot; the file itself is safe either way
    ::close(folder);
  }
  return {};
}

bool IsSameFile(const std::string& a, const std::string& b) {
  struct stat first{}, second{};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace ridge
