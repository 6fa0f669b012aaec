// SlotPool: which slots of recurrent state are taken, by running sequences or by checkpoints. Slots are numbers; what one stores, and where, is the
// backend's business.
//
//   SlotPool slots(20);
//   const int32_t slot = slots.Take();   // ... slots.Give(slot);
//
// Guarantees: a slot has one owner. Engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace ridge::cache {

inline constexpr int32_t kNoSlot = -1;

class SlotPool {
 public:
  explicit SlotPool(int64_t slots) : taken_(static_cast<size_t>(slots)) {
    for (int64_t slot = slots; slot-- > 0;) free_.push_back(static_cast<int32_t>(slot));
  }

  // Owners hold fewer than there are, or it is a fault of ours.
  int32_t Take() {
    RIDGE_CHECK(!free_.empty());
    const int32_t slot = free_.back();
    free_.pop_back();
    taken_[static_cast<size_t>(slot)] = true;
    return slot;
  }
  void Give(int32_t slot) {
    RIDGE_CHECK(slot >= 0 && slot < slots() && taken_[static_cast<size_t>(slot)]);
    taken_[static_cast<size_t>(slot)] = false;
    free_.push_back(slot);
  }
  int64_t slots() const { return static_cast<int64_t>(taken_.size()); }
  int64_t free_slots() const { return static_cast<int64_t>(free_.size()); }

  // `owned` are all slots with an owner, each once. Errors: kInternal.
  Status CheckIntegrity(std::span<const int32_t> owned) const {
    std::vector<bool> seen(taken_.size());
    for (const int32_t slot : owned) {
      if (slot < 0 || slot >= slots() || !taken_[static_cast<size_t>(slot)] || seen[static_cast<size_t>(slot)])
        return Fail(Code::kInternal, "a state slot has no owner or two").Found(std::to_string(slot));
      seen[static_cast<size_t>(slot)] = true;
    }
    if (static_cast<int64_t>(owned.size()) + free_slots() != slots())
      return Fail(Code::kInternal, "a state slot is lost");
    return {};
  }

 private:
  std::vector<bool> taken_;
  std::vector<int32_t> free_;  // a stack; its last element is handed out next
};

}  // namespace ridge::cache
