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

class Buffer {
 public:
  static Result<Buffer> Allocate(size_t size_bytes);  // kResourceExhausted

  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~Buffer();

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  template <class T>
  T* As() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace ridge
