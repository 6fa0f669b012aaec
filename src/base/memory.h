// Zeroed, page-aligned memory for weights, KV pages and scratch; large blocks ask for 2 MiB pages.
//
//   RIDGE_ASSIGN_OR_RETURN(Buffer panels, Buffer::Allocate(size_bytes));
//   float* data = panels.As<float>();
//
// Guarantees: at least 64-byte aligned, zero-filled, freed on destruction. Failure is an error, never an abort.
#pragma once

#include <cstddef>
#include <utility>

#include "base/result.h"

namespace ridge {

// Gives memory that was freed back to the system, which allocators keep for later else. Takes milliseconds; thread-safe.
void ReleaseFreeMemory();

class Buffer {
 public:
  static Result<Buffer> Allocate(size_t size_bytes);  // kResourceExhausted
  // A part of an open file, read-only, aligned to a huge page and on huge pages where the file system has them. offset_bytes is a multiple
  // of 2 MiB. The file must not shrink while it is mapped.
  static Result<Buffer> MapFile(int fd, size_t offset_bytes, size_t size_bytes);

  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~Buffer();

  // Makes every page of it present now, so that no later write can find the memory gone. kResourceExhausted: the system has not that much.
  Status Populate() const;

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  // Of a mapped file: bytes that the processor sees through huge pages, of those that were touched so far. 0 where it cannot be told.
  size_t HugeFileBytes() const;
  template <class T>
  T* As() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace ridge
