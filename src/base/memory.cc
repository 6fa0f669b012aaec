#include "base/memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "base/quantity.h"

namespace ridge {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kPage = 4096;

size_t RoundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

void ReleaseFreeMemory() {
#ifdef __GLIBC__
  ::malloc_trim(0);  // of every arena; free() gives back only what lies at an arena's end
#endif
}

Result<Buffer> Buffer::Allocate(size_t size_bytes) {
  Buffer buffer;
  if (size_bytes == 0) return buffer;
  const bool huge = size_bytes >= kHugePage;
  const size_t size = RoundUp(size_bytes, kPage);
  // One huge page more than needed, so that the start can be aligned to one.
  const size_t reserve = huge ? size + kHugePage : size;
  void* map = size < size_bytes || reserve < size ? MAP_FAILED
                                                  : ::mmap(nullptr, reserve, PROT_READ | PROT_WRITE,
                                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) {
    return Fail(Code::kResourceExhausted, "out of memory")
        .Expected(Count(size_bytes, "byte"))
        .Remedy("use a smaller model, context or batch");
  }
  std::byte* begin = static_cast<std::byte*>(map);
  if (huge) {
    std::byte* aligned = reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<size_t>(begin), kHugePage));
    if (aligned > begin) ::munmap(begin, static_cast<size_t>(aligned - begin));
    const size_t tail = static_cast<size_t>(begin + reserve - (aligned + size));
    if (tail > 0) ::munmap(aligned + size, tail);
    ::madvise(aligned, size, MADV_HUGEPAGE);
    begin = aligned;
  }
  buffer.data_ = begin;
  buffer.size_bytes_ = size;
  return buffer;
}

Status Buffer::Populate() const {
  if (size_bytes_ == 0) return {};
#ifdef MADV_POPULATE_WRITE
  if (::madvise(data_, size_bytes_, MADV_POPULATE_WRITE) == 0) return {};
  if (errno != EINVAL) {
    return Fail(Code::kResourceExhausted, "out of memory")
        .Found(std::strerror(errno))
        .Expected(Count(size_bytes_, "byte"))
        .Remedy("use a smaller model, context or KV pool");
  }
#endif
  for (size_t at = 0; at < size_bytes_; at += kPage) {  // a kernel before 5.14
    volatile std::byte* byte = data_ + at;
    *byte = *byte;
  }
  return {};
}

Result<Buffer> Buffer::MapFile(int fd, size_t offset_bytes, size_t size_bytes) {
  Buffer buffer;
  if (size_bytes == 0) return buffer;
  const size_t size = RoundUp(size_bytes, kPage), reserve = size + kHugePage;
  void* map = reserve < size_bytes
                  ? MAP_FAILED
                  : ::mmap(nullptr, reserve, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return Fail(Code::kResourceExhausted, "no address space for a file");
  std::byte* begin = static_cast<std::byte*>(map);
  std::byte* aligned = reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<size_t>(begin), kHugePage));
  if (::mmap(aligned, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, static_cast<off_t>(offset_bytes)) == MAP_FAILED) {
    ::munmap(map, reserve);
    return Fail(Code::kResourceExhausted, "cannot map file");
  }
  if (aligned > begin) ::munmap(begin, static_cast<size_t>(aligned - begin));
  const size_t tail = static_cast<size_t>(begin + reserve - (aligned + size));
  if (tail > 0) ::munmap(aligned + size, tail);
  ::madvise(aligned, size, MADV_HUGEPAGE);
  buffer.data_ = aligned;
  buffer.size_bytes_ = size;
  return buffer;
}

size_t Buffer::HugeFileBytes() const {
  std::ifstream file("/proc/self/smaps");
  size_t kib = 0;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    unsigned long long begin = 0, end = 0, amount = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2) {
      const size_t at = reinterpret_cast<size_t>(data_);
      inside = begin < at + size_bytes_ && end > at;
    } else if (inside && (std::sscanf(line.c_str(), "FilePmdMapped: %llu", &amount) == 1 ||
                          std::sscanf(line.c_str(), "ShmemPmdMapped: %llu", &amount) == 1)) {
      kib += amount;
    }
  }
  return kib << 10;
}

Buffer::~Buffer() {
  if (data_ != nullptr) ::munmap(data_, size_bytes_);
}

}  // namespace ridge
