#include "base/memory.h"

#include <sys/mman.h>

#include <string>

namespace ridge {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kPage = 4096;

size_t RoundUp(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

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
        .Expected(std::to_string(size_bytes) + " bytes")
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

Buffer::~Buffer() {
  if (data_ != nullptr) ::munmap(data_, size_bytes_);
}

}  // namespace ridge
