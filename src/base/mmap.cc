#include "base/mmap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/quantity.h"

namespace ridge {
namespace {

FileIdentity IdentityFrom(const struct stat& info) {
  const auto ns = [](const timespec& t) { return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; };
  return {.device = info.st_dev,
          .inode = info.st_ino,
          .size_bytes = static_cast<uint64_t>(info.st_size),
          .modified_ns = ns(info.st_mtim),
          .changed_ns = ns(info.st_ctim)};
}

// What MappedPathAt looks through. An entry is written while its begin is null.
struct Mapping {
  std::atomic<const std::byte*> begin = nullptr;
  std::atomic<size_t> size_bytes = 0;
  std::array<char, 1024> path = {};
};
std::array<Mapping, 64> g_mappings;
std::mutex g_mutex;  // of those who write

void Enlist(const std::byte* begin, size_t size_bytes, const std::string& path) {
  const std::lock_guard lock(g_mutex);
  for (Mapping& mapping : g_mappings) {
    if (mapping.begin != nullptr) continue;
    mapping.path.fill(0);
    path.copy(mapping.path.data(), mapping.path.size() - 1);
    mapping.size_bytes = size_bytes;
    mapping.begin = begin;
    return;
  }
}

void Delist(const std::byte* begin) {
  const std::lock_guard lock(g_mutex);
  for (Mapping& mapping : g_mappings) {
    if (mapping.begin == begin) mapping.begin = nullptr;
  }
}

}  // namespace

const char* MappedPathAt(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Mapping& mapping : g_mappings) {
    const auto begin = reinterpret_cast<uintptr_t>(mapping.begin.load());
    if (begin != 0 && at >= begin && at - begin < mapping.size_bytes) return mapping.path.data();
  }
  return nullptr;
}

FileIdentity IdentityOf(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 ? IdentityFrom(info) : FileIdentity{};
}

void DropPages(std::span<const std::byte> bytes) {
  constexpr uintptr_t kPage = 4096;
  const uintptr_t at = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t begin = (at + kPage - 1) / kPage * kPage, end = (at + bytes.size()) / kPage * kPage;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe without a writer must not hold us
  if (fd < 0) {
    const Code code = errno == ENOENT || errno == ENOTDIR ? Code::kNotFound : Code::kPermissionDenied;
    return Fail(code, "cannot open file")
        .Where(path)
        .Found(std::strerror(errno))
        .Remedy("check the path and its permissions");
  }
  struct stat info{};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return Fail(Code::kInvalidArgument, "not a regular file").Where(path).Remedy("give the path of a file");
  }
  MappedFile file;
  file.fd_ = fd;
  file.path_ = path;
  file.identity_ = IdentityFrom(info);
  file.size_bytes_ = static_cast<size_t>(info.st_size);
  if (file.size_bytes_ > 0) {
    void* map = ::mmap(nullptr, file.size_bytes_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
      const int reason = errno;
      file.size_bytes_ = 0;
      return Fail(Code::kResourceExhausted, "cannot map file").Where(path).Found(std::strerror(reason));
    }
    file.data_ = static_cast<const std::byte*>(map);
    Enlist(file.data_, file.size_bytes_, path);
  }
  return file;
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(identity_, other.identity_);
  return *this;
}

MappedFile::~MappedFile() {
  if (fd_ >= 0) ::close(fd_);
  if (data_ == nullptr) return;
  Delist(data_);
  ::munmap(const_cast<std::byte*>(data_), size_bytes_);
}

Status MappedFile::CheckWhole() const {
  struct stat info{};
  if (fd_ < 0 || ::fstat(fd_, &info) != 0 || static_cast<uint64_t>(info.st_size) >= size_bytes_) return {};
  return Fail(Code::kInvalidData, "a file was cut short while it was in use")
      .Where(path_)
      .Found(Count(info.st_size, "byte"))
      .Expected(std::to_string(size_bytes_))
      .Remedy("write a new file beside it and rename it, instead of writing over it");
}

void MappedFile::Release(size_t offset_bytes, size_t size_bytes) const {
  if (offset_bytes <= size_bytes_ && size_bytes <= size_bytes_ - offset_bytes) {
    DropPages({data_ + offset_bytes, size_bytes});
  }
}

}  // namespace ridge
