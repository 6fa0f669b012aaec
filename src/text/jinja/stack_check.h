// Keeps recursion within a share of the thread's stack, whatever the frames cost in this build.
//
//   StackCheck stack(limit_bytes);   // in the outermost function
//   stack.Check();                   // in every recursive one; throws JinjaError (kLimit)
#pragma once

#include <cstddef>
#include <cstdint>

#include "text/jinja/value.h"

namespace ridge::text::jinja {

class StackCheck {
 public:
  explicit StackCheck(size_t limit_bytes) : base_(Here()), limit_bytes_(limit_bytes) {}
  void Check() const {
    const uintptr_t here = Here();
    const uintptr_t used = here > base_ ? here - base_ : base_ - here;
    if (used > limit_bytes_) Throw(Err::kLimit, "the template nests too deep");
  }

 private:
  static uintptr_t Here() { return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)); }
  uintptr_t base_;
  size_t limit_bytes_;
};

}  // namespace ridge::text::jinja
